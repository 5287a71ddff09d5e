"""Losses by example, with the checks that make a bad record an error before training instead of during it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.records import Dataset, RecordReader, blank_record, check_dataset

_ROWS_AT_ONCE = 128


@runtime_checkable
class CheckedLoss(Protocol):
    """A loss that can tell a bad record from a good one without a model."""

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        """One value per example."""

    def check(self, batch: Any) -> None:
        """Raise if a record cannot be trained on."""


@dataclass(frozen=True, kw_only=True)
class CrossEntropy:
    """Classification of records ``(input, label)`` with labels 0 to ``classes`` − 1."""

    classes: int

    def __post_init__(self) -> None:
        limits.whole("classes", self.classes, 2, "with one class there is nothing to tell apart")

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        inputs, labels = batch
        return functional.cross_entropy(model(inputs), labels, reduction="none")

    def check(self, batch: Any) -> None:
        _check_labels(batch[1], self.classes)


@dataclass(frozen=True, kw_only=True)
class NamedCrossEntropy:
    """Classification of records that are dicts, with labels 0 to ``classes`` − 1 in the field ``label``.

    All other fields are arguments of the model, by their names. It returns logits, or what has them as ``logits``.
    """

    classes: int
    label: str = "label"

    def __post_init__(self) -> None:
        limits.whole("classes", self.classes, 2, "with one class there is nothing to tell apart")

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        output = model(**{name: values for name, values in batch.items() if name != self.label})
        return functional.cross_entropy(getattr(output, "logits", output), batch[self.label], reduction="none")

    def check(self, batch: Any) -> None:
        _check_labels(batch[self.label], self.classes)


def _check_labels(labels: Tensor, classes: int) -> None:
    if labels.is_floating_point() or bool(((labels < 0) | (labels >= classes)).any()):
        raise InvalidInput(f"labels must be whole numbers from 0 to {classes - 1}: at least one record has another.")


@dataclass(frozen=True)
class CheckedRecords:
    """A data set, a blank record of its form, and why some records, by number, cannot be trained on: they are left out.

    Made by ``check_records`` and kept over the rounds: an error about a record in a later reply would tell of it. They
    are counted once, those left out included, for the same reason: what is gone when it is drawn is left out, too.
    """

    dataset: Dataset
    loss: Callable[..., Tensor]
    blank: Any
    left_out: Mapping[int, str]
    size: int

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, number: int) -> Any:
        return self.dataset[number]

    def demand(self) -> None:
        """Raise if a record is left out: for whoever can mend the data, and never in a reply to a server."""
        if self.left_out:
            first = min(self.left_out)
            raise InvalidInput(
                f"{len(self.left_out)} of {len(self)} records cannot be trained on, the first of them number {first} "
                f"({self.left_out[first]}): mend or remove them; with check_records(dataset, loss) they are left out."
            )


def check_records(dataset: Dataset, loss: Callable[..., Tensor]) -> CheckedRecords:
    """The data set, every record read, and checked if the loss can check.

    Not only those drawn: a failure that depends on the draw would tell who was drawn.
    """
    if isinstance(dataset, CheckedRecords) and dataset.loss == loss:
        return dataset
    if isinstance(dataset, CheckedRecords):  # for another loss: what was left out stays so
        return replace(dataset, loss=loss, left_out={**dataset.left_out, **_left_out(dataset, loss)})
    found = _unread(dataset, loss)
    return replace(found, left_out=_left_out(found, loss))


def records_for(dataset: Dataset, loss: Callable[..., Tensor]) -> CheckedRecords:
    """For one update: who brings a bare data set is told of records that the loss refuses.

    A loss that cannot check has no say, and nothing is read beforehand: an odd record is left out when it is drawn.
    """
    if isinstance(dataset, CheckedRecords):
        return check_records(dataset, loss)
    if not isinstance(loss, CheckedLoss):
        return _unread(dataset, loss)
    found = check_records(dataset, loss)
    found.demand()
    return found


def _unread(dataset: Dataset, loss: Callable[..., Tensor]) -> CheckedRecords:
    check_dataset(dataset)
    return CheckedRecords(dataset, loss, blank_record(dataset), {}, len(dataset))


def _left_out(records: CheckedRecords, loss: Callable[..., Tensor]) -> dict[int, str]:
    reader = RecordReader(records.dataset, torch.device("cpu"), records.blank)
    left_out: dict[int, str] = {}
    for start in range(0, len(records), _ROWS_AT_ONCE):
        numbers = np.arange(start, min(len(records), start + _ROWS_AT_ONCE), dtype=np.int64)
        if _problem(reader, loss, numbers) is not None:
            found = {int(one): _problem(reader, loss, np.array([one])) for one in numbers}
            left_out |= {one: problem for one, problem in found.items() if problem is not None}
    return left_out


def _problem(reader: RecordReader, loss: Callable[..., Tensor], numbers: NDArray[np.int64]) -> str | None:
    try:
        batch = reader.read(numbers)
        if isinstance(loss, CheckedLoss):
            loss.check(batch)
    except InvalidInput as problem:
        return str(problem).rstrip(".")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever a record makes the data set or the loss do
        return type(problem).__name__
    return None
