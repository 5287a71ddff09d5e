"""Hospitals, and what a federation's parameters do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from paper_tables.filling import table

Row = Mapping[str, Any]
Rows = Sequence[Row]


def served(rows: Rows) -> str:
    """Each hospital's metric by method."""
    own = [row for row in rows if row["table"] == "hospitals" and row["patients"] is not None]
    lines = [
        [
            row["task"],
            row["group"] + " *" * bool(row["low_memory"]),
            str(row["patients"]),
            row["method"],
            _epsilon(row),
            _number(row["noise_multiplier"], 3),
            _number(row["rows"], 0),
            _bytes(row["step_bytes"]),
            _interval(row, "mean"),
        ]
        for row in own
    ]
    return table(["task", "hospital", "patients", "method", "ε", "σ", "rows", "bytes of a step", "metric"], lines)


def left_out(rows: Rows) -> str:
    """What training without the hospitals of low memory does to them, to the others and to all."""
    own = [row for row in rows if row["table"] == "hospitals" and row["patients"] is None]
    lines: dict[tuple[str, str, str], list[str]] = {}
    for row in own:
        line = lines.setdefault((row["task"], row["method"], _epsilon(row)), [])
        line += [_number(row["mean"], 3), _interval(row, "change", sign="+")]
    heads = ["task", "method", "ε"]
    for name in ("all", "left out", "others"):
        heads += [f"{name}: with", "without − with"]
    return table(heads, [[*line, *cells] for line, cells in lines.items()])


def machines(rows: Rows) -> str:
    """Live bytes without a limit, and the limits at which a way ran and did not."""
    own = [row for row in rows if row["table"] == "machines"]
    lines = []
    for way in dict.fromkeys(row["way"] for row in own):
        limits = {row["limit_mb"]: row["ran"] for row in own if row["way"] == way and row["limit_mb"]}
        live = next(row["live_bytes"] for row in own if row["way"] == way and not row["limit_mb"])
        shown = (
            ", ".join(str(limit) for limit, ran in limits.items() if ran is which) or "–" for which in (False, True)
        )
        lines.append([way, f"{live / 1e6:.0f} MB", *shown])
    return table(["way", "most live tensors", "out of memory at (MB)", "runs at (MB)"], lines)


def parameters(rows: Rows) -> str:
    """Accuracy and noise for each value of each parameter."""
    own = [row for row in rows if row["table"] == "parameters"]
    columns = list(dict.fromkeys((row["method"], row["epsilon"]) for row in own))
    heads = ["task", "parameter", "value", *(f"{method}, ε = {epsilon:g}" for method, epsilon in columns)]
    lines = []
    for place in dict.fromkeys((row["task"], row["parameter"], row["value"], row["base"]) for row in own):
        found = {
            (row["method"], row["epsilon"]): row
            for row in own
            if (row["task"], row["parameter"], row["value"]) == place[:3]
        }
        cells = [_accuracy(found[column]) for column in columns]
        lines.append([place[0], place[1].replace("_", " "), f"{place[2]:g}" + " (base)" * bool(place[3]), *cells])
    return table(heads, lines)


def claims(rows: Rows) -> str:
    """Who is under- and over-charged by which claim."""
    heads = [
        "pattern",
        "method",
        "true ε",
        "claim",
        "under-charged",
        "over-charged",
        "mean gap",
        "worst under",
        "worst over",
    ]
    lines = [
        [
            row["pattern"],
            row["method"],
            f"{row['epsilon_least']:.2f} … {row['epsilon_most']:.2f}",
            row["claim"],
            f"{row['undercharged']:.1%}",
            f"{row['overcharged']:.1%}",
            f"{row['gap_mean']:+.2f}",
            f"{min(row['gap_least'], 0.0):+.2f}",
            f"{max(row['gap_most'], 0.0):+.2f}",
        ]
        for row in rows
        if row["table"] == "claims"
    ]
    return table(heads, lines)


def _accuracy(row: Row) -> str:
    spread, noise = row["deviation"] or 0, row["noise_on_mean"]
    return f"{row['accuracy']:.2f} ± {spread:.2f} ({noise:.4f}; {row['epsilon_mean']:.2f})"


def _epsilon(row: Row) -> str:
    return f"{row['epsilon']:g}" if row["epsilon"] else "–"


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def _bytes(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _interval(row: Row, name: str, sign: str = "") -> str:
    if row[name] is None:
        return "–"
    ends = (row[f"{name}_low"], row[f"{name}_high"])
    shown = "" if None in ends else f" ({ends[0]:{sign}.3f} … {ends[1]:{sign}.3f})"
    return f"{row[name]:{sign}.3f}{shown}"


HOSPITALS: Final[dict[str, Callable[[Rows], str]]] = {"served": served, "machines": machines, "left out": left_out}
SENSITIVITY: Final[dict[str, Callable[[Rows], str]]] = {"parameters": parameters, "claims": claims}
