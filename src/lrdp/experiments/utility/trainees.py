"""Which model, which loss, which records: one value for each entry of the table of models.

A new kind of model is one more function here; nothing that trains has to know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lrdp.errors import InvalidInput
from lrdp.experiments.data import Prepared, Split
from lrdp.training import CrossEntropy, Dataset, TensorRecords

_ROWS_AT_ONCE: Final = 4096


def _rows(split: Split, numbers: NDArray[np.int64]) -> TensorRecords:
    places = torch.from_numpy(numbers)
    return TensorRecords(torch.as_tensor(split.inputs)[places], torch.as_tensor(split.labels)[places])


@dataclass(frozen=True, kw_only=True)
class Trainee:
    """``model`` makes the first, public model; ``records`` are those of a split with these numbers.

    ``rows_at_once`` is how many are judged together; ``probes`` are public records, as in :class:`lrdp.training.Task`.
    """

    model: Callable[[], nn.Module]
    loss: Callable[..., Tensor]
    records: Callable[[Split, NDArray[np.int64]], Dataset] = _rows
    rows_at_once: int = _ROWS_AT_ONCE
    probes: Sequence[Any] = ()


def linear(entry: Mapping[str, Any], prepared: Prepared) -> Trainee:
    """One layer on frozen features, or on bare pixels, from zero; with ``bias``, or without."""
    _only(entry, ("bias",))
    shape = prepared.train.inputs.shape[1:]

    def model() -> nn.Module:
        made = nn.Linear(shape.numel(), prepared.classes, bias=bool(entry.get("bias", True)))
        for parameter in made.parameters():
            nn.init.zeros_(parameter)
        return made if len(shape) == 1 else nn.Sequential(nn.Flatten(), made)

    return Trainee(model=model, loss=CrossEntropy(classes=prepared.classes))


KINDS: Final[dict[str, Callable[[Mapping[str, Any], Prepared], Trainee]]] = {"linear": linear}


def trainee(entry: Mapping[str, Any], prepared: Prepared) -> Trainee:
    """What an entry of the table of models stands for; ``kind`` is its one key that all have."""
    kind = entry.get("kind")
    if kind not in KINDS:
        raise InvalidInput(f"a model's kind must be one of {', '.join(KINDS)}, got {kind!r}: nothing was run.")
    return KINDS[kind](entry, prepared)


def _only(entry: Mapping[str, Any], known: Sequence[str]) -> None:
    if unknown := sorted(set(entry) - {"kind", "over", *known}):
        raise InvalidInput(f"a model of kind {entry['kind']} has no {unknown[0]!r}: nothing was run.")


@torch.no_grad()
def accuracy(given: Trainee, model: nn.Module, split: Split) -> float:
    """The share of a split that the model classifies correctly."""
    right, model = 0, model.eval()
    for start in range(0, len(split.labels), given.rows_at_once):
        inputs = torch.as_tensor(split.inputs[start : start + given.rows_at_once])
        labels = torch.as_tensor(split.labels[start : start + given.rows_at_once])
        right += int((model(inputs).argmax(-1) == labels).sum())
    return right / len(split.labels)
