"""The study, as the conductor asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.experiments.sensitivity import ledgers
from lrdp.experiments.sensitivity import plan as plans
from lrdp.experiments.sensitivity.crowds import compared
from lrdp.experiments.sensitivity.drawing import drawn
from lrdp.experiments.sensitivity.plan import SensitivityPlan
from lrdp.experiments.sensitivity.settings import Ledgers, read
from lrdp.experiments.sensitivity.table import rows
from lrdp.experiments.sensitivity.training import trained
from lrdp.experiments.study import Cell, Places, Results, decoded
from lrdp.experiments.utility.mechanisms import calibrated
from lrdp.experiments.utility.shares import loaded


def study(tables: Mapping[str, Any]) -> Sensitivity:
    """The study of these settings; raises InvalidInput where they do not fit together."""
    return Sensitivity(SensitivityPlan(read(tables)))


@dataclass(frozen=True)
class Sensitivity:
    """What a federation's parameters do to accuracy and noise, and who pays what where clients come and go."""

    plan: SensitivityPlan

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
        return plan.data, plan.noise, plan.crowd, plan.ledgers, plan.tuning, plan.final

    def work(self, cell: Cell, places: Places) -> Mapping[str, Any]:
        """What comes out of a cell of any stage."""
        return _WORK[cell["stage"]](cell, places)

    def rows(self, results: Results) -> Sequence[Mapping[str, Any]]:
        return rows(self.plan, results)

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        return drawn(self.plan, results, self.rows(results), folder)


def _sizes(cell: Cell, places: Places) -> Mapping[str, Any]:
    return {"train": len(loaded(cell["data"], places).train.labels)}


def _noise(cell: Cell, _: Places) -> Mapping[str, Any]:
    return calibrated(cell.values)


def _crowd(cell: Cell, _: Places) -> Mapping[str, Any]:
    return compared(cell)


def _ledgers(cell: Cell, _: Places) -> Mapping[str, Any]:
    given = decoded(Ledgers, {name: cell[name] for name in ("federation", "pattern", "seed")}, "ledgers")
    return ledgers.run(given.federation, given.pattern, given.seed)


_WORK: Final[dict[str, Callable[[Cell, Places], Mapping[str, Any]]]] = {
    "data": _sizes,
    "noise": _noise,
    "crowd": _crowd,
    "ledgers": _ledgers,
    "tuning": trained,
    "final": trained,
}
