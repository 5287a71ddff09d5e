"""The first steps of a training that is too long for a small machine: what they take, and what the whole would.

Next to it stands how much noise there would be, which needs no training at all.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
import torch

from lrdp.experiments.models import trained_size
from lrdp.experiments.models.signal import noise_in_clip_norms
from lrdp.experiments.study import Cell, Places, Results
from lrdp.experiments.utility.mechanisms import calibrated
from lrdp.experiments.utility.plan import UtilityPlan
from lrdp.experiments.utility.shares import Holdings, holdings, loaded
from lrdp.experiments.utility.training import run_in_process
from lrdp.federation.wire.layout import Layout
from lrdp.training import StepDone

_HOUR: Final = 3600


@dataclass(frozen=True)
class FirstSteps:
    """``settings.steps`` steps of one method, and the noise of all of them at every ε."""

    plan: UtilityPlan

    @property
    def name(self) -> str:
        return f"{self.plan.settings.name}-steps"

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.plan.settings.as_read

    @property
    def stages(self) -> Sequence[Callable[[Results], Sequence[Cell]]]:
        """Each needs what came out of those before."""
        return self.plan.data, self._noise, self._steps

    def work(self, cell: Cell, places: Places) -> Mapping[str, Any]:
        """What comes out of a cell of any stage."""
        return _WORK[cell["stage"]](cell, places)

    def rows(self, results: Results) -> Sequence[Mapping[str, Any]]:
        """For each task, method and ε the noise of the whole, next to what a step was measured to take."""
        lines = [(task, *line) for task in self.plan.settings.chosen_tasks for line in self._lines()]
        return [self._row(results, *line) for line in lines]

    def draw(self, _results: Results, _folder: Path) -> Sequence[Path]:
        """Nothing: it is a table."""
        return ()

    def _lines(self) -> list[tuple[str, float]]:
        chosen = self.plan.settings.chosen_methods.items()
        return [(name, epsilon) for name, each in chosen if each.private for epsilon in self.plan.settings.epsilons]

    def _noise(self, results: Results) -> list[Cell]:
        return [
            self.plan.noise_for(method, epsilon, self._whole(results, task))
            for task in self.plan.settings.chosen_tasks
            for method, epsilon in self._lines()
        ]

    def _steps(self, results: Results) -> list[Cell]:
        return [self._step(results, task) for task in self.plan.settings.chosen_tasks]

    def _step(self, results: Results, task: str) -> Cell:
        method, epsilon = self._lines()[0]
        method = self.plan.settings.stepped or method
        noise = results.of(self.plan.noise_for(method, epsilon, self._whole(results, task)))["noise_multiplier"]
        return self.plan.stepped_cell(results, (task, method, epsilon), noise)

    def _whole(self, results: Results, task: str) -> dict[str, int]:
        """The paper's run, or where the task is none of the paper's, its own."""
        run = self.plan.settings.paper.get(task)
        if run is None:
            return {**self.plan.sizes(results, task), "steps": self.plan.planned(task)}
        return {"dataset_size": run.share, "batch_size": run.batch_size, "steps": run.steps}

    def _row(self, results: Results, task: str, method: str, epsilon: float) -> dict[str, Any]:
        whole, run = self._whole(results, task), self.plan.settings.paper.get(task)
        clients = self.plan.settings.clients if run is None else run.clients
        cell = self._step(results, task)
        taken, noise = results.of(cell), results.of(self.plan.noise_for(method, epsilon, whole))["noise_multiplier"]
        return {
            "task": task,
            "model": self.plan.settings.model or self.plan.settings.tasks[task].model,
            "method": method,
            "epsilon": epsilon,
            "weights_trained": taken["size"],
            "noise_multiplier": noise,
            "noise_in_clip_norms": noise_in_clip_norms(noise, taken["size"], whole["batch_size"], clients),
            "clients": clients,
            **whole,
            "step_seconds": taken["step_seconds"],
            "whole_hours": taken["step_seconds"] * whole["steps"] * clients / _HOUR,
            "measured_method": cell["method"],
            "measured_steps": cell["local_steps"] * cell["rounds"],
            "measured_clients": cell["clients"],
            "measured_batch_size": cell["mechanism"]["batch_size"],
            "measured_length_in_clip_norms": taken["length_in_clip_norms"],
            "computed_length_in_clip_norms": taken["noise_in_clip_norms"],
        }


@dataclass
class _Clock:
    """The processor's time at the end of every step, by the client whose step it was."""

    clients: list[list[float]] = field(default_factory=list)

    def __call__(self, done: StepDone) -> None:
        """A client's first step begins a new list."""
        if done.step == 1:
            self.clients.append([])
        self.clients[-1].append(time.process_time())

    def step_seconds(self, begun: float) -> float:
        """The mean of all steps but each client's first, which includes set-up; where each took one, of all."""
        gaps = [later - sooner for ends in self.clients for sooner, later in pairwise(ends)]
        return fmean(gaps) if gaps else (self.clients[-1][-1] - begun) / len(self.clients)


def measured(cell: Cell, places: Places) -> Mapping[str, Any]:
    """How large a task's data are."""
    data = loaded(cell["data"], places)
    sizes = {name: len(getattr(data, name).labels) for name in ("train", "validation", "test")}
    return {**sizes, "classes": data.classes, "shape": list(data.train.inputs.shape[1:])}


def noise(cell: Cell, _: Places) -> Mapping[str, Any]:
    """The σ of a cell."""
    return calibrated(cell.values)


def stepped(cell: Cell, places: Places) -> Mapping[str, Any]:
    """The first steps of all clients: seconds of one, on one core, and how far they moved the model.

    Where noise is all there is, the mean of the clients' updates is as long as is computed from σ alone.
    """
    torch.set_num_threads(1)
    held, clock = holdings(cell, places), _Clock()
    begun = time.process_time()
    run = run_in_process(cell, held, observe=clock)
    size, moved = _length(held, run.models[0])
    mechanism = cell["mechanism"]
    computed = noise_in_clip_norms(mechanism["noise_multiplier"], size, mechanism["batch_size"], cell["clients"])
    return {
        "size": size,
        "step_seconds": clock.step_seconds(begun),
        "length_in_clip_norms": moved / (cell["rate"] * cell["clip_norm"] * math.sqrt(cell["local_steps"])),
        "noise_in_clip_norms": computed,
    }


def _length(held: Holdings, after: Any) -> tuple[int, float]:
    """How many weights are trained, and how far the first round moved them."""
    model = held.trainee.model()
    before = Layout.of_model(model).flat(dict(model.named_parameters()))
    return trained_size(model), float(np.linalg.norm(after.astype(np.float64) - before))


_WORK: Final[dict[str, Callable[[Cell, Places], Mapping[str, Any]]]] = {
    "data": measured,
    "noise": noise,
    "steps": stepped,
}
