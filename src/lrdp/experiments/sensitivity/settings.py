"""The settings of the study: a base, what is varied around it, and how clients take part where ε is compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.sensitivity.ledgers import Small
from lrdp.experiments.sensitivity.participation import Pattern
from lrdp.experiments.study import decoded
from lrdp.experiments.utility.engines import ENGINES
from lrdp.experiments.utility.mechanisms import check_parts, part
from lrdp.experiments.utility.settings import Method
from lrdp.experiments.utility.tuning import check_tuning_seeds


@dataclass(frozen=True, kw_only=True)
class Federal:
    """How a federation is set up.

    ``participation`` is how likely a client is to train in a round, ``dropout`` how likely its update is then lost,
    though paid for. Classes are mixed by a Dirichlet law of ``alpha``; 0 stands for all clients alike.
    """

    clients: int
    rounds: int
    local_steps: int
    batch_size: int
    participation: float = 1.0
    dropout: float = 0.0
    alpha: float = 0.0

    def __post_init__(self) -> None:
        if not (0 < self.participation <= 1 and 0 <= self.dropout < 1 and self.alpha >= 0):
            raise InvalidInput(
                f"participation must lie in (0, 1], dropout in [0, 1) and alpha be 0 or above, got "
                f"{self.participation}, {self.dropout} and {self.alpha}: nothing was run."
            )

    def with_value(self, name: str, value: float) -> Federal:
        """The same but for one number."""
        whole = isinstance(getattr(self, name), int)
        if whole and value != int(value):
            raise InvalidInput(f"varied.{name} must hold whole numbers, got {value}: nothing was run.")
        given: dict[str, Any] = {name: int(value) if whole else value}
        return replace(self, **given)


@dataclass(frozen=True, kw_only=True)
class SensitivityTask:
    """What is learned; ``rates`` are the learning rates that every method is tried with at the base."""

    title: str
    data: Mapping[str, Any]
    model: str
    rates: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """Many clients of equal size, whose rounds are only counted: noise is that of ``epsilon`` for all rounds."""

    clients: int
    rounds: int
    local_steps: int
    dataset_size: int
    batch_size: int
    epsilon: float
    seed: int
    patterns: Mapping[str, Pattern]


@dataclass(frozen=True, kw_only=True)
class Ledgers:
    """A small federation with real ledgers, and how its clients take part."""

    federation: Small
    pattern: Pattern
    seed: int


@dataclass(frozen=True, kw_only=True)
class SensitivitySettings:
    """``tuning_seeds`` are not among ``seeds``; ``only_tasks`` are those that are run, none for all."""

    epsilons: tuple[float, ...]
    delta: float
    clip_norm: float
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    base: Federal
    varied: Mapping[str, tuple[float, ...]]
    tasks: Mapping[str, SensitivityTask]
    methods: Mapping[str, Method]
    models: Mapping[str, Mapping[str, Any]]
    crowd: Crowd
    ledgers: Ledgers
    only_tasks: tuple[str, ...] = ()
    rates: int = 0
    as_read: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen(self) -> dict[str, SensitivityTask]:
        return {name: self.tasks[name] for name in self.only_tasks or self.tasks}

    def values_of(self, name: str) -> list[float]:
        """The values that are tried of one parameter, the base among them."""
        return sorted({*self.varied[name], float(getattr(self.base, name))})

    def settings(self) -> list[Federal]:
        """The base first, then each that differs from it in one number."""
        found = [self.base, *(self.base.with_value(name, value) for name in self.varied for value in self.varied[name])]
        return list(dict.fromkeys(found))


def read(tables: Mapping[str, Any]) -> SensitivitySettings:
    """The settings of these tables; raises InvalidInput for what does not fit together."""
    found = decoded(SensitivitySettings, {**tables, "as_read": dict(tables)}, "sensitivity")
    _known("only_tasks", found.only_tasks, found.tasks)
    _known("varied", found.varied, [each.name for each in fields(Federal)])
    _known("models", (task.model for task in found.tasks.values()), found.models)
    for method in found.methods.values():
        check_parts(method.sampling, method.accountant)
        part(ENGINES, method.engine, "engine")
        if not method.private:
            raise InvalidInput(f"the method {method.title!r} has no ε to be varied: nothing was run.")
    check_tuning_seeds(found.tuning_seeds, found.seeds)
    found.settings()
    return found


def _known(where: str, names: Iterable[str], table: Iterable[str]) -> None:
    known = list(table)
    for name in names:
        if name not in known:
            raise InvalidInput(f"{where} names {name!r}, which is none of {', '.join(known)}: nothing was run.")
