"""The study, as the conductor asks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from lrdp import files
from lrdp.experiments.hospitals import plan as plans
from lrdp.experiments.hospitals.drawing import drawn
from lrdp.experiments.hospitals.machine import MachineJob, MachineWay, attempt
from lrdp.experiments.hospitals.plan import HospitalsPlan
from lrdp.experiments.hospitals.settings import read
from lrdp.experiments.hospitals.table import rows
from lrdp.experiments.hospitals.training import patients, sites, trained
from lrdp.experiments.study import Cell, Places, Results
from lrdp.experiments.utility.mechanisms import calibrated

_MEGA: Final = 10**6


def study(tables: Mapping[str, Any]) -> HospitalsStudy:
    """The study of these settings; raises InvalidInput where they do not fit together."""
    return HospitalsStudy(HospitalsPlan(read(tables)))


@dataclass(frozen=True)
class HospitalsStudy:
    """How well each hospital is served, and what becomes of those with little memory."""

    plan: HospitalsPlan

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
        return plan.sites, plan.noise, plan.machines, plan.tuning, plan.final

    def work(self, cell: Cell, places: Places) -> Mapping[str, Any]:
        """What comes out of a cell of any stage."""
        return _WORK[cell["stage"]](cell, places)

    def rows(self, results: Results) -> Sequence[Mapping[str, Any]]:
        return rows(self.plan, results)

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        return drawn(self.plan.settings, self.rows(results), folder)


def _noise(cell: Cell, _: Places) -> Mapping[str, Any]:
    return calibrated(cell.values)


def _machine(cell: Cell, places: Places) -> Mapping[str, Any]:
    """The records of the smallest hospital, on a machine of its own."""
    everybody = patients(cell["gathering"], places)
    own = everybody.of(everybody.site_names[-1])
    with TemporaryDirectory(prefix="lrdp-machine-") as folder:
        inputs, labels = Path(folder) / "inputs.npy", Path(folder) / "labels.npy"
        for path, values in ((inputs, own.inputs), (labels, own.happened.astype(np.int64))):
            with files.creating(path, files.OWNER_ONLY) as file:
                np.save(file, values)
        return attempt(
            MachineJob(
                way=MachineWay(**cell["way"]),
                inputs=str(inputs),
                labels=str(labels),
                hidden=tuple(cell["hidden"]),
                batch_size=cell["batch_size"],
                steps=cell["steps"],
                limit=cell["limit_mb"] * _MEGA,
            )
        )


_WORK: Final[dict[str, Callable[[Cell, Places], Mapping[str, Any]]]] = {
    "sites": sites,
    "noise": _noise,
    "machines": _machine,
    "tuning": trained,
    "final": trained,
}
