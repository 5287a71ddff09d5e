"""How much of each room the tests reached, lines and branches; fails where it is less than a room's bar.

    make coverage

A room's files that no test ever loaded count as not reached at all.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from coverage import Coverage
from coverage.results import Numbers

from lrdp.figures import AtLeast

SOURCE = Path(__file__).parents[1] / "src" / "lrdp"
BAR = 95.0
ROOMS = {
    "accounting": ["accounting/**/*.py"],
    "ledger": ["ledger/**/*.py"],
    "integrity": ["integrity/**/*.py"],
    "federation/client": ["federation/client/**/*.py"],
    "training: sampling, clipping, noise": ["training/sampling.py", "training/clipping.py", "training/noise/**/*.py"],
}


class Reached(NamedTuple):
    """One file: how much of it, and which lines were never run."""

    path: Path
    numbers: Numbers
    missing: str


def reached(coverage: Coverage, patterns: Iterable[str]) -> list[Reached]:
    """One for each file of a room."""
    paths = sorted(path for pattern in patterns for path in SOURCE.glob(pattern))
    found = []
    for path in paths:
        analysis = coverage._analyze(str(path))
        found.append(Reached(path, analysis.numbers, analysis.missing_formatted(branches=True)))
    return found


def main() -> int:
    """Print a line for each room and, below a bar, what is missing."""
    coverage = Coverage()
    coverage.load()
    below = 0
    for room, patterns in ROOMS.items():
        files = reached(coverage, patterns)
        total = sum((one.numbers for one in files), Numbers())
        short = total.pc_covered < BAR
        below += short
        sys.stdout.write(f"{room:<38}{AtLeast(total.pc_covered):.1f}%{f'  below {BAR}%' if short else ''}\n")
        for one in files if short else []:
            if one.missing:
                sys.stdout.write(f"    {one.path.relative_to(SOURCE)}: {one.missing}\n")
    return 1 if below else 0


if __name__ == "__main__":
    sys.exit(main())
