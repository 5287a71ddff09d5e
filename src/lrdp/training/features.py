"""What a frozen public backbone makes of each record, computed once and kept on disk as a data set.

The backbone must be public and chosen without these records. Then a record's features are a function of that record
alone, and training on them is as private as was charged. They are as private as the records themselves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

from lrdp import limits
from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.chance import without_chance
from lrdp.training.probes import made_up, some_rows, with_row
from lrdp.training.progress import ObserveStep, StepDone, silence
from lrdp.training.records import Dataset, RecordReader, blank_record, check_dataset
from lrdp.training.sampling import EMPTY
from lrdp.training.shelf import Columns, Key, Shelf

Compute = Callable[[nn.Module, Any], Any]
_LOOKED_AT = 16  # records, to see whether they are still the same


@dataclass(frozen=True)
class Features:
    """A data set of features, read from disk by number. A record that could not be read has none, and raises."""

    columns: Columns

    def __len__(self) -> int:
        return len(self.columns.arrays[0])

    def __getitem__(self, number: int) -> Any:
        return tree_map(lambda leaf: leaf[0], self.columns_at(np.array([number])))

    def columns_at(self, numbers: NDArray[np.int64]) -> Any:
        """Some records' features, already in columns."""
        found = [torch.from_numpy(array[numbers]) for array in self.columns.arrays]
        there, features = tree_unflatten(found, self.columns.form)
        if not bool(there.all()):
            raise InvalidInput("a record could not be read when its features were made.")
        return features


def of_first(backbone: nn.Module, batch: Any) -> Any:
    """Records ``(input, label)`` as ``(features, label)``."""
    inputs, *others = batch
    return (backbone(inputs), *others)


def cached_features(
    backbone: nn.Module,
    dataset: Dataset,
    folder: Path,
    *,
    compute: Compute = of_first,
    rows: int = 64,
    observe: ObserveStep = silence,
) -> Features:
    """What ``compute(backbone, batch)`` returns, a row for each record, from ``folder`` if it was kept there.

    It is made again for another backbone, a ``compute`` of another name, another form or number of records, or where
    one of a few records that are looked at has changed. In evaluation mode, without chance, in passes of one shape.

    >>> from tempfile import TemporaryDirectory
    >>> from lrdp.training import TensorRecords
    >>> records = TensorRecords(torch.rand(50, 6), torch.arange(50) % 3)
    >>> with TemporaryDirectory() as folder:
    ...     features = cached_features(nn.Linear(6, 4), records, Path(folder))
    ...     values, label = features[7]
    >>> len(features), tuple(values.shape), int(label)
    (50, (4,), 1)
    """
    check_dataset(dataset)
    limits.whole("rows", rows, 1, "a pass has at least one row")
    shelf = Shelf(folder)
    device = next((value.device for value in backbone.parameters()), torch.device("cpu"))
    making = _FeatureMaking(backbone, compute, RecordReader(dataset, device, blank_record(dataset)), rows, len(dataset))
    with torch.no_grad(), without_chance(backbone):
        key = making.key()
        return Features(shelf.kept(key) or shelf.keep(key, making.count, making.passes(observe)))


@dataclass(frozen=True)
class _FeatureMaking:
    backbone: nn.Module
    compute: Compute
    reader: RecordReader
    rows: int
    count: int

    def key(self) -> Key:
        """All that decides what the features are, as far as it can be told quickly."""
        return {
            "backbone": self._weights(),
            "compute": f"{self.compute.__module__}.{self.compute.__qualname__}",
            "count": self.count,
            "form": self.reader.form,
            "rows": self.rows,
            "some": self._some_records(),
        }

    def passes(self, observe: ObserveStep) -> Iterator[tuple[Tensor, Any]]:
        """Which records are there, and their features, in order."""
        before, started, steps = self._weights(), time.monotonic(), -(-self.count // self.rows)
        self._demand_independence()
        for step in range(steps):
            numbers = np.arange(step * self.rows, (step + 1) * self.rows)
            batch, live = self.reader.slots(np.where(numbers < self.count, numbers, EMPTY))
            here = slice(0, self.count - step * self.rows)
            yield live[here].cpu(), some_rows(self._computed(batch), here)
            observe(StepDone(step=step + 1, steps=steps, seconds=time.monotonic() - started))
        if self._weights() != before:
            raise Unsupported("the backbone changes with what it sees, so features would depend on other records.")

    def _computed(self, batch: Any) -> Any:
        found = tree_map(_storable, self.compute(self.backbone, batch))
        for leaf in tree_leaves(found):
            if leaf.dim() == 0 or len(leaf) != self.rows:
                raise InvalidInput(
                    f"compute must return a row for each of {self.rows} records, got the shape {tuple(leaf.shape)}."
                )
        return found

    def _demand_independence(self) -> None:
        """Refuse a backbone whose features of one record depend on others, or on chance: tried on made-up records."""
        batch, others = (made_up(self.reader.blank(self.rows), seed) for seed in (1, 2))
        undefined = tree_map(lambda leaf: leaf * torch.nan if leaf.is_floating_point() else leaf, others)
        expected = self._computed(batch)
        for row in {0, self.rows // 2, self.rows - 1}:
            for beside in (batch, others, undefined):
                if not _same_row(self._computed(with_row(beside, row, batch)), expected, row):
                    raise Unsupported(
                        "the backbone's features of one record depend on chance or on the records beside it, as with "
                        "batch normalisation without running statistics: take another, or rows=1."
                    )

    def _weights(self) -> str:
        found = sha256(repr(self.backbone).encode())
        for name, value in (*self.backbone.named_parameters(), *self.backbone.named_buffers()):
            found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            found.update(_bytes(value))
        return found.hexdigest()

    def _some_records(self) -> str:
        numbers = np.unique(np.linspace(0, self.count - 1, _LOOKED_AT).astype(np.int64))
        batch, live = self.reader.slots(numbers)
        return sha256(b"".join(map(_bytes, (live, *tree_leaves(batch))))).hexdigest()


def _storable(leaf: Tensor) -> Tensor:
    small = leaf.dtype in (torch.bfloat16, torch.float16)
    return (leaf.float() if small else leaf).detach().cpu()


def _same_row(one: Any, other: Any, row: int) -> bool:
    return all(torch.equal(a[row], b[row]) for a, b in zip(tree_leaves(one), tree_leaves(other), strict=True))


def _bytes(values: Tensor) -> bytes:
    return values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
