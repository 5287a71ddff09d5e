"""One training among hospitals, each with its own size, batch and noise; and how well each of them is served."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean
from typing import Any

import torch

from lrdp.experiments.hospitals.cohorts import Cohort, CohortSettings, cohort
from lrdp.experiments.hospitals.columns import Floats
from lrdp.experiments.hospitals.outcomes import OutcomeQuestion, network, question
from lrdp.experiments.study import Cell, Places, decoded
from lrdp.experiments.utility.engines import ENGINES, Desk, constants
from lrdp.experiments.utility.mechanisms import part, step_of
from lrdp.experiments.utility.training import run_desks, tail_average
from lrdp.federation.wire.layout import Layout
from lrdp.training import Task, check_gradients, check_records, memory_plan


def patients(gathering: Mapping[str, Any], places: Places) -> Cohort:
    """Of a cell, kept for the next."""
    return _patients(json.dumps(gathering, sort_keys=True), places)


@lru_cache(maxsize=2)
def _patients(gathering: str, places: Places) -> Cohort:
    return cohort(decoded(CohortSettings, json.loads(gathering), "gathering"), places.data)


def sites(cell: Cell, places: Places) -> dict[str, Any]:
    """Patients by hospital, and by group with how many had the outcome; counts of data that are public here."""
    found = patients(cell["gathering"], places)
    groups = {name: found.groups == name for name in found.group_names}
    return {
        "patients": {name: int((found.sites == name).sum()) for name in found.site_names},
        "groups": {name: int(rows.sum()) for name, rows in groups.items()},
        "members": {name: sorted({str(site) for site in found.sites[rows]}) for name, rows in groups.items()},
        "outcomes": {name: int(found.happened[rows].sum()) for name, rows in groups.items()},
        "columns": int(found.inputs.shape[1]),
    }


def trained(cell: Cell, places: Places) -> dict[str, Any]:
    """The metric of each group on its own records, trained with all hospitals or without some."""
    begun = time.monotonic()
    torch.set_num_threads(1)  # sums over several threads are rounded differently
    training, judging = patients(cell["gathering"], places).parted(cell["seed"])
    if cell["stage"] == "tuning":
        training, judging = training.parted(cell["seed"])
    numbers = {name: number for number, name in enumerate(sorted(training.site_names))}
    team = _Team(cell, training.without(cell["left_out"]), _asked(cell), numbers)
    scores = team.asked.scores(team.run(), judging)
    found = {"step_bytes": team.step_bytes(), **judged(team.asked, judging, scores, cell["low_memory"])}
    return {**found, "seconds": round(time.monotonic() - begun, 2)}


def _asked(cell: Cell) -> OutcomeQuestion:
    return question(decoded(CohortSettings, cell["gathering"], "gathering").source.outcome)


def judged(asked: OutcomeQuestion, judging: Cohort, scores: Floats, low_memory: list[str]) -> dict[str, Any]:
    """The metric of all together, of each group, of the groups of little memory together and of the others."""

    def measured(rows: Any) -> float | None:
        value = asked.measured(judging.at(rows), scores[rows])
        return None if math.isnan(value) else value

    low = ~judging.groups_outside(low_memory)
    return {
        "overall": measured(slice(None)),
        "low": measured(low),
        "others": measured(~low),
        "groups": {name: measured(judging.groups == name) for name in judging.group_names},
    }


@dataclass(frozen=True)
class _Team:
    """Hospitals that train together; each keeps its number, and so its randomness, whoever else is there."""

    cell: Cell
    training: Cohort
    asked: OutcomeQuestion
    numbers: Mapping[str, int]

    def run(self) -> torch.nn.Module:
        """The average of the last models: a function of what is public anyway."""
        desks, model = self._desks(), self._network()
        run = run_desks(desks, part(ENGINES, self.cell["engine"], "engine"), self.cell["rounds"])
        Layout.of_model(model).write(tail_average(run.models), model)
        return model

    def step_bytes(self) -> dict[str, int]:
        """What a step takes in tensors, by the hospital's training records; nothing without privacy."""
        if not self.cell["private"]:
            return {}
        desks = {str(len(desk.task.dataset)): desk for desk in self._desks()}
        return {size: memory_plan(step_of(desk.mechanism), desk.task).peak_bytes for size, desk in desks.items()}

    def _network(self) -> torch.nn.Module:
        columns = self.asked.columns(int(self.training.inputs.shape[1]))
        return network(columns, tuple(self.cell["hidden"]), self.asked.outputs)

    def _desks(self) -> list[Desk]:
        model, names = self._network(), sorted(self.training.site_names)
        records = [check_records(self.asked.records(self.training.of(name)), self.asked.loss) for name in names]
        mechanisms = [self.cell["mechanisms"][str(len(each))] for each in records]
        mean_batch = fmean(mechanism["batch_size"] for mechanism in mechanisms)
        desks, checked = list[Desk](), None
        for name, own, mechanism in zip(names, records, mechanisms, strict=True):
            share = mechanism["batch_size"] / mean_batch if self.cell["common_normaliser"] else 1.0
            rate = self.cell["rate"] * share
            task = Task(
                model=model,
                dataset=own,
                loss=self.asked.loss,
                constants=constants(rate, self.cell["clip_norm"]),
                checked=checked,
            )
            if self.cell["private"]:  # once for all: what is checked is the code, not weights or records
                checked = checked or check_gradients(step_of(mechanism), task)
                task = replace(task, checked=checked)
            desks.append(
                Desk(
                    task=task,
                    mechanism=mechanism,
                    rate=rate,
                    steps=self.cell["local_steps"],
                    seed=self.cell["seed"],
                    client=self.numbers[name],
                )
            )
        return desks
