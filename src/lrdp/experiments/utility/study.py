"""The study, as the conductor asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.experiments.study import Cell, Places, Results, Study
from lrdp.experiments.utility.drawing import drawn
from lrdp.experiments.utility.engines import ENGINES
from lrdp.experiments.utility.first_steps import FirstSteps, measured, noise
from lrdp.experiments.utility.mechanisms import check_parts, part
from lrdp.experiments.utility.plan import UtilityPlan
from lrdp.experiments.utility.settings import read
from lrdp.experiments.utility.table import rows
from lrdp.experiments.utility.trainees import choice_of
from lrdp.experiments.utility.training import trained
from lrdp.experiments.utility.verified import verified


def study(tables: Mapping[str, Any]) -> Study:
    """The study of these settings, or of the first steps of it; raises InvalidInput where they do not fit together."""
    settings = read(tables)
    for method in settings.chosen_methods.values():
        check_parts(method.sampling, method.accountant)
        part(ENGINES, method.engine, "engine")
    for entry in settings.models.values():
        choice_of(entry)
    return FirstSteps(UtilityPlan(settings)) if settings.steps else Utility(UtilityPlan(settings))


@dataclass(frozen=True)
class Utility:
    """Accuracy against ε."""

    plan: UtilityPlan

    @property
    def name(self) -> str:
        return self.plan.settings.name

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.plan.settings.as_read

    @property
    def stages(self) -> Sequence[Callable[[Results], Sequence[Cell]]]:
        """Each needs what came out of those before."""
        plan = self.plan
        return plan.data, plan.noise, plan.tuning, plan.final, plan.verified

    def work(self, cell: Cell, places: Places) -> Mapping[str, Any]:
        """What comes out of a cell of any stage."""
        return _WORK[cell["stage"]](cell, places)

    def rows(self, results: Results) -> Sequence[Mapping[str, Any]]:
        return rows(self.plan, results)

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        return drawn(self.plan.settings, self.rows(results), folder)


_WORK: Final[dict[str, Callable[[Cell, Places], Mapping[str, Any]]]] = {
    "data": measured,
    "noise": noise,
    "tuning": trained,
    "final": trained,
    "verified": verified,
}
