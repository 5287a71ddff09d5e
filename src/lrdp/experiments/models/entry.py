"""What a model is, as a study sees it: which records it takes, how it is made, and what it learns by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lrdp.training import CrossEntropy


class Form(Enum):
    """What a record is, besides its label. In all three the label is a whole number from 0 on."""

    FEATURES = "features"
    """A vector of float32."""

    PIXELS = "pixels"
    """Channels × height × width of float32."""

    TOKENS = "tokens"
    """Two rows of whole numbers, equally long in every record: word pieces, and a 1 for each of the sentence's own."""

    @property
    def dimensions(self) -> int:
        """Of one record's input."""
        return {Form.FEATURES: 1, Form.TOKENS: 2, Form.PIXELS: 3}[self]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a model is made for: the shape of one record's input, the number of classes, and weights to start from.

    ``weights`` is a folder, or a name on the Hugging Face hub, of a model that is public; None where it starts from
    random numbers. ``seed`` makes these: they are public, the same for all clients. ``bias`` is asked of linear heads.
    """

    shape: tuple[int, ...]
    classes: int
    seed: int
    weights: str | Path | None = None
    bias: bool = True


def _made_up(_: Wanted) -> Sequence[Any]:
    return ()


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """An entry by its name.

    ``build`` has random weights from torch's own generator. ``probes`` are public records ``(input, label)`` for the
    engine's gate; none where made-up ones will do, as they do for all that take any numbers.
    """

    form: Form
    build: Callable[[Wanted], nn.Module]
    probes: Callable[[Wanted], Sequence[tuple[Tensor, Tensor]]] = _made_up

    def made(self, wanted: Wanted) -> nn.Module:
        """The model as every client begins with it; the same for the same seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(wanted.seed)
            return self.build(wanted)

    def loss(self, wanted: Wanted) -> CrossEntropy:
        """One value per record, with a check of its labels."""
        return CrossEntropy(classes=wanted.classes)


def trained_size(model: nn.Module) -> int:
    """How many numbers are trained, and so get noise."""
    return sum(values.numel() for values in model.parameters() if values.requires_grad)
