"""From drawn record numbers to tensors, padded to the same number of rows in every step."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from lrdp.errors import InvalidInput
from lrdp.training.sampling import EMPTY

_LOG = logging.getLogger("lrdp.training")
_LEFT_OUT = "records that could not be read, or have another form than the first, were left out of this step"


class Dataset(Protocol):
    """Records by number: a map-style data set. A data loader is refused, for it brings its own sampling."""

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any:
        """One record: tensors or numbers, in tuples or dicts."""


class TensorRecords:
    """Records held in tensors of equal length: fetched by one indexing operation."""

    def __init__(self, *columns: Tensor) -> None:
        if not columns or len({len(column) for column in columns}) != 1:
            raise InvalidInput(f"columns must have equal lengths, got {[len(column) for column in columns]}.")
        self._columns = columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, number: int) -> tuple[Tensor, ...]:
        return tuple(column[number] for column in self._columns)

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """Some records, one by one: torch's own protocol."""
        return [self[number] for number in numbers]

    def columns_at(self, numbers: NDArray[np.int64]) -> tuple[Tensor, ...]:
        """Some records, already in columns."""
        places = torch.from_numpy(numbers)
        return tuple(column.index_select(0, places.to(column.device)) for column in self._columns)


def check_dataset(dataset: Dataset) -> None:
    """Refuse what is not a non-empty map-style data set, before anything is drawn."""
    if isinstance(dataset, torch.utils.data.DataLoader) or not hasattr(dataset, "__getitem__"):
        raise InvalidInput(
            f"dataset must be a map-style data set, got {type(dataset).__name__}: a loader draws batches in its own "
            f"way, which is not the way that was accounted; pass the data set itself."
        )
    if len(dataset) == 0:
        raise InvalidInput("dataset must hold at least one record, got 0: there is nothing to train on.")


class Reader:
    """Reads records onto a device, each in a slot of its own.

    All have the form, shapes and types, of the first record, which is public. A record that cannot be read or has
    another form is left out, and its slot with it: an error would tell that it was drawn.
    """

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device
        self.records = len(dataset)
        self._blank = tree_map(torch.zeros_like, self._read(np.zeros(1, dtype=np.int64)))
        self.form = _form(self._blank)

    def blank(self, rows: int) -> Any:
        """Rows of zeros: made of no one's data."""
        return tree_map(lambda leaf: leaf.expand(rows, *leaf.shape[1:]), self._blank)

    def slots(self, numbers: NDArray[np.int64]) -> tuple[Any, Tensor]:
        """The records in their slots, zeros in all others, and which slots hold a record."""
        there = numbers != EMPTY
        try:
            found = self.read(numbers[there])
        except Exception as problem:  # noqa: BLE001 — whatever a data set does with a record
            there, found = self._one_by_one(numbers, problem)
        live = torch.from_numpy(there).to(self._device)
        if len(numbers) == there.sum():
            return found, live
        places = torch.from_numpy(np.flatnonzero(there)).to(self._device)
        blank = self.blank(len(numbers))
        return tree_map(lambda zeros, leaf: zeros.clone().index_copy_(0, places, leaf), blank, found), live

    def _one_by_one(self, numbers: NDArray[np.int64], problem: Exception) -> tuple[NDArray[np.bool_], Any]:
        there, found = np.zeros(len(numbers), dtype=np.bool_), [tree_map(lambda leaf: leaf[:0], self._blank)]
        for slot in np.flatnonzero(numbers != EMPTY):
            try:
                found.append(self.read(numbers[slot : slot + 1]))
                there[slot] = True
            except Exception as another:  # noqa: BLE001 — as above
                problem = another
        _LOG.warning("%s", _LEFT_OUT, exc_info=problem)
        return there, tree_map(lambda *leaves: torch.cat(leaves), *found)

    def read(self, numbers: NDArray[np.int64]) -> Any:
        """The records, stacked; raises where one cannot be read or has another form."""
        if len(numbers) == 0:
            return tree_map(lambda leaf: leaf[:0], self._blank)
        batch = self._read(numbers)
        if _form(batch) != self.form:
            raise InvalidInput(f"a record has another form than the first one's {self.form}.")
        return batch

    def _read(self, numbers: NDArray[np.int64]) -> Any:
        fetch = getattr(self._dataset, "columns_at", None)
        if fetch is not None:
            batch = fetch(numbers)
        else:
            many = getattr(self._dataset, "__getitems__", None)
            records = many(numbers.tolist()) if many else [self._dataset[number] for number in numbers.tolist()]
            batch = default_collate(records)
        return tree_map(lambda leaf: leaf.to(self._device), batch)


def _form(batch: Any) -> str:
    """Shapes and types of one record."""
    return str(tree_map(lambda leaf: (leaf.dtype, tuple(leaf.shape[1:])), batch))
