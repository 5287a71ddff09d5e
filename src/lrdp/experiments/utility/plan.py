"""Which cells the study has. Each holds all that its result depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lrdp.experiments.study import Cell, Results
from lrdp.experiments.utility.mechanisms import step_of
from lrdp.experiments.utility.settings import Method, Settings, Subject

NAME: Final = "utility"


@dataclass(frozen=True)
class Plan:
    """The cells of each stage, named once those before are done."""

    settings: Settings

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
        parts = self.settings.methods[method]
        values = {"stage": "noise", **self._sizes(results, task), "epsilon": epsilon, "delta": self.settings.delta}
        values |= {name: getattr(parts, name) for name in ("sampling", "accountant", "cap_deviations", "most_cut")}
        return Cell(NAME, {**values, "decimals": parts.decimals, "steps": self._planned(task)})

    def tuning(self, results: Results) -> list[Cell]:
        """Every rate for every method, judged on validation data with a seed of its own."""
        return [
            self._training(results, line, rate=rate, seed=self.settings.tuning_seed, tested=False)
            for line in self._lines()
            if not self.settings.methods[line[1]].rates_of
            for rate in self.settings.rates_of(self.settings.tasks[line[0]])
        ]

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
        """The best on validation data, of equals the smallest."""
        task, method, epsilon = line
        tuned = self.settings.methods[method].rates_of or method
        rates = self.settings.rates_of(self.settings.tasks[task])
        found = results.where(stage="tuning", task=task, method=tuned, epsilon=epsilon)
        scores = {cell["rate"]: result["validation"] for cell, result in found}
        return max(sorted(rates), key=lambda rate: scores[rate])

    def lines(self) -> Iterator[tuple[str, Method, float]]:
        """The methods, each with the ε at which it is run; 0 stands for no privacy."""
        for name, method in self.settings.chosen_methods.items():
            for epsilon in self.settings.epsilons_of(method):
                yield name, method, epsilon

    def _lines(self) -> Iterator[tuple[str, str, float]]:
        for task in self.settings.chosen_tasks:
            for method, _, epsilon in self.lines():
                yield task, method, epsilon

    def _planned(self, task: str) -> int:
        subject = self.settings.tasks[task]
        return self.settings.rounds_of(subject) * subject.local_steps

    def _sizes(self, results: Results, task: str) -> dict[str, int]:
        """The public size, the same for every method; see ``records_held``."""
        share = results.of(self.data_cell(task))["train"] // self.settings.clients
        return {"dataset_size": share - 1, "batch_size": self.settings.tasks[task].batch_size}

    def _training(
        self, results: Results, line: tuple[str, str, float], *, rate: float, seed: int, tested: bool
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
            "micro_batch": method.micro_batch if tested else 0,  # it changes the last bits alone, and the time
            "clients": self.settings.clients,
            "clip_norm": self.settings.clip_norm,
            "delta": self.settings.delta,
            "data": dict(subject.data),
            "model": dict(self.settings.model_of(subject)),
            "mechanism": self._mechanism(results, line),
        }
        return Cell(NAME, {**values, **self._length(subject)})

    def _mechanism(self, results: Results, line: tuple[str, str, float]) -> dict[str, Any]:
        task, name, _ = line
        method = self.settings.methods[name]
        sizes: dict[str, Any] = {**self._sizes(results, task), "sampling": method.sampling}
        if not method.private:
            return {**sizes, "noise_multiplier": 0.0}
        noise = results.of(self.noise_cell(results, *line))["noise_multiplier"]
        return {**sizes, "cap_deviations": method.cap_deviations, "noise_multiplier": noise}

    def _length(self, subject: Subject) -> dict[str, int]:
        """All rounds, or the first so many steps of them."""
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
