"""From drawn record numbers to tensors, padded to the same number of rows in every step."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import DataLoader, IterableDataset

from lrdp.errors import InvalidInput
from lrdp.training.sampling import EMPTY
from lrdp.training.tensors import stacked

_LOG = logging.getLogger("lrdp.training")
_LEFT_OUT = "records that could not be read, or have another form than most, were left out of this step"
_FIRST = 9


class Dataset(Protocol):
    """Records by number: a map-style data set, as torch and Hugging Face have it.

    A data loader is refused: it brings its own sampling. With ``__getitems__``, torch's own protocol, several are
    read at once.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, number: int, /) -> Any:
        """One record: tensors, arrays, pictures, numbers or lists of them, in tuples, dicts or dataclasses."""


class TensorRecords:
    """Records held in tensors of equal length: fetched by one indexing operation.

    >>> TensorRecords(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]))[1]
    (tensor([2.]), tensor(1))
    """

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
    """Refuse what is not a non-empty map-style data set, before anything is drawn.

    >>> check_dataset([])
    Traceback (most recent call last):
    lrdp.errors.InvalidInput: dataset must hold at least one record, got 0: there is nothing to train on.
    """
    kind = type(dataset).__name__
    if isinstance(dataset, Mapping):
        raise InvalidInput(
            f"dataset must be one data set, got a {kind} of {', '.join(map(repr, dataset))}: pass one of them, as in "
            f"dataset[{next(iter(dataset), 'train')!r}]."
        )
    if isinstance(dataset, DataLoader | IterableDataset) or not hasattr(dataset, "__getitem__"):
        raise InvalidInput(
            f"dataset must be a map-style data set, got {kind}: a loader or a stream draws batches in its own way, "
            f"which is not the way that was accounted; pass the data set itself."
        )
    if not hasattr(dataset, "__len__"):
        raise InvalidInput(
            f"dataset must be a map-style data set, got {kind}, which has no length: records are drawn by number, and "
            f"a stream has none; load it as a whole, without streaming."
        )
    if len(dataset) == 0:
        raise InvalidInput("dataset must hold at least one record, got 0: there is nothing to train on.")


def blank_record(dataset: Dataset) -> Any:
    """A record of zeros, stacked, in the form that most of the first records have. Shapes and types are public.

    Made once, when a client is set up: a server could see the outcome of a later look at the records.
    """
    found: dict[str, list[Any]] = {}
    problem: BaseException | None = None
    for number in range(min(_FIRST, len(dataset))):
        try:
            # Moved here, as every record will be: one on torch's meta device cannot be.
            record = tree_map(lambda leaf: leaf.cpu(), rows_at(dataset, np.array([number])))
            found.setdefault(_form(record), []).append(record)
        except KeyboardInterrupt:
            raise
        except BaseException as reason:  # noqa: BLE001 - whatever a data set does with a record
            problem = reason
    if not found:
        raise InvalidInput(
            f"none of the first {_FIRST} records can be read: {_words(problem)} A data set gives tensors, arrays, "
            f"numbers or lists of them, in tuples, dicts or dataclasses. Nothing was charged."
        ) from problem
    return tree_map(torch.zeros_like, max(found.values(), key=len)[0])


class RecordReader:
    """Reads records onto a device, each in a slot of its own, except those to be left out.

    All have the form of ``blank``. A record that cannot be read or has another form is left out too, and its slot stays
    empty: an error would tell that it was drawn.
    """

    def __init__(self, dataset: Dataset, device: torch.device, blank: Any, left_out: Collection[int] = ()) -> None:
        self._dataset, self.device = dataset, device
        self._left_out = np.fromiter(left_out, dtype=np.int64)
        self._blank = tree_map(lambda leaf: leaf.to(device), blank)
        self.form = _form(blank)
        self.row_bytes = sum(leaf.nbytes for leaf in tree_leaves(blank))

    def blank(self, rows: int) -> Any:
        """Rows that are made of no one's data: of zeros, or of whichever public record this was made with."""
        return tree_map(lambda leaf: leaf.expand(rows, *leaf.shape[1:]), self._blank)

    def slots(self, numbers: NDArray[np.int64]) -> tuple[Any, Tensor]:
        """The records in their slots, blank rows in all others, and which slots hold a record."""
        there = (numbers != EMPTY) & ~np.isin(numbers, self._left_out)
        try:
            found = self.read(numbers[there])
        except KeyboardInterrupt:
            raise
        except BaseException as problem:  # noqa: BLE001 - whatever a data set does with a record
            there, found = self._one_by_one(numbers, there, problem)
        live = torch.from_numpy(there).to(self.device)
        if len(numbers) == there.sum():
            return found, live
        places = torch.from_numpy(np.flatnonzero(there)).to(self.device)
        blank = self.blank(len(numbers))
        return tree_map(lambda zeros, leaf: zeros.clone().index_copy_(0, places, leaf), blank, found), live

    def _one_by_one(
        self, numbers: NDArray[np.int64], wanted: NDArray[np.bool_], problem: BaseException
    ) -> tuple[NDArray[np.bool_], Any]:
        there, found = np.zeros_like(wanted), [tree_map(lambda leaf: leaf[:0], self._blank)]
        for slot in np.flatnonzero(wanted):
            try:
                found.append(self.read(numbers[slot : slot + 1]))
                there[slot] = True
            except KeyboardInterrupt:
                raise
            except BaseException as another:  # noqa: BLE001 - as above
                problem = another
        _LOG.warning("%s", _LEFT_OUT, exc_info=problem)
        return there, tree_map(lambda *leaves: torch.cat(leaves), *found)

    def read(self, numbers: NDArray[np.int64]) -> Any:
        """The records, stacked; raises where one cannot be read or has another form."""
        if len(numbers) == 0:
            return tree_map(lambda leaf: leaf[:0], self._blank)
        batch = tree_map(lambda leaf: leaf.to(self.device), rows_at(self._dataset, numbers))
        if _form(batch) != self.form or any(len(leaf) != len(numbers) for leaf in tree_leaves(batch)):
            raise InvalidInput(f"a record is missing, or has another form than the others' {self.form}.")
        return batch


def records_at(dataset: Any, numbers: list[int]) -> list[Any]:
    """Some records, read at once where the data set can."""
    many = getattr(dataset, "__getitems__", None)
    return list(many(numbers)) if many else [dataset[number] for number in numbers]


def rows_at(dataset: Any, numbers: NDArray[np.int64]) -> Any:
    """Some records' tensors, a row for each, in columns at once where the data set can."""
    fetch = getattr(dataset, "columns_at", None)
    return fetch(numbers) if fetch else stacked(records_at(dataset, numbers.tolist()))


def _words(problem: BaseException | None) -> str:
    """Our errors name a field; those of others may quote what it holds."""
    return str(problem) if isinstance(problem, InvalidInput) else f"{type(problem).__name__}."


def _form(batch: Any) -> str:
    """Shapes and types of one record."""
    return str(tree_map(lambda leaf: (leaf.dtype, leaf.layout, tuple(leaf.shape[1:])), batch))
