"""The study, as the conductor asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.experiments.study import Cell, Places, Results
from lrdp.experiments.utility import plan as plans
from lrdp.experiments.utility.drawing import drawn
from lrdp.experiments.utility.engines import ENGINES
from lrdp.experiments.utility.mechanisms import calibrated, check_parts, part
from lrdp.experiments.utility.plan import Plan
from lrdp.experiments.utility.settings import read
from lrdp.experiments.utility.shares import loaded
from lrdp.experiments.utility.table import rows
from lrdp.experiments.utility.training import trained
from lrdp.experiments.utility.verified import verified


def study(tables: Mapping[str, Any]) -> Utility:
    """The study of these settings; raises InvalidInput where they do not fit together."""
    settings = read(tables)
    for method in settings.chosen_methods.values():
        check_parts(method.sampling, method.accountant)
        part(ENGINES, method.engine, "engine")
    return Utility(Plan(settings))


@dataclass(frozen=True)
class Utility:
    """Accuracy against ε."""

    plan: Plan

    @property
    def name(self) -> str:
        return plans.NAME

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


def _sizes(cell: Cell, places: Places) -> Mapping[str, Any]:
    data = loaded(cell["data"], places)
    sizes = {name: len(getattr(data, name).labels) for name in ("train", "validation", "test")}
    return {**sizes, "classes": data.classes, "shape": list(data.train.inputs.shape[1:])}


def _noise(cell: Cell, _: Places) -> Mapping[str, Any]:
    return calibrated(cell.values)


_WORK: Final[dict[str, Callable[[Cell, Places], Mapping[str, Any]]]] = {
    "data": _sizes,
    "noise": _noise,
    "tuning": trained,
    "final": trained,
    "verified": verified,
}
