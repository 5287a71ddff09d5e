"""Accuracy against ε, number by number next to the paper's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from paper_tables.filling import table

TASKS: Final = {
    "mnist": "MNIST",
    "emnist": "EMNIST",
    "cifar10": "CIFAR-10",
    "sst2": "SST-2",
    "qnli": "QNLI",
    "qqp": "QQP",
}
METHODS: Final = {
    "none": "no privacy",
    "poisson-rdp": "Poisson, RDP",
    "poisson-prv": "Poisson, PRV",
    "l-rdp": "L-RDP",
    "fixed-pld": "fixed, PLD",
    "truncated": "truncated",
    "automatic": "automatic clipping",
}
SAME_NOISE: Final = ("none", "automatic")  # none of their own: automatic clipping has the truncated one's
PUBLISHED: Final = {"poisson-rdp": "RDP", "poisson-prv": "PRV", "l-rdp": "L-RDP"}
Row = Mapping[str, Any]


class Findings:
    """The study's rows, and what the paper printed."""

    def __init__(self, rows: Sequence[Row], paper: Mapping[str, Any]) -> None:
        self.rows, self.paper = rows, paper

    def row(self, task: str, method: str, epsilon: float) -> Row | None:
        """The row of a line, where it was run."""
        wanted = {"task": task, "method": method, "epsilon": epsilon}
        return next((row for row in self.rows if all(row[name] == value for name, value in wanted.items())), None)

    def published(self, task: str, method: str, epsilon: float) -> float:
        """In percent, as plotted."""
        return 100 * float(self.paper[task][method]["plotted"][self.paper["epsilons"].index(epsilon)])


def accuracies(found: Findings) -> str:
    """Every accuracy with its standard deviation over seeds, and the paper's."""
    heads = ["task", "ε", *METHODS.values(), *(f"paper: {name}" for name in PUBLISHED.values())]
    return table(heads, [_accuracies(found, task, epsilon) for task in TASKS for epsilon in found.paper["epsilons"]])


def _accuracies(found: Findings, task: str, epsilon: float) -> list[str]:
    own = [found.row(task, method, epsilon) for method in METHODS]
    shown = ["–" if row is None else f"{row['accuracy']:.2f} ± {row['deviation'] or 0:.2f}" for row in own]
    return [TASKS[task], str(epsilon), *shown, *(f"{found.published(task, each, epsilon):.1f}" for each in PUBLISHED)]


def gaps(found: Findings) -> str:
    """What a method loses against Poisson with PRV, with both intervals, the test set's error and the paper's gap."""
    heads = ["task", "ε", "L-RDP − PRV", "paired", "independent", "paper", "truncated − PRV", "paired"]
    heads += ["automatic clipping − PRV", "paired", "independent", "test set ±"]
    return table(heads, [_gaps(found, task, epsilon) for task in TASKS for epsilon in found.paper["epsilons"]])


def _gaps(found: Findings, task: str, epsilon: float) -> list[str]:
    paper = found.published(task, "l-rdp", epsilon) - found.published(task, "poisson-prv", epsilon)
    first, second, third = (found.row(task, method, epsilon) for method in ("l-rdp", "truncated", "automatic"))
    return [
        TASKS[task],
        str(epsilon),
        *_gap(first, "paired", "independent"),
        f"{paper:+.2f}",
        *_gap(second, "paired"),
        *_gap(third, "paired", "independent"),
        "–" if first is None else f"{first['test_set_error']:.2f}",
    ]


def _gap(row: Row | None, *intervals: str) -> list[str]:
    if row is None:
        return ["–"] * (1 + len(intervals))
    return [f"{row['gap']:+.2f}", *(f"{row[f'{name}_low']:+.2f} … {row[f'{name}_high']:+.2f}" for name in intervals)]


def noise(found: Findings) -> str:
    """σ of each method, and the truncated one's over PRV's."""
    methods = [name for name in METHODS if name not in SAME_NOISE]
    heads = ["task", "ε", *(METHODS[name] for name in methods), "truncated / PRV", "L-RDP / PRV"]
    return table(
        heads, [_noise(found, methods, task, epsilon) for task in TASKS for epsilon in found.paper["epsilons"]]
    )


def _noise(found: Findings, methods: Sequence[str], task: str, epsilon: float) -> list[str]:
    rows = {name: found.row(task, name, epsilon) for name in methods}
    sigma = {name: row["noise_multiplier"] for name, row in rows.items() if row is not None}
    if len(sigma) < len(methods):
        return [TASKS[task], str(epsilon), *["–"] * (len(methods) + 2)]
    ratios = (sigma["truncated"] / sigma["poisson-prv"], sigma["l-rdp"] / sigma["poisson-prv"])
    return [
        TASKS[task],
        str(epsilon),
        *(f"{value:.4f}" for value in sigma.values()),
        *(f"{each:.5f}" for each in ratios),
    ]


def controls(found: Findings) -> str:
    """Opacus itself next to our engine with Opacus's σ."""
    heads = ["task", "ε", "accountant", "our engine", "Opacus itself", "difference", "test set ±"]
    lines = []
    for row in found.rows:
        if row["method"].startswith("opacus-"):
            kind = row["method"].removeprefix("opacus-")
            ours = found.row(row["task"], f"poisson-{kind}", row["epsilon"])
            if ours is not None:
                scores = (ours["accuracy"], row["accuracy"])
                shown = [f"{scores[0]:.2f}", f"{scores[1]:.2f}", f"{scores[1] - scores[0]:+.2f}"]
                lines.append(
                    [TASKS[row["task"]], f"{row['epsilon']:g}", kind.upper(), *shown, f"{row['test_set_error']:.2f}"]
                )
    return table(heads, lines)


def automatic(rows: Sequence[Row]) -> str:
    """Automatic clipping next to Poisson with PRV of the same run."""
    heads = ["task", "ε", "Poisson, Opacus's PRV", "automatic clipping", "difference"]
    heads += ["paired 95%", "independent 95%", "rate"]
    found = Findings(rows, {})
    return table(heads, [_automatic(found, row) for row in rows if row["method"] == "automatic"])


def _automatic(found: Findings, row: Row) -> list[str]:
    beside = found.row(row["task"], "poisson-prv", row["epsilon"])
    scores = [f"{each['accuracy']:.2f} ± {each['deviation']:.2f}" for each in (beside, row) if each is not None]
    rate = f"{row['rate']:g}{'*' if row['rate_at_edge'] else ''}"
    return [TASKS[row["task"]], f"{row['epsilon']:g}", *scores, *_gap(row, "paired", "independent"), rate]


TABLES: Final[dict[str, Callable[[Findings], str]]] = {
    "accuracies": accuracies,
    "gaps": gaps,
    "noise": noise,
    "controls": controls,
}
