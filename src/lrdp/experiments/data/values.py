"""What a task provides: tensors, split in three, with the number of classes."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Split:
    """Inputs and labels, a row for each record."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Prepared:
    """The clients get their shares of ``train``; ``validation`` is for choosing, and ``test`` for what is reported."""

    train: Split
    validation: Split
    test: Split
    classes: int
