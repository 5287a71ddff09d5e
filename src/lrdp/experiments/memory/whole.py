"""The study of memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lrdp.experiments.memory.alone import Measurement, measured, measured_alone
from lrdp.experiments.memory.drawing import drawn
from lrdp.experiments.memory.plan import NAME, measured_cells, replay_cells
from lrdp.experiments.memory.replaying import replayed
from lrdp.experiments.memory.settings import MemorySettings, settings_from
from lrdp.experiments.memory.tables import table
from lrdp.experiments.study import Cell, CellStore, Places, Results
from lrdp.experiments.study.cells import Record
from lrdp.experiments.study.conducting import Rows


def study(tables: Mapping[str, Any]) -> MemoryStudy:
    """The study that these settings describe."""
    return MemoryStudy(settings=tables, plan=settings_from(tables))


@dataclass(frozen=True, kw_only=True)
class MemoryStudy:
    """Cells are measurements, each in a process of its own, and replays of what was recorded."""

    settings: Record
    plan: MemorySettings

    @property
    def name(self) -> str:
        return NAME

    @property
    def stages(self) -> Sequence[Callable[[Results], Sequence[Cell]]]:
        """Measurements, then replays."""
        return [lambda _: measured_cells(self.plan), lambda _: replay_cells(self.plan)]

    def work(self, cell: Cell, places: Places) -> Record:
        """What a process found, or what a card would have reserved."""
        if cell["measure"] == "reserved":
            return replayed(self.plan, self.plan.replay.runs[cell["replay"]], cell["seed"], CellStore(places.results))
        order = Measurement(
            measure=cell["measure"], method=cell["method"], setting=cell["setting"], sizes=cell["sizes"]
        )
        return measured_alone(order) if cell["alone"] else measured(order)

    def rows(self, results: Results) -> Rows:
        return table(self.plan, results)

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        return drawn(self.plan, results, folder)
