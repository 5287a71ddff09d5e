"""Which model, which loss, which records: what an entry of the table of models comes to for a task's data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lrdp.experiments.data import Prepared, Split
from lrdp.experiments.models import Choice, Form
from lrdp.experiments.study import decoded
from lrdp.training import Dataset, TensorRecords

_ROWS_AT_ONCE: Final = {Form.FEATURES: 4096, Form.PIXELS: 256, Form.TOKENS: 64}
_OVER: Final = "over"
"""What a model changes of a task; settings.py has laid it there already."""


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
    rows_at_once: int
    probes: Sequence[Any] = ()


def choice_of(entry: Mapping[str, Any]) -> Choice:
    """The model that an entry of the table of models names."""
    return decoded(Choice, {name: value for name, value in entry.items() if name != _OVER}, "a model")


def trainee(entry: Mapping[str, Any], prepared: Prepared, seed: int, data: Path) -> Trainee:
    """For these records, with first weights from ``seed``, or from public ones that may lie beside the data.

    Raises:
        InvalidInput: where there is no such model, or it takes records of another form.
    """
    choice, shape = choice_of(entry), tuple(prepared.train.inputs.shape[1:])
    choice.check_records(shape)
    wanted = choice.wanted(shape, prepared.classes, seed, data)
    return Trainee(
        model=partial(choice.model.made, wanted),
        loss=choice.model.loss(wanted),
        rows_at_once=_ROWS_AT_ONCE[choice.model.form],
        probes=choice.model.probes(wanted),
    )


@torch.no_grad()
def accuracy(given: Trainee, model: nn.Module, split: Split) -> float:
    """The share of a split that the model classifies correctly."""
    right, model = 0, model.eval()
    for start in range(0, len(split.labels), given.rows_at_once):
        inputs = torch.as_tensor(split.inputs[start : start + given.rows_at_once])
        labels = torch.as_tensor(split.labels[start : start + given.rows_at_once])
        right += int((model(inputs).argmax(-1) == labels).sum())
    return right / len(split.labels)
