"""The study of noise as a whole: no data is read, and nothing is trained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lrdp.accounting import Budget
from lrdp.experiments.noise.calibrating import NoiseTask, NoiseWay, noise_for
from lrdp.experiments.noise.drawing import drawn
from lrdp.experiments.noise.settings import NoiseSettings, settings_from
from lrdp.experiments.noise.tables import table
from lrdp.experiments.study import Cell, Places, Results
from lrdp.experiments.study.cells import Record
from lrdp.experiments.study.conducting import Rows

NAME = "noise"


def study(tables: Mapping[str, Any]) -> NoiseStudy:
    """The study that these settings describe."""
    return NoiseStudy(settings=tables, plan=settings_from(tables))


@dataclass(frozen=True, kw_only=True)
class NoiseStudy:
    """A cell is a task under a way of sampling and accounting, for every ε."""

    settings: Record
    plan: NoiseSettings

    @property
    def name(self) -> str:
        return NAME

    @property
    def stages(self) -> Sequence[Callable[[Results], Sequence[Cell]]]:
        return [lambda _: [*self._multipliers(), *self._frontier()]]

    def work(self, cell: Cell, places: Places) -> Record:  # noqa: ARG002
        """The least noise for each ε."""
        task, way = NoiseTask(**cell["of"]), NoiseWay(**cell["by"])
        budgets = [Budget(epsilon=epsilon, delta=cell["delta"]) for epsilon in cell["epsilons"]]
        return {"found": [{"epsilon": each.epsilon, **asdict(noise_for(task, way, each))} for each in budgets]}

    def rows(self, results: Results) -> Rows:
        return table(self.plan, results)

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        return drawn(self.plan, results, folder)

    def _multipliers(self) -> list[Cell]:
        plan = self.plan
        return [
            _cell(task, name, (plan.tasks[task], plan.accountants[name]), plan.epsilons, plan.delta)
            for task in plan.chosen
            for name in plan.accountants
        ]

    def _frontier(self) -> list[Cell]:
        plan, frontier = self.plan, self.plan.frontier
        ways = {
            f"cap at +{above} deviations": NoiseWay(
                sampling="truncated-poisson", accountant=frontier.accountant, cap_deviations=above
            )
            for above in frontier.deviations
        }
        return [
            _cell(task, name, (plan.tasks[task], way), frontier.epsilons, plan.delta)
            for task in frontier.tasks
            for name, way in ways.items()
        ]


def _cell(task: str, name: str, made_of: tuple[NoiseTask, NoiseWay], epsilons: Sequence[float], delta: float) -> Cell:
    of, by = made_of
    values = {
        "task": task,
        "way": name,
        "of": asdict(of),
        "by": asdict(by),
        "epsilons": list(epsilons),
        "delta": delta,
    }
    return Cell(NAME, values)
