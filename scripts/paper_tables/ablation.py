"""What each helper does at equal ε, a line for each and a column for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, Final

from paper_tables import utility
from paper_tables.filling import table

TASKS: Final = {
    "heart disease, 4 hospitals": "heart",
    "TCGA-BRCA, 6 regions": "TCGA",
    "MNIST, pixels": "MNIST, pixels",
    "MNIST, scattering features": "MNIST, features",
    "EMNIST, scattering features": "EMNIST",
    "CIFAR-10, EfficientNet's features": "CIFAR-10",
    "SST-2, MiniLM's features": "SST-2",
}
PLAIN: Final = "plain"
AS_PLAIN: Final = "mean of the last fifth"
"""Trained as the plain line is, whose own time holds the reading of the data: it comes first."""
IN_PLACE: Final = "in place of pixels"
ON_PIXELS: Final = {"MNIST, pixels, 4 views": "MNIST, pixels"}
"""Tasks that are another one with something changed: their gap is to that one's plain line."""
Row = Mapping[str, Any]


def gaps(rows: Sequence[Row], epsilon: float) -> str:
    """Points gained over the plain line, bold where the paired interval has no 0 in it."""
    here = [row for row in rows if row["epsilon"] == epsilon]
    known = {(_column(row), row["line"]): row for row in here}
    costs = {row["line"]: row["cost"] for row in here}
    lines = [
        [line, *(_cell(known.get((task, line))) for task in TASKS), cost, _time(known, line)]
        for line, cost in sorted(costs.items(), key=lambda item: item[0] != PLAIN)
    ]
    return table(["changed", *TASKS.values(), "kept or computed more", "time, of plain"], lines)


def _time(known: Mapping[tuple[str, str], Row], line: str) -> str:
    """Of a run in closed form, over a plain one's: the median of the tasks."""
    if line.endswith(IN_PLACE):
        return "–"  # that row's time holds the reading of the data as well
    found = {task: row["seconds"] for (task, each), row in known.items() if each == line and line != PLAIN}
    return (
        f"{median(seconds / known[task, AS_PLAIN]['seconds'] for task, seconds in found.items()):.1f}" if found else "1"
    )


def _column(row: Row) -> str:
    if row["line"].endswith(IN_PLACE):
        return "MNIST, pixels"
    return ON_PIXELS.get(row["task"], str(row["task"]))


def _cell(row: Row | None) -> str:
    if row is None:
        return "–"
    edge = "*" if row["rate_at_edge"] else ""
    if row["line"] == PLAIN:
        return f"{row['mean']:.2f}{edge}"
    text = f"{row['gap']:+.2f} ({row['low']:+.2f} … {row['high']:+.2f}){edge}"
    return f"**{text}**" if row["low"] > 0 or row["high"] < 0 else text


def independent(found: Mapping[str, Any]) -> str:
    """Two methods by seeds that share nothing."""
    lines = []
    for name, gap in found["gaps"].items():
        ours, theirs = (found["scores"][f"{name} {method}"] for method in ("truncated", "poisson-prv"))
        task, epsilon = name.split()
        means = [f"{sum(each) / len(each):.2f}" for each in (theirs, ours)]
        interval = f"{gap['low']:+.3f} … {gap['high']:+.3f}"
        lines.append([utility.TASKS[task], epsilon, str(len(ours)), *means, f"{gap['gap']:+.3f}", interval])
    heads = ["task", "ε", "seeds of each", "Poisson, Opacus's PRV", "truncated Poisson, PLD", "difference", "95%"]
    return table(heads, lines)


def networks(rows: Sequence[Row]) -> str:
    """Standardised weights beside plain ones."""
    heads = ["weights", "ε", "accuracy", "− plain", "paired 95%", "rate", "seconds a run", "live MB, planned"]
    lines = [
        [
            row["line"],
            f"{row['epsilon']:g}",
            f"{row['mean']:.2f}",
            f"{row['gap']:+.2f}",
            f"{row['low']:+.2f} … {row['high']:+.2f}",
            f"{row['rate']:g}",
            f"{row['seconds']:.1f}",
            f"{row['peak_mb']:.0f}",
        ]
        for row in rows
    ]
    return table(heads, lines)
