"""The settings of the study: sources of patients, tasks, methods and models, each an entry of a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.hospitals.cohorts import CohortSource
from lrdp.experiments.hospitals.machine import MachineWay
from lrdp.experiments.study import decoded
from lrdp.experiments.utility.engines import ENGINES
from lrdp.experiments.utility.mechanisms import check_parts, part
from lrdp.experiments.utility.settings import Method


@dataclass(frozen=True, kw_only=True)
class Architecture:
    """Widths of the hidden layers; none for a linear model."""

    hidden: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class HospitalTask:
    """What is learned, and among whom.

    Args:
        source: of the patients.
        site: the column that tells hospitals apart.
        group: the column by which results are put together, where a hospital alone has too few patients to be judged;
            empty for each hospital on its own.
        least: hospitals with fewer patients are left out.
        batch_share: of a hospital's own training records; a batch has at least one.
        common_normaliser: whether each record counts the same, by a rate in proportion to a hospital's batch, which
            is public; otherwise each hospital counts the same.
        rates: the learning rates that every method is tried with.
        low_memory: the groups whose sites have little memory, and are left out where that is studied.
        methods: the only ones it is run with; none for all.
        epsilons: the only ones it is run at; none for all.
        seeds: how many of the first ones are run; 0 for all.
    """

    title: str
    source: str
    site: str
    model: str
    batch_share: float
    rates: tuple[float, ...]
    rounds: int
    low_memory: tuple[str, ...]
    local_steps: int = 1
    group: str = ""
    least: int = 6
    common_normaliser: bool = True
    methods: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()
    seeds: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.batch_share < 1:
            raise InvalidInput(
                f"batch_share must lie in (0, 1), got {self.batch_share}: a batch must leave a record out, for what is "
                f"proved holds for a sampling probability below 1 only. Nothing was run."
            )


@dataclass(frozen=True, kw_only=True)
class Machines:
    """A site's machine: the task whose smallest group's records are trained on, and the limits that are tried."""

    task: str
    batch_size: int
    steps: int
    limits_mb: tuple[int, ...]
    ways: Mapping[str, MachineWay]


@dataclass(frozen=True, kw_only=True)
class HospitalsSettings:
    """``only_tasks`` are those that are run; none for all."""

    epsilons: tuple[float, ...]
    delta: float
    clip_norm: float
    seeds: tuple[int, ...]
    sources: Mapping[str, CohortSource]
    models: Mapping[str, Architecture]
    methods: Mapping[str, Method]
    tasks: Mapping[str, HospitalTask]
    machines: Machines
    only_tasks: tuple[str, ...] = ()
    rounds: int = 0
    rates: int = 0
    as_read: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, HospitalTask]:
        return {name: self.tasks[name] for name in self.only_tasks or self.tasks}

    def rounds_of(self, task: str) -> int:
        return self.rounds or self.tasks[task].rounds

    def rates_of(self, task: str) -> tuple[float, ...]:
        return self.tasks[task].rates[: self.rates or None]

    def seeds_of(self, task: str) -> tuple[int, ...]:
        return self.seeds[: self.tasks[task].seeds or None]

    def lines(self, task: str) -> list[tuple[str, float]]:
        """Methods with the ε at which each is run; 0 stands for no privacy."""
        ward = self.tasks[task]
        found = list[tuple[str, float]]()
        for name in ward.methods or self.methods:
            wanted = ward.epsilons or self.epsilons
            private = [epsilon for epsilon in self.epsilons if epsilon in wanted]
            found += [(name, epsilon) for epsilon in (private if self.methods[name].private else [0.0])]
        return found


def read(tables: Mapping[str, Any]) -> HospitalsSettings:
    """The settings of these tables; raises InvalidInput for a name that no table has."""
    found = decoded(HospitalsSettings, {**tables, "as_read": dict(tables)}, "hospitals")
    _known("only_tasks", found.only_tasks, found.tasks)
    _known("machines.task", [found.machines.task], found.tasks)
    for name, ward in found.tasks.items():
        _known(f"tasks.{name}.source", [ward.source], found.sources)
        _known(f"tasks.{name}.model", [ward.model], found.models)
        _known(f"tasks.{name}.methods", ward.methods, found.methods)
    for method in found.methods.values():
        check_parts(method.sampling, method.accountant)
        part(ENGINES, method.engine, "engine")
    return found


def _known(where: str, names: Iterable[str], table: Mapping[str, Any]) -> None:
    for name in names:
        if name not in table:
            raise InvalidInput(f"{where} names {name!r}, which is none of {', '.join(table)}: nothing was run.")
