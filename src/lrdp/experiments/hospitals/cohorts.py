"""Patients of several hospitals: one record each, who has them, and who is for testing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lrdp.errors import InvalidInput
from lrdp.experiments.hospitals.columns import Column, Floats, features

_TEST_SHARE: Final = 3  # every third record of a hospital is for testing


@dataclass(frozen=True, kw_only=True)
class OutcomeColumn:
    """What is to be predicted: a ``column`` of 0 and 1; with ``days``, whether it had happened by then.

    ``until`` are the ends, in days, of the intervals that a survival model tells apart.
    """

    column: str
    days: str = ""
    until: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.days) != bool(self.until) or list(self.until) != sorted(set(self.until)):
            raise InvalidInput(
                f"an outcome with days needs rising ends of intervals in until, and one without needs none; got days="
                f"{self.days!r} and until={list(self.until)}: nothing was run."
            )


@dataclass(frozen=True, kw_only=True)
class CohortSource:
    """A parquet file and how its patients are read; ``flags`` are columns of 0 and 1, taken as they are.

    With ``patient``, a patient's first stay by ``order`` is its record in a hospital: then what is protected is the
    patient.
    """

    file: str
    outcome: OutcomeColumn
    columns: Mapping[str, Column]
    flags: tuple[str, ...] = ()
    patient: str = ""
    order: str = ""

    @property
    def read(self) -> dict[str, Column]:
        """All that a model is told of a patient."""
        return {**self.columns, **dict.fromkeys(self.flags, Column())}


@dataclass(frozen=True, kw_only=True)
class CohortSettings:
    """Whose patients: ``site`` tells hospitals apart, ``group`` puts some of them together; see ``Ward``."""

    source: CohortSource
    site: str
    group: str
    least: int


@dataclass(frozen=True, kw_only=True)
class Cohort:
    """Row by row: numbers, outcome (1 where it happened), days until then or until last seen, hospital and group."""

    inputs: NDArray[np.float32]
    happened: NDArray[np.bool_]
    days: Floats
    sites: NDArray[np.str_]
    groups: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def site_names(self) -> list[str]:
        """The largest first."""
        return _by_size(self.sites)

    @property
    def group_names(self) -> list[str]:
        """The largest first."""
        return _by_size(self.groups)

    def at(self, rows: NDArray[Any]) -> Cohort:
        """Some of the patients."""
        return Cohort(**{each.name: getattr(self, each.name)[rows] for each in fields(self)})

    def of(self, site: str) -> Cohort:
        """One hospital's."""
        return self.at(self.sites == site)

    def without(self, groups: Collection[str]) -> Cohort:
        """All others'."""
        return self.at(self.groups_outside(groups))

    def groups_outside(self, groups: Collection[str]) -> NDArray[np.bool_]:
        """Row by row, whether a patient is in none of these."""
        return ~np.isin(self.groups, list(groups))

    def parted(self, seed: int) -> tuple[Cohort, Cohort]:
        """For training and for testing: a third of each hospital's, drawn afresh for each seed."""
        chance = np.random.default_rng([seed, len(self)])
        test = np.zeros(len(self), bool)
        for name in self.site_names:
            rows = chance.permutation(np.flatnonzero(self.sites == name))
            test[rows[for_training(len(rows)) :]] = True
        return self.at(~test), self.at(test)


def for_training(records: int) -> int:
    """How many of these records are for training."""
    return records - records // _TEST_SHARE


def _by_size(names: NDArray[np.str_]) -> list[str]:
    found, counts = np.unique(names, return_counts=True)
    return [str(name) for _, name in sorted(zip((-counts).tolist(), found, strict=True))]


def cohort(gathering: CohortSettings, folder: Path) -> Cohort:
    """Read it.

    Raises:
        InvalidInput: naming the file, where it is missing, is not parquet or lacks a column.
    """
    source, outcome = gathering.source, gathering.source.outcome
    table = _table(folder / source.file, gathering)
    numbers = {name: _numbers(table[name], name) for name in _numeric(source)}
    there = np.array([site is not None for site in table[gathering.site]])
    rows = _one_each(table, gathering, np.flatnonzero(there & ~np.isnan(numbers[outcome.column])))
    sites = np.array([str(table[gathering.site][row]) for row in rows])
    found = Cohort(
        inputs=features(source.read, {name: values[rows] for name, values in numbers.items()}),
        happened=numbers[outcome.column][rows] > 0,
        days=numbers[outcome.days][rows] if outcome.days else np.zeros(len(rows)),
        sites=sites,
        groups=np.array([_group(table[gathering.group][row]) for row in rows]) if gathering.group else sites,
    )
    names, counts = np.unique(sites, return_counts=True)
    return found.at(np.isin(sites, names[counts >= gathering.least]))


def _group(value: Any) -> str:
    return "unknown" if value is None else str(value)


def _numeric(source: CohortSource) -> list[str]:
    days = [source.outcome.days] if source.outcome.days else []
    return [*source.read, source.outcome.column, *days]


def _table(path: Path, gathering: CohortSettings) -> dict[str, list[Any]]:
    import pyarrow.parquet as parquet
    from pyarrow import ArrowException

    source = gathering.source
    others = filter(None, (gathering.site, gathering.group, source.patient, source.order))
    wanted = list(dict.fromkeys([*_numeric(source), *others]))
    try:
        table = parquet.read_table(path)
    except (OSError, ArrowException) as problem:
        reason = str(problem).splitlines()[0]
        raise InvalidInput(
            f"{path} cannot be read ({reason}): name the folder of the data with --data-dir. Nothing was run."
        ) from None
    if missing := [name for name in wanted if name not in table.column_names]:
        raise InvalidInput(f"{path} lacks the column {missing[0]!r} that the settings name: nothing was run.")
    found: dict[str, list[Any]] = table.select(wanted).to_pydict()
    return found


def _numbers(values: list[Any], name: str) -> Floats:
    try:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"the column {name!r} must hold numbers: nothing was run.") from None


def _one_each(table: Mapping[str, list[Any]], gathering: CohortSettings, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first of a patient's stays in a hospital: a patient is what is protected, not a stay."""
    source = gathering.source
    if not source.patient:
        return rows
    order, patient, site = table[source.order], table[source.patient], table[gathering.site]
    first: dict[tuple[Any, Any], int] = {}
    for row in sorted(rows.tolist(), key=lambda row: order[row]):
        first.setdefault((site[row], patient[row]), row)
    return np.array(sorted(first.values()), np.int64)
