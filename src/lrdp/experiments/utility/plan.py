"""Which cells the study has. Each holds all that its result depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lrdp.experiments.study import Cell, Results
from lrdp.experiments.utility.mechanisms import step_of
from lrdp.experiments.utility.settings import Method, UtilitySettings, UtilityTask
from lrdp.experiments.utility.tuning import best_rate

NAME: Final = "utility"


@dataclass(frozen=True)
class UtilityPlan:
    """The cells of each stage, named once those before are done."""

    settings: UtilitySettings

    def data(self, _: Results | None = None) -> list[Cell]:
        """How large each data set is: its features are computed here, if they are not there yet."""
        return [self.data_cell(name) for name in self.settings.chosen_tasks]

    def data_cell(self, task: str) -> Cell:
        """The cell of a task's data."""
        subject = self.settings.tasks[task]
        return Cell(NAME, {"stage": "data", "task": task, "data": dict(subject.data)})

    def noise(self, results: Results) -> list[Cell]:
        """One σ for each method, task and ε; methods with the same parts share it."""
        private = ((task, method, epsilon) for task, method, epsilon in self._lines() if epsilon)
        return _once(self.noise_cell(results, *line) for line in private)

    def noise_cell(self, results: Results, task: str, method: str, epsilon: float) -> Cell:
        """The cell of a line's σ."""
        return self.noise_for(method, epsilon, {**self.sizes(results, task), "steps": self.planned(task)})

    def noise_for(self, method: str, epsilon: float, whole: Mapping[str, int]) -> Cell:
        """The cell of the σ for a whole training, given by its ``dataset_size``, ``batch_size`` and ``steps``."""
        parts = self.settings.methods[method]
        values = {"stage": "noise", **whole, "epsilon": epsilon, "delta": self.settings.delta}
        values |= {name: getattr(parts, name) for name in ("sampling", "accountant", "cap_deviations", "most_cut")}
        return Cell(NAME, {**values, "decimals": parts.decimals})

    def tuning(self, results: Results) -> list[Cell]:
        """Every rate for every method, judged on validation data with seeds of its own; a single one needs no trial."""
        return [
            self._training(results, line, rate=rate, seed=seed, tested=False)
            for line in self._lines()
            if self._tuned_by(line) == line[1] and self._tuned_at(line) == line[2]
            if len(rates := self.settings.rates_of(line[0])) > 1
            for rate in rates
            for seed in self.settings.tuning_seeds
        ]

    def _tuned_at(self, line: tuple[str, str, float]) -> float:
        """The ε whose rate a line takes: its own, unless the task names one."""
        task, method, epsilon = line
        named = self.settings.tasks[task].tuned_at
        return named if named in [each for name, _, each in self.lines(task) if name == method] else epsilon

    def _tuned_by(self, line: tuple[str, str, float]) -> str:
        """The method whose rates a line takes: its own, unless it names another that is also run."""
        other = self.settings.methods[line[1]].rates_of
        return other if other in self.settings.methods_of(self.settings.tasks[line[0]]) else line[1]

    def final(self, results: Results) -> list[Cell]:
        """The chosen rate with all seeds, and only here the test set."""
        return [
            self.final_cell(results, line, seed)
            for line in self._lines()
            for seed in self.settings.seeds_of(self.settings.methods[line[1]])
        ]

    def final_cell(self, results: Results, line: tuple[str, str, float], seed: int) -> Cell:
        """The cell of a line and a seed."""
        return self._training(results, line, rate=self.chosen_rate(results, line), seed=seed, tested=True)

    def stepped_cell(self, results: Results, line: tuple[str, str, float], noise_multiplier: float) -> Cell:
        """The first steps alone, with the noise that is given: nothing is chosen, and nothing is judged."""
        rate = min(self.settings.rates_of(line[0]))
        mechanism = self._parts(results, line, noise_multiplier)
        cell = self._cell(line, mechanism, rate=rate, seed=self.settings.seeds[0], tested=False)
        return Cell(NAME, {**cell.values, "stage": "steps"})

    def verified(self, results: Results) -> list[Cell]:
        """One cell of each task once more, on Ray and with ledgers, and what it must be equal to."""
        if not self.settings.ray:
            return []
        lines = [(task, self.settings.ledgered, self.settings.ledgered_epsilon) for task in self.settings.chosen_tasks]
        cells = [self.final_cell(results, line, self.settings.seeds[0]) for line in lines]
        return [
            Cell(NAME, {**cell.values, "stage": "verified", "expected": results.of(cell)["models_sha256"]})
            for cell in cells
        ]

    def chosen_rate(self, results: Results, line: tuple[str, str, float]) -> float:
        """The one that did best on validation data."""
        task, method = line[0], self._tuned_by(line)
        tried = results.where(stage="tuning", task=task, method=method, epsilon=self._tuned_at(line))
        return best_rate(tried, self.settings.rates_of(task))

    def lines(self, task: str) -> Iterator[tuple[str, Method, float]]:
        """A task's methods, each with the ε at which it is run; 0 stands for no privacy."""
        subject = self.settings.tasks[task]
        among = {0.0, *self.settings.shown_epsilons(subject)}
        for name, method in self.settings.methods_of(subject).items():
            yield from ((name, method, epsilon) for epsilon in self.settings.epsilons_of(method) if epsilon in among)

    def _lines(self) -> Iterator[tuple[str, str, float]]:
        for task in self.settings.chosen_tasks:
            for method, _, epsilon in self.lines(task):
                yield task, method, epsilon

    def planned(self, task: str) -> int:
        """Local steps of the whole training."""
        subject = self.settings.tasks[task]
        return self.settings.rounds_of(subject) * subject.local_steps

    def sizes(self, results: Results, task: str) -> dict[str, int]:
        """The public size and the batch, the same for every method; see ``records_held``."""
        share = results.of(self.data_cell(task))["train"] // self.settings.clients
        return {"dataset_size": share - 1, "batch_size": self.settings.tasks[task].batch_size}

    def _training(
        self, results: Results, line: tuple[str, str, float], *, rate: float, seed: int, tested: bool
    ) -> Cell:
        return self._cell(line, self._mechanism(results, line), rate=rate, seed=seed, tested=tested)

    def _cell(
        self, line: tuple[str, str, float], mechanism: Mapping[str, Any], *, rate: float, seed: int, tested: bool
    ) -> Cell:
        task, name, epsilon = line
        subject, method = self.settings.tasks[task], self.settings.methods[name]
        values = {
            "stage": "final" if tested else "tuning",
            "task": task,
            "method": name,
            "epsilon": epsilon,
            "seed": seed,
            "rate": rate,
            "tested": tested,
            "private": method.private,
            "engine": method.engine,
            "micro_batch": method.micro_batch if tested else 0,  # it changes only the last bits, and the time
            "clients": self.settings.clients,
            "clip_norm": self.settings.clip_norm,
            "delta": self.settings.delta,
            "data": dict(subject.data),
            "model": dict(self.settings.model_of(subject)),
            "mechanism": dict(mechanism),
            **({"gamma": method.gamma} if method.gamma else {}),
        }
        return Cell(NAME, {**values, **self._length(subject)})

    def _mechanism(self, results: Results, line: tuple[str, str, float]) -> dict[str, Any]:
        if not self.settings.methods[line[1]].private:
            return {**self.sizes(results, line[0]), "sampling": self._sampling(line), "noise_multiplier": 0.0}
        return self._parts(results, line, results.of(self.noise_cell(results, *line))["noise_multiplier"])

    def _parts(self, results: Results, line: tuple[str, str, float], noise_multiplier: float) -> dict[str, Any]:
        sizes: dict[str, Any] = {**self.sizes(results, line[0]), "sampling": self._sampling(line)}
        caps = {"cap_deviations": self.settings.methods[line[1]].cap_deviations}
        return {**sizes, **caps, "noise_multiplier": noise_multiplier}

    def _sampling(self, line: tuple[str, str, float]) -> str:
        return self.settings.methods[line[1]].sampling

    def _length(self, subject: UtilityTask) -> dict[str, int]:
        """All rounds, or only as many of the first steps as are asked for."""
        rounds, local = self.settings.rounds_of(subject), subject.local_steps
        most = self.settings.steps
        if not most:
            return {"rounds": rounds, "local_steps": local, "planned_rounds": rounds}
        return {"rounds": min(rounds, max(1, most // local)), "local_steps": min(local, most), "planned_rounds": rounds}


def rows_of(values: Mapping[str, Any]) -> int | None:
    """Rows in memory in every step; None without privacy."""
    return step_of(values).rows if values["noise_multiplier"] else None


def _once(cells: Iterable[Cell]) -> list[Cell]:
    return list({cell.key: cell for cell in cells}.values())
