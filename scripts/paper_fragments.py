"""Fill the tables of docs/results/paper/STUDY.md from the results of hospitals, sensitivity, memory and noise.

Run: python scripts/paper_fragments.py FOLDER, where FOLDER has what `lrdp experiments` wrote: hospitals/, sensitivity/
and so on. Of a study that is not there the page stays as it is.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

PAGES: Final = Path(__file__).parents[1] / "docs" / "results" / "paper"
Row = Mapping[str, Any]
Rows = Sequence[Row]


def served(rows: Rows) -> list[str]:
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


def left_out(rows: Rows) -> list[str]:
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


def machines(rows: Rows) -> list[str]:
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


def parameters(rows: Rows) -> list[str]:
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


def claims(rows: Rows) -> list[str]:
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


def per_step(rows: Rows) -> list[str]:
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


def reserved(rows: Rows) -> list[str]:
    """Gigabytes that a card would have lost at last, over all sequences of batches."""
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


def multipliers(rows: Rows) -> list[str]:
    """σ of every way and ε, by task."""
    own = [row for row in rows if row["part"] == "multipliers"]
    epsilons = sorted({row["epsilon"] for row in own})
    lines: dict[tuple[str, str, str], list[str]] = {}
    for row in own:
        line = lines.setdefault((row["title"], row["setting"], row["way"]), [])
        line.append(f"{row['noise_multiplier']:.4g} (×{row['over_reference']:.3f}, {row['noise_in_clip_norms']:.3g})")
    heads = ["task", "setting", "sampling and accountant", *(f"ε = {epsilon:g}" for epsilon in epsilons)]
    return table(heads, [[*line, *cells] for line, cells in lines.items()])


def frontier(rows: Rows) -> list[str]:
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


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Markdown."""
    return ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows)]


TABLES: Final[dict[str, dict[str, Callable[[Rows], list[str]]]]] = {
    "hospitals": {"served": served, "left out": left_out, "machines": machines},
    "sensitivity": {"parameters": parameters, "claims": claims},
    "memory": {"bytes": per_step, "reserved": reserved},
    "noise": {"multipliers": multipliers, "frontier": frontier},
}


def filled(text: str, name: str, lines: Sequence[str]) -> str:
    """The page with one table between its marks made anew."""
    marks = rf"(?<=<!-- {name} -->\n).*?(?=\n<!-- end of {name} -->)"
    found, times = re.subn(marks, lambda _: "\n".join(lines), text, flags=re.DOTALL)
    if times != 1:
        sys.exit(f"there are {times} places for the table {name!r}, and one is wanted.")
    return found


def main(folder: Path) -> None:
    """Fill the pages of those studies that were run to their end."""
    for study, tables in TABLES.items():
        found = folder / study / f"{study}.json"
        if not found.exists():
            continue
        rows = json.loads(found.read_text(encoding="utf-8"))["rows"]
        page = PAGES / f"{study}.md"
        text = page.read_text(encoding="utf-8")
        for name, made in tables.items():
            text = filled(text, name, made(rows))
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
