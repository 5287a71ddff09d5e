"""One benchmark of two versions of this project, in turns: every figure of every turn, and the ratio of the medians.

    python benchmarks/versions.py integrity --before ../before --turns 3 -- --case 9.2M:10 --method sketch

A machine's speed changes from hour to hour, so versions are compared within one run. ``--before`` is a checkout of the
older version, as ``git worktree add ../before COMMIT`` makes one; each version runs its own ``benchmarks/NAME.py`` with
the options after ``--``, and reports by the JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
TRIES = 5


def numbers(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Every number of a report, by the keys on the way to it."""
    branches = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    for key, below in branches:
        yield from numbers(below, (*path, str(key)))
    if isinstance(found, int | float) and not isinstance(found, bool):
        yield ".".join(path), float(found)


def measured(version: Path, name: str, options: list[str]) -> dict[str, float]:
    """One run of a version's own benchmark, in a process of its own."""
    command = [sys.executable, str(version / "benchmarks" / f"{name}.py"), "--json", *options]
    environment = os.environ | {"PYTHONPATH": str(version / "src")}
    for _ in range(TRIES):  # a model's random weights may fail the check before training
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            return dict(numbers(json.loads(done.stdout.splitlines()[-1])))
    sys.exit(f"{version} does not run {name}:\n{done.stderr}")


def in_turns(before: Path, given: argparse.Namespace) -> dict[str, dict[str, list[float]]]:
    """Every figure of every turn; which version goes first changes from turn to turn."""
    places = {"before": before, "now": HERE}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in places}
    for turn in range(given.turns):
        for name in sorted(runs, reverse=bool(turn % 2)):
            runs[name].append(measured(places[name], given.benchmark, given.options))
            print(f"turn {turn + 1} {name:6} {runs[name][-1]}", file=sys.stderr, flush=True)
    return {name: {key: [run[key] for run in each] for key in each[0]} for name, each in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", help="the name of a benchmark that both versions have, as in: training")
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the older version")
    parser.add_argument("--turns", type=int, default=3, help="runs of each version")
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on the last line")
    words = sys.argv[1:]
    own = words.index("--") if "--" in words else len(words)
    given = parser.parse_args(words[:own], argparse.Namespace(options=words[own + 1 :]))
    found = in_turns(given.before.resolve(), given)
    for figure in (name for name in found["now"] if name in found["before"]):
        before, now = (statistics.median(found[name][figure]) for name in ("before", "now"))
        ratio = f"×{now / before:.3f}" if before else ""
        print(f"{figure:60} before {before:<10.5g} now {now:<10.5g} {ratio}")
    if given.json:
        print(json.dumps({"benchmark": given.benchmark, "options": given.options, **found}))


if __name__ == "__main__":
    main()
