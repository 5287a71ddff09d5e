"""A learning rate to start from, without a trial on private data: what the evaluation's tuned rates have in common.

Noise moves a weight by a·σC/(B√K)·√T over a training (rate a, K clients, T steps), and the score of a record of length
|x| by |x| times that: κ. Each trial of docs/results/paper/utility.json says how good a κ was. The rule takes one κ for
all tasks of a kind; what it loses on a task is given for a κ that was chosen on the *other* tasks of its kind alone.
Run: python benchmarks/starting_values.py
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

KINDS = {"many classes": ("mnist", "emnist", "cifar10"), "two classes": ("sst2", "qnli", "qqp")}
RECORD = Path(__file__).parents[1] / "docs" / "results" / "paper" / "utility.json"


@dataclass(frozen=True)
class Trials:
    """One task, method and ε: every κ that was tried, in rising order, and the validation accuracy in percent."""

    task: str
    kappas: Sequence[float]
    scores: Sequence[float]

    @property
    def best(self) -> float:
        """The κ of the best trial."""
        return self.kappas[int(np.argmax(self.scores))]

    def lost(self, kappa: float) -> float:
        """Points below the best trial, between two trials by a straight line over log κ; beyond them as at the end."""
        found = np.interp(math.log(kappa), np.log(self.kappas), self.scores)
        return max(self.scores) - float(found)


def trials(cells: Sequence[Mapping[str, Any]]) -> list[Trials]:
    """Of every private line that was tuned."""
    found: dict[tuple[str, str, float], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in cells:
        cell, mechanism = each["cell"], each["cell"].get("mechanism", {})
        if cell["stage"] == "tuning" and cell["private"]:
            steps = cell["rounds"] * cell["local_steps"]
            noise = mechanism["noise_multiplier"] * cell["clip_norm"] / mechanism["batch_size"]
            kappa = cell["rate"] * noise * math.sqrt(steps / cell["clients"])
            line = found[cell["task"], cell["method"], cell["epsilon"]]
            line[kappa].append(100 * each["result"]["validation"])
    return [
        Trials(task, sorted(line), [fmean(line[kappa]) for kappa in sorted(line)])
        for (task, _, _), line in found.items()
    ]


def middle(kappas: Sequence[float]) -> tuple[float, float]:
    """The geometric mean, and the factor that is one standard deviation."""
    logs = [math.log(kappa) for kappa in kappas]
    return math.exp(fmean(logs)), math.exp(stdev(logs))


def shared(lines: Sequence[Trials]) -> tuple[float, float]:
    """The middle of the tasks' own middles, each task counting once, and one deviation between tasks as a factor."""
    own = [middle([line.best for line in lines if line.task == task])[0] for task in {line.task for line in lines}]
    return middle(own)


def main() -> None:
    """Print the table."""
    lines = trials(json.loads(RECORD.read_text(encoding="utf-8"))["cells"])
    print("| task | lines | best κ (×/÷ one deviation) | κ of the other tasks of its kind | points lost, mean | most |")
    print("|---|---|---|---|---|---|")
    for kind, tasks in KINDS.items():
        for task in tasks:
            own = [line for line in lines if line.task == task]
            kappa, factor = middle([line.best for line in own])
            elsewhere, _ = shared([line for line in lines if line.task in tasks and line.task != task])
            lost = [line.lost(elsewhere) for line in own]
            figures = f"{kappa:.2f} (×/÷ {factor:.2f}) | {elsewhere:.2f} | {fmean(lost):.2f} | {max(lost):.2f}"
            print(f"| {task}, {kind} | {len(own)} | {figures} |")
    for kind, tasks in KINDS.items():
        chosen = [line for line in lines if line.task in tasks]
        kappa, factor = shared(chosen)
        # By the two digits that the rule has, and everybody takes.
        lost = [line.lost(round(kappa, 2)) for line in chosen]
        figures = f"{fmean(lost):.2f} points lost on average, {max(lost):.2f} at most"
        print(f"{kind}: κ = {kappa:.2f} (×/÷ {factor:.2f}), {figures}")


if __name__ == "__main__":
    main()
