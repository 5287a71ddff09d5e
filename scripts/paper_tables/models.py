"""Models that are more than a linear head: what the paper's take, and how well smaller ones do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from paper_tables.filling import table

Row = Mapping[str, Any]
Rows = Sequence[Row]


def taken(rows: Rows) -> str:
    """Seconds of a step as measured, and hours of the paper's run."""
    heads = [
        "task",
        "weights trained",
        "batch",
        "steps measured",
        "seconds a step",
        "the paper's run",
        "hours on one core",
    ]
    first = {row["task"]: row for row in reversed(rows)}
    lines = [
        [
            task,
            f"{row['weights_trained']:,}",
            str(row["measured_batch_size"]),
            f"{row['measured_clients']} × {row['measured_steps']}",
            f"{row['step_seconds']:.2f}",
            f"{row['clients']} × {row['steps']:,} steps",
            f"{row['whole_hours']:.0f}",
        ]
        for task, row in sorted(first.items())
    ]
    return table(heads, lines)


def moved(rows: Rows) -> str:
    """How far the first steps moved the mean, next to how long its noise is computed to be."""
    first = {row["task"]: row for row in reversed(rows)}
    lines = [
        [
            task,
            row["measured_method"],
            f"{row['measured_length_in_clip_norms']:.3g}",
            f"{row['computed_length_in_clip_norms']:.3g}",
        ]
        for task, row in sorted(first.items())
    ]
    return table(["task", "method, at the first ε", "moved by, in clip norms", "noise alone, computed"], lines)


def trained(rows: Rows) -> str:
    """Accuracies on test sets, and gaps to truncated Poisson."""
    heads = ["task", "method", "ε", "σ", "rate", "accuracy", "− truncated", "paired", "test set ±"]
    lines = [
        [
            row["task"],
            row["method"],
            f"{row['epsilon']:g}" if row["noise_multiplier"] else "–",
            "–" if row["noise_multiplier"] is None else f"{row['noise_multiplier']:.3f}",
            f"{row['rate']:g}",
            f"{row['accuracy']:.2f} ± {row['deviation'] or 0:.2f}",
            *_gap(row),
            f"{row['test_set_error']:.2f}",
        ]
        for row in _once(rows)
    ]
    return table(heads, lines)


def _once(rows: Rows) -> list[Row]:
    """What has no privacy stands at every ε, and is shown once."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        found.setdefault((row["task"], row["method"], row["epsilon"] if row["noise_multiplier"] else None), row)
    return list(found.values())


def _gap(row: Row) -> list[str]:
    if row["gap"] is None or row["noise_multiplier"] is None:
        return ["–", "–"]
    return [f"{row['gap']:+.2f}", f"{row['paired_low']:+.2f} … {row['paired_high']:+.2f}"]


STEPS: Final[dict[str, Callable[[Rows], str]]] = {"taken": taken, "moved": moved}
TRAINED: Final[dict[str, Callable[[Rows], str]]] = {"trained": trained}
