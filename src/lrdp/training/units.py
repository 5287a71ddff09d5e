"""Units that are people: all rows of one are a single record, so that they are drawn, clipped and accounted together.

What the engine calls an example is then a unit with rows inside. Its loss is the mean over them, its gradient is
clipped as one, and no group factor stands between the ε of a record and that of a person.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.checked_records import CheckedRecords
from lrdp.training.engine import check_losses
from lrdp.training.losses import ExampleLoss, Loss
from lrdp.training.parts import Parts
from lrdp.training.records import Dataset, check_dataset, rows_at
from lrdp.training.torch_losses import as_loss

_NOBODY: Final = object()
_NAMES: Final = (str, bytes, int, float)
_SHOWN: Final = 40


class GroupedByUnit:
    """The rows of ``dataset`` as one record for each unit; ``units`` says whose each row is, in the same order.

    A record is ``(rows, weights)``: ``most_rows`` rows, stacked, and what each counts in the unit's mean. A unit with
    fewer has its own rows again in the places that are left, where they count 0; of a unit with more the first
    ``most_rows`` are taken, in the order of the data set. Rows that are nobody's (``None``, or NaN) are one unit
    together: each by itself could be anybody's second record. Train on it with ``PerUnit(loss)``.

    Guarantees: what a record becomes depends on that unit's rows and on ``most_rows`` alone, and two data sets that
    differ in all rows of one unit differ in one record.

    >>> rows = torch.tensor([[1.0], [2.0], [3.0], [4.0]])
    >>> visits = GroupedByUnit([(row,) for row in rows], units=["ada", "bob", "ada", "ada"], most_rows=2)
    >>> len(visits), visits[0]
    (2, ((tensor([[1.],
            [3.]]),), tensor([0.5000, 0.5000])))
    """

    def __init__(self, dataset: Dataset, *, units: Iterable[Any], most_rows: int) -> None:
        check_dataset(dataset)
        self.most_rows = limits.whole("most_rows", most_rows, 1, "a unit has at least one row")
        found = list(_keys(units))
        if len(found) != len(dataset):
            raise InvalidInput(
                f"units must say of each of the {len(dataset)} rows whose it is, got {len(found)} of them: off by one "
                f"row, everybody would have somebody else's."
            )
        numbers = {key: number for number, key in enumerate(dict.fromkeys(found))}
        owners = np.fromiter((numbers[key] for key in found), dtype=np.int64, count=len(found))
        counts = np.bincount(owners)
        self._dataset, self._by_owner = dataset, np.argsort(owners, kind="stable")
        self._starts, self._own = np.cumsum(counts) - counts, np.minimum(counts, self.most_rows)

    def __len__(self) -> int:
        return len(self._own)

    def __getitem__(self, number: int) -> Any:
        if not -len(self) <= number < len(self):
            raise IndexError(number)
        return tree_map(lambda leaf: leaf[0], self.columns_at(np.array([number % len(self)])))

    def columns_at(self, numbers: NDArray[np.int64]) -> tuple[Any, Tensor]:
        """Some records, already in columns; no row is read twice."""
        own = self._own[numbers][:, None]
        places = np.arange(self.most_rows)[None]
        rows = self._by_owner[self._starts[numbers][:, None] + places % own]
        wanted, again = np.unique(rows, return_inverse=True)
        found, each = rows_at(self._dataset, wanted), torch.from_numpy(again.reshape(-1))
        weights = np.where(places < own, 1.0 / own, 0.0).astype(np.float32)
        return tree_map(lambda leaf: leaf[each].unflatten(0, rows.shape), found), torch.from_numpy(weights)


@dataclass(frozen=True)
class PerUnit(ExampleLoss):
    """One loss for each unit of a ``GroupedByUnit``: the mean over its rows of what ``given`` is for a row.

    The model sees rows as usual, those of one unit after those of another.

    >>> batch = ((torch.tensor([[[1.0], [3.0]]]), torch.tensor([[0.0, 0.0]])), torch.tensor([[0.5, 0.5]]))
    >>> PerUnit(nn.functional.mse_loss)(nn.Identity(), batch)
    tensor([5.])
    """

    checks: ClassVar[bool] = True
    given: Loss

    def __post_init__(self) -> None:
        limits.keep(self, given=as_loss(self.given))

    @property
    def words(self) -> str:
        return f"the mean over a unit's rows of {self._row.words}"

    @property
    def _row(self) -> ExampleLoss:
        return as_loss(self.given)

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        weights: Tensor = batch[1]
        losses = self._row(model, _row_by_row(batch))
        check_losses(losses, weights.numel())
        return (losses.view(weights.shape) * weights.to(losses.dtype)).sum(1)

    def check(self, batch: Any) -> None:
        self._row.check(_row_by_row(batch))

    def parts(self, batch: Any) -> Parts:
        return self._row.parts(_row_by_row(batch))

    def rows_each(self, batch: Any) -> int:
        return int(batch[1].shape[1]) * self._row.rows_each(_row_by_row(batch))

    def told(self, model: nn.Module, blank: Any) -> tuple[str, ...]:
        rows = blank[1].shape[1]
        grouped = f"A record is a unit of at most {rows} rows, which are drawn and clipped together."
        return (grouped, *self._row.told(model, _row_by_row(blank)))

    def in_float64(self) -> ExampleLoss:
        return PerUnit(self._row.in_float64())


def is_by_unit(dataset: Dataset) -> bool:
    """Whether a record of it is a unit with all its rows.

    >>> rows = [(torch.ones(2), 0), (torch.ones(2), 1), (torch.ones(2), 1)]
    >>> is_by_unit(rows), is_by_unit(GroupedByUnit(rows, units=["a", "b", "b"], most_rows=2))
    (False, True)
    """
    return isinstance(dataset.dataset if isinstance(dataset, CheckedRecords) else dataset, GroupedByUnit)


def _row_by_row(batch: Any) -> Any:
    """The rows of all units along the first dimension."""
    return tree_map(lambda leaf: leaf.flatten(0, 1), batch[0])


def _keys(units: Iterable[Any]) -> Iterable[Hashable]:
    """Each row's owner as a plain value: tensors and arrays are told apart by identity, not by what they hold."""
    listed: Any = units.tolist() if hasattr(units, "tolist") else units
    return map(_key, listed)


def _key(given: Any) -> Hashable:
    one: Any = given.item() if getattr(given, "size", None) == 1 or isinstance(given, Tensor) else given
    try:
        if one is None or bool(one != one):
            return _NOBODY
    except (TypeError, ValueError):  # pandas' NA does not know whether it equals itself
        return _NOBODY
    if isinstance(one, tuple):
        return tuple(map(_key, one))
    if not isinstance(one, _NAMES):
        raise InvalidInput(
            f"units must be text or numbers, or tuples of them, got a {type(one).__name__[:_SHOWN]}: two values that "
            f"look alike could count as two people."
        )
    return one
