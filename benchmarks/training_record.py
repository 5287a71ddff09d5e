"""What a run of ``benchmarks/training.py`` leaves behind: every figure of every run, and where it was taken."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from lrdp.experiments.study.surroundings import surroundings as made_with

GOALS = {"vgg11": 1.10, "cnn": 1.25, "bert_mini": 1.25, "minilm": 1.30, "resnet18": 1.35, "vit": 1.30}
Runs = dict[str, list[float]]
"""Each figure of one contestant, over the runs."""


def surroundings(threads: list[int]) -> dict[str, Any]:
    """Versions and machine."""
    found = made_with()
    return {**{name: found[name] for name in ("python", "packages", "processor", "cores")}, "threads": threads}


def load(path: Path) -> dict[str, Any]:
    """A record that ``--out`` wrote; ends the program with a sentence if it is not one."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found["made"], found["steps"].items()
    except FileNotFoundError:
        sys.exit(f"{path} is missing: make it with `python benchmarks/training.py --out {path}`.")
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as problem:
        sys.exit(f"{path} is not a record of benchmarks/training.py ({type(problem).__name__}: {problem}).")
    return found


def middle(values: list[float]) -> float:
    return statistics.median(values)


def spread(values: list[float]) -> str:
    """The median, and the smallest and largest of several."""
    low, high = min(values), max(values)
    return f"{middle(values):.2f}" if len(values) == 1 else f"{middle(values):.2f} ({low:.2f}–{high:.2f})"


def table(record: dict[str, Any]) -> str:
    """The record as Markdown: for each number of threads, time and memory of every contestant over plain SGD."""
    made = record["made"]
    packages = ", ".join(f"{name} {number}" for name, number in made["packages"].items())
    lines = [f"Python {made['python']}, {packages}; {made['processor']}, {made['cores']} cores."]
    for threads, models in record["steps"].items():
        clock = "processor time" if threads == "1" else "wall clock"
        names = list(dict.fromkeys(name for found in models.values() for name in found))
        lines += [
            "",
            f"Threads: {threads} ({clock}). Time · memory over plain SGD, median (least–most) of runs.",
        ]
        lines += ["", "| | " + " | ".join(names) + " | goal |", "|---" * (len(names) + 2) + "|"]
        lines += [_line(model, found, names) for model, found in models.items()]
    return "\n".join(lines)


def _line(model: str, found: dict[str, Runs], names: list[str]) -> str:
    cells = [_cell(found[name]) if name in found else "–" for name in names]
    return f"| {model} | " + " | ".join(cells) + f" | {GOALS.get(model, '–')} |"


def _cell(runs: Runs) -> str:
    if "time_ratio" not in runs:
        return f"{middle(runs['seconds']):.3f} s · {middle(runs['bytes']) / 1e6:.0f} MB"
    memory = f" · {middle(runs['memory_ratio']):.2f}" if "memory_ratio" in runs else ""
    return spread(runs["time_ratio"]) + memory
