"""Two records of ``benchmarks/training.py --out`` side by side: what changed, and what varies from run to run.

A change counts as one where the runs of the two do not overlap; anything else may be the machine.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from training_record import Runs, load, middle, spread

STORED, FRESH = Path("docs/results/training.json"), Path("build/training.json")
FIGURES = ("time_ratio", "memory_ratio")


def changes(old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, list[float], list[float]]]:
    """Each figure that both have, by threads, model and contestant."""
    for threads, models in new["steps"].items():
        for model, contestants in models.items():
            for name, runs in contestants.items():
                before: Runs = old["steps"].get(threads, {}).get(model, {}).get(name, {})
                for figure in FIGURES:
                    if before.get(figure) and runs.get(figure):
                        yield f"{threads} {model} {name} {figure}", before[figure], runs[figure]


def line(figure: str, before: list[float], after: list[float]) -> str:
    apart = max(before) < min(after) or max(after) < min(before)
    change = middle(after) / middle(before) - 1.0
    return f"{figure:48} {spread(before):>18} {spread(after):>18} {change:+7.1%} {'*' if apart else ''}".rstrip()


def differences(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    """Where the two were taken under other conditions."""
    for name in sorted({*old["made"], *new["made"]}):
        before, after = old["made"].get(name), new["made"].get(name)
        if before != after:
            yield f"# {name}: {before} -> {after}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("old", type=Path, nargs="?", default=STORED, help=f"{STORED} unless given")
    parser.add_argument("new", type=Path, nargs="?", default=FRESH, help=f"{FRESH} unless given")
    given = parser.parse_args()
    old, new = load(given.old), load(given.new)
    found = list(changes(old, new))
    if not found:
        sys.exit(f"{given.old} and {given.new} have no figure in common: measure the same models and threads.")
    for text in differences(old, new):
        print(text)
    print(f"{'threads, model, contestant, figure':48} {'old':>18} {'new':>18} {'change':>7}  * runs do not overlap")
    for each in found:
        print(line(*each))


if __name__ == "__main__":
    main()
