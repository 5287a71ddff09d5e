"""Which cells the study has. Each holds all that its result depends on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from lrdp.experiments.sensitivity.settings import Federal, SensitivitySettings
from lrdp.experiments.study import Cell, Results
from lrdp.experiments.utility.tuning import best_rate

NAME: Final = "sensitivity"
Line = tuple[str, str, float]
"""A task, a method and an ε."""
_CALIBRATED: Final = ("sampling", "accountant", "cap_deviations", "most_cut", "decimals")


@dataclass(frozen=True)
class SensitivityPlan:
    """The cells of each stage, named once those before are done."""

    settings: SensitivitySettings

    def data(self, _: Results | None = None) -> list[Cell]:
        """How large each data set is."""
        return [self.data_cell(name) for name in self.settings.chosen]

    def data_cell(self, task: str) -> Cell:
        """The cell of a task's data."""
        return Cell(NAME, {"stage": "data", "task": task, "data": dict(self.settings.tasks[task].data)})

    def noise(self, results: Results) -> list[Cell]:
        """One σ for each line and setting; many share theirs. Then those of the crowd."""
        cells = [self.noise_cell(results, line, each) for line in self.lines() for each in self.settings.settings()]
        cells += [self._crowd_noise(method) for method in self.settings.methods]
        return list({cell.key: cell for cell in cells}.values())

    def noise_cell(self, results: Results, line: Line, setting: Federal) -> Cell:
        """σ for a client that trains in every round: how often it will really come is not known beforehand."""
        task, method, epsilon = line
        share = results.of(self.data_cell(task))["train"] // setting.clients
        steps = setting.rounds * setting.local_steps
        return self._noise(method, epsilon, steps, {"dataset_size": share - 1, "batch_size": setting.batch_size})

    def tuning(self, results: Results) -> list[Cell]:
        """Every rate for every method and ε at the base, judged on validation data with seeds of its own."""
        return [
            self._training(results, line, self.settings.base, rate=rate, seed=seed, tested=False)
            for line in self.lines()
            for rate in self._rates(line[0])
            for seed in self.settings.tuning_seeds
        ]

    def final(self, results: Results) -> list[Cell]:
        """All settings with all seeds, at the rate that was chosen at the base."""
        return [
            self.final_cell(results, line, setting, seed)
            for line in self.lines()
            for setting in self.settings.settings()
            for seed in self.settings.seeds
        ]

    def final_cell(self, results: Results, line: Line, setting: Federal, seed: int) -> Cell:
        """The cell of a line, a setting and a seed."""
        return self._training(results, line, setting, rate=self.rate(results, line), seed=seed, tested=True)

    def rate(self, results: Results, line: Line) -> float:
        """The one that did best at the base on validation data."""
        task, method, epsilon = line
        return best_rate(results.where(stage="tuning", task=task, method=method, epsilon=epsilon), self._rates(task))

    def crowd(self, results: Results) -> list[Cell]:
        """Who takes part how often, by pattern and method."""
        return [
            self.crowd_cell(results, pattern, name)
            for pattern in self.settings.crowd.patterns
            for name in self.settings.methods
        ]

    def crowd_cell(self, results: Results, pattern: str, method: str) -> Cell:
        """The cell of a pattern and a method."""
        crowd, parts = self.settings.crowd, self.settings.methods[method]
        noise = results.of(self._crowd_noise(method))["noise_multiplier"]
        mechanism = {
            "sampling": parts.sampling,
            "cap_deviations": parts.cap_deviations,
            "dataset_size": crowd.dataset_size,
            "batch_size": crowd.batch_size,
            "noise_multiplier": noise,
        }
        values: dict[str, Any] = {"stage": "crowd", "pattern": pattern, "method": method}
        values |= {"accountant": parts.accountant}
        values |= {name: getattr(crowd, name) for name in ("clients", "rounds", "local_steps", "seed")}
        values |= {"delta": self.settings.delta, "mechanism": mechanism, "takes_part": asdict(crowd.patterns[pattern])}
        return Cell(NAME, values)

    def ledgers(self, _: Results | None = None) -> list[Cell]:
        """The small federation."""
        return [Cell(NAME, {"stage": "ledgers", **asdict(self.settings.ledgers)})]

    def lines(self) -> Iterator[Line]:
        """All that are run."""
        for task in self.settings.chosen:
            for method in self.settings.methods:
                for epsilon in self.settings.epsilons:
                    yield task, method, epsilon

    def _rates(self, task: str) -> tuple[float, ...]:
        return self.settings.tasks[task].rates[: self.settings.rates or None]

    def _crowd_noise(self, method: str) -> Cell:
        crowd = self.settings.crowd
        sizes = {"dataset_size": crowd.dataset_size, "batch_size": crowd.batch_size}
        return self._noise(method, crowd.epsilon, crowd.rounds * crowd.local_steps, sizes)

    def _noise(self, method: str, epsilon: float, steps: int, sizes: dict[str, int]) -> Cell:
        values = {"stage": "noise", "epsilon": epsilon, "delta": self.settings.delta, "steps": steps, **sizes}
        parts = self.settings.methods[method]
        return Cell(NAME, values | {name: getattr(parts, name) for name in _CALIBRATED})

    def _training(
        self, results: Results, line: Line, setting: Federal, *, rate: float, seed: int, tested: bool
    ) -> Cell:
        task, name, epsilon = line
        subject, method = self.settings.tasks[task], self.settings.methods[name]
        noise = self.noise_cell(results, line, setting)
        mechanism: dict[str, Any] = {
            "sampling": method.sampling,
            "cap_deviations": method.cap_deviations,
            "dataset_size": noise["dataset_size"],
            "batch_size": noise["batch_size"],
            "noise_multiplier": results.of(noise)["noise_multiplier"],
        }
        values = {
            "stage": "final" if tested else "tuning",
            "task": task,
            "method": name,
            "epsilon": epsilon,
            "seed": seed,
            "rate": rate,
            "tested": tested,
            "private": True,
            "engine": method.engine,
            "accountant": method.accountant,
            "micro_batch": method.micro_batch,
            "clip_norm": self.settings.clip_norm,
            "delta": self.settings.delta,
            "data": dict(subject.data),
            "model": dict(self.settings.models[subject.model]),
            "mechanism": mechanism,
        }
        return Cell(NAME, {**values, **asdict(setting)})
