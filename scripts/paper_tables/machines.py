"""Bytes per step, and noise."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from paper_tables.filling import table

Row = Mapping[str, Any]
Rows = Sequence[Row]


def per_step(rows: Rows) -> str:
    """Bytes of each contestant's steps."""
    own = [row for row in rows if not row["measure"].startswith("reserved")]
    heads = [
        "",
        "contestant",
        "malloc",
        "steps",
        "batches",
        "least MB",
        "median",
        "most",
        "most / least",
        "/ plain SGD",
    ]
    lines = [
        [
            row["measure"],
            row["contestant"],
            row["malloc"],
            str(row["steps"]),
            _range(row["smallest_batch"], row["largest_batch"], 0),
            f"{row['smallest_mb']:,.1f}",
            f"{row['median_mb']:,.1f}",
            f"{row['largest_mb']:,.1f}",
            f"{row['largest_over_smallest']:.3f}",
            f"{row['over_plain']:.2f}",
        ]
        for row in own
    ]
    return table(heads, lines)


def reserved(rows: Rows) -> str:
    """Gigabytes that a card would have lost in the end, over all sequences of batches."""
    own = [row for row in rows if row["measure"].startswith("reserved")]
    lines = []
    for name in dict.fromkeys(row["contestant"] for row in own):
        found = sorted(row["last_mb"] / 1e3 for row in own if row["contestant"] == name)
        first = [row for row in own if row["contestant"] == name]
        sizes = min(row["smallest_batch"] for row in first), max(row["largest_batch"] for row in first)
        middle = statistics.median(found)
        counts = [row["steps"] for row in first]
        steps = _range(min(counts), max(counts), 0)
        cells = [str(len(found)), steps, _range(*sizes, 0), *(f"{each:.2f}" for each in (found[0], middle, found[-1]))]
        lines.append([name, *cells])
    return table(["", "sequences", "steps", "batches", "least GB", "median", "most"], lines)


def multipliers(rows: Rows) -> str:
    """σ of every way and ε, by task."""
    own = [row for row in rows if row["part"] == "multipliers"]
    epsilons = sorted({row["epsilon"] for row in own})
    lines: dict[tuple[str, str, str], list[str]] = {}
    for row in own:
        line = lines.setdefault((row["title"], row["setting"], row["way"]), [])
        line.append(f"{row['noise_multiplier']:.4g} (×{row['over_reference']:.3f}, {row['noise_in_clip_norms']:.3g})")
    heads = ["task", "setting", "sampling and accountant", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return table(heads, [[*line, *cells] for line, cells in lines.items()])


def frontier(rows: Rows) -> str:
    """What a cap costs in noise."""
    lines = [
        [
            f"{row['title']}, {row['setting']}",
            f"{row['epsilon']:g}",
            f"+{row['cap_deviations']:g}",
            f"{row['rows']} ({row['rows'] / row['batch_size']:.2f} B)",
            f"{row['cut_probability']:.1e}",
            f"{row['noise_multiplier']:.4g}",
            f"{row['over_reference']:.4f}",
        ]
        for row in rows
        if row["part"] == "frontier"
    ]
    return table(["task", "ε", "cap, deviations", "rows", "cut with probability", "σ", "/ Poisson's"], lines)


def _range(low: float, high: float, digits: int) -> str:
    return f"{low:.{digits}f}" if low == high else f"{low:.{digits}f} … {high:.{digits}f}"


MEMORY: Final[dict[str, Callable[[Rows], str]]] = {"bytes": per_step, "reserved": reserved}
NOISE: Final[dict[str, Callable[[Rows], str]]] = {"multipliers": multipliers, "frontier": frontier}
