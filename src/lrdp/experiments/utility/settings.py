"""The settings of the study: tasks, methods and models, each an entry of a table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.models.signal import PaperRun
from lrdp.experiments.study import decoded
from lrdp.experiments.study.settings import laid_over
from lrdp.experiments.utility.tuning import check_tuning_seeds


@dataclass(frozen=True, kw_only=True)
class UtilityTask:
    """What is learned: a data set, a model, and how long it is trained; ``figure`` is where its panel stands.

    ``rates`` are the learning rates that every method is tried with: public, and the same for all. They are tried at
    every ε, or where that would take too long at ``tuned_at`` alone. ``methods`` and ``epsilons`` are the only ones
    that it is run with; none for all.
    """

    title: str
    figure: str
    data: Mapping[str, Any]
    model: str
    batch_size: int
    rates: tuple[float, ...]
    rounds: int
    local_steps: int
    tuned_at: float = 0.0
    methods: tuple[str, ...] = ()
    epsilons: tuple[float, ...] = ()

    @property
    def steps(self) -> int:
        """Local steps in all."""
        return self.rounds * self.local_steps


@dataclass(frozen=True, kw_only=True)
class Method:
    """How batches are drawn, how noise is calibrated and who trains: the parts that a method is made of.

    Args:
        cap_deviations: the cap of truncated Poisson is B + this many √B.
        most_cut: the most that its cut probability may be.
        micro_batch: rows at a time; 0 for all at once.
        decimals: of σ, rounded up, as a policy states it; 0 for as many as calibration gives.
        gamma: of automatic clipping; 0 for gradients that are cut to the clip norm and never lengthened.
        rates_of: another method, whose learning rates are taken instead of its own being tried.
        epsilons: the only ones it is run at; none for all.
        seeds: how many of the first ones are run; 0 for all.
    """

    title: str
    sampling: str
    accountant: str
    engine: str
    cap_deviations: float = 0.0
    most_cut: float = 1.0
    micro_batch: int = 0
    decimals: int = 0
    gamma: float = 0.0
    rates_of: str = ""
    epsilons: tuple[float, ...] = ()
    seeds: int = 0

    @property
    def private(self) -> bool:
        """Whether there is an ε at all."""
        return self.accountant != "none"


@dataclass(frozen=True, kw_only=True)
class UtilitySettings:
    """``baseline`` is the method that gaps are measured from. ``tuning_seeds`` are not among ``seeds``.

    Args:
        name: of what is written.
        only_tasks: those that are run; none for all. ``only_methods`` and ``only_models`` as well.
        paper: by task, what the paper states of its run; noise and hours of the whole are those of that run.
        stepped: the method whose first ``steps`` are measured, at the first ε.
        model: in place of every task's own; empty for none.
        steps: how many of a training's first steps are run, with the noise of the whole; 0 for the whole.
        ray: also run one cell of each task on Ray, with ledgers and verified rounds.
        ledgered: the method and ε of that cell; σ must be what a policy states.
    """

    clients: int
    epsilons: tuple[float, ...]
    delta: float
    clip_norm: float
    seeds: tuple[int, ...]
    tuning_seeds: tuple[int, ...]
    baseline: str
    tasks: Mapping[str, UtilityTask]
    methods: Mapping[str, Method]
    models: Mapping[str, Mapping[str, Any]]
    name: str = "utility"
    only_tasks: tuple[str, ...] = ()
    only_methods: tuple[str, ...] = ()
    only_models: tuple[str, ...] = ()
    paper: Mapping[str, PaperRun] = field(default_factory=dict)
    stepped: str = ""
    model: str = ""
    steps: int = 0
    ray: bool = False
    ledgered: str = ""
    ledgered_epsilon: float = 0.0
    rounds: int = 0
    rates: int = 0
    as_read: Mapping[str, Any] = field(default_factory=dict)

    @property
    def chosen_tasks(self) -> dict[str, UtilityTask]:
        names = [name for name in self.only_tasks or self.tasks if self.tasks[name].model in self._chosen_models]
        return {name: self.tasks[name] for name in names}

    @property
    def _chosen_models(self) -> Collection[str]:
        return self.only_models or self.models

    @property
    def chosen_methods(self) -> dict[str, Method]:
        return {name: self.methods[name] for name in self.only_methods or self.methods}

    def model_of(self, task: UtilityTask) -> Mapping[str, Any]:
        """The entry of the model that is trained."""
        return self.models[self.model or task.model]

    def rounds_of(self, task: UtilityTask) -> int:
        """How many are planned, and so how much noise there is."""
        return self.rounds or task.rounds

    def rates_of(self, task: str) -> tuple[float, ...]:
        """The learning rates that are tried."""
        return self.tasks[task].rates[: self.rates or None]

    def methods_of(self, task: UtilityTask) -> dict[str, Method]:
        """Those that a task is run with."""
        return {name: each for name, each in self.chosen_methods.items() if name in (task.methods or self.methods)}

    def epsilons_of(self, method: Method) -> tuple[float, ...]:
        """Those at which it is run; 0 stands for no privacy."""
        return _among(self.epsilons, method.epsilons) if method.private else (0.0,)

    def shown_epsilons(self, task: UtilityTask) -> tuple[float, ...]:
        """Those at which anything of a task is run."""
        return _among(self.epsilons, task.epsilons)

    def seeds_of(self, method: Method) -> tuple[int, ...]:
        return self.seeds[: method.seeds or None]


def _among(all_of_them: tuple[float, ...], only: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(each for each in all_of_them if each in (only or all_of_them))


def read(tables: Mapping[str, Any]) -> UtilitySettings:
    """The settings of these tables, names of entries checked.

    Raises:
        InvalidInput: for a name that no table has, and for a tuning seed that is among the others.
    """
    found = decoded(UtilitySettings, {**_fitted(tables), "as_read": dict(tables)}, "utility")
    methods = {*found.only_methods, *(each.rates_of for each in found.methods.values() if each.rates_of)}
    methods |= {name for task in found.tasks.values() for name in task.methods}
    _known("only_tasks", found.only_tasks, found.tasks)
    _known("methods", {*methods, found.baseline, *([found.ledgered] if found.ledgered else [])}, found.methods)
    _known("only_models", found.only_models, found.models)
    _known("paper", found.paper, found.tasks)
    _known("stepped", [found.stepped] if found.stepped else [], found.methods)
    _known("model", {*([found.model] if found.model else []), *(t.model for t in found.tasks.values())}, found.models)
    if not found.chosen_tasks:
        raise InvalidInput(
            f"no task among {', '.join(found.only_tasks or found.tasks)} trains {' or '.join(found.only_models)}: "
            f"nothing was run."
        )
    check_tuning_seeds(found.tuning_seeds, found.seeds)
    return found


def _fitted(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Tasks with what their model needs to be different, such as inputs or rates: its own table ``over``."""
    models, tasks = tables.get("models", {}), tables.get("tasks", {})
    over = {
        name: models.get(tables.get("model") or task.get("model"), {}).get("over", {}) for name, task in tasks.items()
    }
    return {**tables, "tasks": {name: laid_over(task, over[name]) for name, task in tasks.items()}}


def _known(where: str, names: Any, table: Mapping[str, Any]) -> None:
    for name in names:
        if name not in table:
            raise InvalidInput(f"{where} names {name!r}, which is none of {', '.join(table)}: nothing was run.")
