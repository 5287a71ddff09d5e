"""Which cells the study has. Each holds all that its result depends on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from lrdp.experiments.hospitals.cohorts import CohortSettings, for_training
from lrdp.experiments.hospitals.settings import HospitalsSettings, HospitalTask
from lrdp.experiments.study import Cell, Results
from lrdp.experiments.utility.mechanisms import records_held

NAME: Final = "hospitals"
Line = tuple[str, str, float]
"""A task, a method and an ε; 0 stands for no privacy."""
_CALIBRATED: Final = ("sampling", "accountant", "cap_deviations", "most_cut", "decimals")


@dataclass(frozen=True)
class HospitalsPlan:
    """The cells of each stage, named once those before are done."""

    settings: HospitalsSettings

    def sites(self, _: Results | None = None) -> list[Cell]:
        """How many patients each hospital has."""
        return [self.sites_cell(name) for name in self.settings.chosen]

    def sites_cell(self, task: str) -> Cell:
        """The cell of a task's hospitals."""
        return Cell(NAME, {"stage": "sites", "task": task, "gathering": self._gathering(self.settings.tasks[task])})

    def noise(self, results: Results) -> list[Cell]:
        """One σ for each method, ε and number of training records; tasks share them."""
        cells = (
            self.noise_cell(line, records)
            for line in self.lines()
            if line[2]
            for records in self._sizes(results, line[0])
        )
        return _once(cells)

    def noise_cell(self, line: Line, records: int) -> Cell:
        """The cell of the σ of a hospital with this many training records."""
        task, name, epsilon = line
        ward, method = self.settings.tasks[task], self.settings.methods[name]
        values = {"stage": "noise", "epsilon": epsilon, "delta": self.settings.delta}
        values |= {part: getattr(method, part) for part in _CALIBRATED}
        values |= {"steps": self.settings.rounds_of(task) * ward.local_steps, **self.public_sizes(line, records)}
        return Cell(NAME, values)

    def public_sizes(self, line: Line, records: int) -> dict[str, int]:
        """What a policy states. A neighbour with a record more or less would be trained on with the same noise."""
        task, name, _ = line
        spare = records_held(self.settings.methods[name].sampling, 0)
        batch = max(1, round(self.settings.tasks[task].batch_share * records))
        return {"dataset_size": records - spare, "batch_size": batch}

    def tuning(self, results: Results) -> list[Cell]:
        """Every rate for every method and seed, judged on a third of the training records, if there is a choice."""
        return [
            self._training(results, line, seed=seed, rate=rate, left_out=(), stage="tuning")
            for line in self.lines()
            if len(self.settings.rates_of(line[0])) > 1
            for seed in self.settings.seeds_of(line[0])
            for rate in self.settings.rates_of(line[0])
        ]

    def final(self, results: Results) -> list[Cell]:
        """The chosen rate on all training records, with all hospitals and without those of little memory."""
        return [
            self.final_cell(results, line, seed, left_out)
            for line in self.lines()
            for seed in self.settings.seeds_of(line[0])
            for left_out in ((), self.settings.tasks[line[0]].low_memory)
        ]

    def final_cell(self, results: Results, line: Line, seed: int, left_out: tuple[str, ...]) -> Cell:
        """The cell of a line and a seed."""
        rate = self.chosen_rate(results, line, seed)
        return self._training(results, line, seed=seed, rate=rate, left_out=left_out, stage="final")

    def chosen_rate(self, results: Results, line: Line, seed: int) -> float:
        """The best on validation records, of equals the smallest."""
        task, method, epsilon = line
        found = results.where(stage="tuning", task=task, method=method, epsilon=epsilon, seed=seed)
        scores = {cell["rate"]: result["overall"] or 0.0 for cell, result in found}
        return max(sorted(self.settings.rates_of(task)), key=lambda rate: scores.get(rate, 0.0))

    def machines(self, _: Results | None = None) -> list[Cell]:
        """Each way without a limit, to be measured, and at each limit; none where no limit is given."""
        given = self.settings.machines
        ward = self.settings.tasks[given.task]
        shared = {
            "gathering": self._gathering(ward),
            "hidden": list(self.settings.models[ward.model].hidden),
            "batch_size": given.batch_size,
            "steps": given.steps,
        }
        return [
            Cell(NAME, {"stage": "machines", "name": name, "limit_mb": limit, "way": asdict(way), **shared})
            for name, way in given.ways.items()
            for limit in ((0, *given.limits_mb) if given.limits_mb else ())
        ]

    def lines(self) -> Iterator[Line]:
        """All that are run."""
        for task in self.settings.chosen:
            for method, epsilon in self.settings.lines(task):
                yield task, method, epsilon

    def _gathering(self, ward: HospitalTask) -> dict[str, Any]:
        """As JSON has it, so that whatever is changed in a source is run again."""
        source = self.settings.sources[ward.source]
        found = asdict(CohortSettings(source=source, site=ward.site, group=ward.group, least=ward.least))
        plain: dict[str, Any] = json.loads(json.dumps(found))
        return plain

    def _sizes(self, results: Results, task: str) -> set[int]:
        """Of training records: of all of them, and of those that are left while rates are tried."""
        all_of_them = {for_training(count) for count in results.of(self.sites_cell(task))["patients"].values()}
        return all_of_them | {for_training(count) for count in all_of_them}

    def _training(
        self, results: Results, line: Line, *, seed: int, rate: float, left_out: tuple[str, ...], stage: str
    ) -> Cell:
        task, name, epsilon = line
        ward, method = self.settings.tasks[task], self.settings.methods[name]
        values = {
            "stage": stage,
            "task": task,
            "method": name,
            "epsilon": epsilon,
            "seed": seed,
            "rate": rate,
            "left_out": list(left_out),
            "low_memory": list(ward.low_memory),
            "engine": method.engine,
            "private": method.private,
            "clip_norm": self.settings.clip_norm,
            "rounds": self.settings.rounds_of(task),
            "local_steps": ward.local_steps,
            "common_normaliser": ward.common_normaliser,
            "hidden": list(self.settings.models[ward.model].hidden),
            "gathering": self._gathering(ward),
            "mechanisms": {str(size): self._mechanism(results, line, size) for size in self._sizes(results, task)},
        }
        return Cell(NAME, values)

    def _mechanism(self, results: Results, line: Line, records: int) -> dict[str, Any]:
        method = self.settings.methods[line[1]]
        sizes = {**self.public_sizes(line, records), "sampling": method.sampling}
        if not method.private:
            return {**sizes, "noise_multiplier": 0.0}
        noise = results.of(self.noise_cell(line, records))["noise_multiplier"]
        return {**sizes, "cap_deviations": method.cap_deviations, "noise_multiplier": noise}


def _once(cells: Iterable[Cell]) -> list[Cell]:
    return list({cell.key: cell for cell in cells}.values())
