"""Records that were all read, and checked, once: a bad one is an error before training instead of during it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lrdp.errors import InvalidInput
from lrdp.training.losses import ExampleLoss, Loss
from lrdp.training.records import Dataset, RecordReader, blank_record, check_dataset
from lrdp.training.torch_losses import as_loss

_ROWS_AT_ONCE = 128
_TRIED = 64


@dataclass(frozen=True)
class CheckedRecords:
    """A data set, a blank record of its form, and why some records, by number, cannot be trained on: they are left out.

    Made by ``check_records`` and kept from round to round: an error about a record in a later reply would reveal it.
    They are counted once, those left out included, for the same reason: what is gone when it is drawn is left out too.
    """

    dataset: Dataset
    loss: ExampleLoss
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


def check_records(dataset: Dataset, loss: Loss) -> CheckedRecords:
    """The data set, every record read, and checked if the loss can check.

    Not only those drawn: a failure that depends on the draw would tell who was drawn.

    >>> from lrdp.training import CrossEntropy, TensorRecords
    >>> records = TensorRecords(torch.rand(4, 2), torch.tensor([0, 1, 7, 1]))
    >>> dict(check_records(records, CrossEntropy(classes=2)).left_out)
    {2: 'labels must be whole numbers from 0 to 1: at least one record has another'}
    """
    loss = as_loss(loss)
    if isinstance(dataset, CheckedRecords) and (dataset.loss == loss or not loss.checks):
        return dataset
    if isinstance(dataset, CheckedRecords):  # for another loss: what was left out stays out
        return replace(dataset, loss=loss, left_out={**dataset.left_out, **_left_out(dataset, loss)})
    found = unread_records(dataset, loss)
    return replace(found, left_out=_left_out(found, loss))


def records_for(dataset: Dataset, loss: Loss) -> CheckedRecords:
    """For one update: whoever brings a bare data set is told of records that the loss refuses.

    A loss that cannot check has no say, and nothing is read beforehand: an odd record is left out when it is drawn.
    """
    if isinstance(dataset, CheckedRecords):
        return check_records(dataset, loss)
    if not as_loss(loss).checks:
        return unread_records(dataset, loss)
    found = check_records(dataset, loss)
    found.demand()
    return found


def unread_records(dataset: Dataset, loss: Loss) -> CheckedRecords:
    """The data set, of which only the form of the first few records was looked at."""
    check_dataset(dataset)
    return CheckedRecords(dataset, as_loss(loss), blank_record(dataset), {}, len(dataset))


def without_loss(records: CheckedRecords, model: nn.Module) -> str:
    """A sentence on how many of some records have no finite loss, for their owner alone; empty where all have one.

    They add nothing to an update, and it costs the same. Those that are tried are spread evenly over the data set.
    Raises InvalidInput where none of them has one.

    >>> from lrdp.training import TensorRecords
    >>> records = TensorRecords(torch.tensor([[1.0], [float("nan")], [3.0]]), torch.rand(3, 1))
    >>> without_loss(unread_records(records, nn.MSELoss()), nn.Linear(1, 1))[:50]
    '1 of 3 records, taken evenly, have no finite loss '
    """
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    reader = RecordReader(records.dataset, device, records.blank)
    tried = min(len(records), _TRIED)
    spread = (place * len(records) // tried for place in range(tried))
    numbers = [number for number in spread if number not in records.left_out]
    with torch.no_grad(), torch.random.fork_rng():
        count = sum(not _has_loss(reader, records.loss, model, number) for number in numbers)
    if not count:
        return ""
    sentence = (
        f"{count} of {len(numbers)} records, taken evenly, have no finite loss with the first model, so they would add "
        f"nothing to an update, which costs the same: look for missing values, or for labels outside the model's "
        f"classes."
    )
    if count == len(numbers):
        raise InvalidInput(sentence)
    return sentence


def _has_loss(reader: RecordReader, loss: ExampleLoss, model: nn.Module, number: int) -> bool:
    try:
        return bool(loss(model, reader.read(np.array([number]))).isfinite().all())
    except Exception:  # noqa: BLE001 - whatever a record makes the data set, the model or the loss do
        return False


def _left_out(records: CheckedRecords, loss: ExampleLoss) -> dict[int, str]:
    reader = RecordReader(records.dataset, torch.device("cpu"), records.blank)
    left_out: dict[int, str] = {}
    for start in range(0, len(records), _ROWS_AT_ONCE):
        numbers = np.arange(start, min(len(records), start + _ROWS_AT_ONCE), dtype=np.int64)
        if _problem(reader, loss, numbers) is not None:
            found = {int(one): _problem(reader, loss, np.array([one])) for one in numbers}
            left_out |= {one: problem for one, problem in found.items() if problem is not None}
    return left_out


def _problem(reader: RecordReader, loss: ExampleLoss, numbers: NDArray[np.int64]) -> str | None:
    try:
        batch = reader.read(numbers)
        loss.check(batch)
    except InvalidInput as problem:
        return str(problem).rstrip(".")
    except KeyboardInterrupt:
        raise
    except BaseException as problem:  # noqa: BLE001 - whatever a record makes the data set or the loss do
        return type(problem).__name__
    return None
