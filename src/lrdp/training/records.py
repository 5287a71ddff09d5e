"""From drawn record numbers to tensors, padded to the same number of rows in every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import default_collate

from lrdp.errors import InvalidInput


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
    """Reads rows of a data set onto a device."""

    def __init__(self, dataset: Dataset, device: torch.device) -> None:
        self._dataset, self._device = dataset, device
        self.records = len(dataset)
        self._blank = tree_map(torch.zeros_like, self._read(np.zeros(1, dtype=np.int64)))

    @property
    def form(self) -> str:
        """Shapes and types of a record."""
        return str(tree_map(lambda leaf: (leaf.dtype, tuple(leaf.shape)), self._blank))

    def rows(self, numbers: NDArray[np.int64], rows: int) -> Any:
        """The records, then rows of zeros up to ``rows``: padding is made of no one's data."""
        missing = rows - len(numbers)
        blank = tree_map(lambda leaf: leaf.expand(missing, *leaf.shape[1:]), self._blank)
        if len(numbers) == 0:
            return blank
        found = self._read(numbers)
        if missing == 0:
            return found
        return tree_map(lambda first, second: torch.cat([first, second]), found, blank)

    def _read(self, numbers: NDArray[np.int64]) -> Any:
        fetch = getattr(self._dataset, "columns_at", None)
        if fetch is not None:
            batch = fetch(numbers)
        else:
            many = getattr(self._dataset, "__getitems__", None)
            records = many(numbers.tolist()) if many else [self._dataset[number] for number in numbers.tolist()]
            batch = default_collate(records)
        return tree_map(lambda leaf: leaf.to(self._device), batch)
