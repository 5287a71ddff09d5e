"""A study that leaves a mark for each cell it runs, so that one can count what was run."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.study import Cell, Places, conduct


@dataclass(frozen=True)
class Counting:
    """Squares of numbers; then, of the largest square so far, its root and one more."""

    marks: Path
    numbers: tuple[int, ...] = (3, 1, 4)
    bad: tuple[int, ...] = ()
    killed_at: int | None = None
    settings: Mapping[str, Any] = field(default_factory=lambda: {"kind": "squares"})
    name: str = "counting"

    @property
    def stages(self):
        return (self.squares, self.largest)

    def squares(self, _results):
        return [Cell(self.name, {"stage": "square", "number": number}) for number in self.numbers]

    def largest(self, results):
        most = max(result["value"] for _, result in results.where(stage="square"))
        return [Cell(self.name, {"stage": "more", "number": most})]

    def work(self, cell, _places):
        if cell["number"] in self.bad:
            raise InvalidInput(f"{cell['number']} is not a good number.")
        if cell["number"] == self.killed_at:
            os.kill(os.getpid(), signal.SIGKILL)
        (self.marks / f"{cell.key}-{time.time_ns()}").touch()
        return {"value": cell["number"] ** 2}

    def rows(self, results):
        return [{"number": cell["number"], "value": result["value"]} for cell, result in results]

    def draw(self, _results, _folder):
        return []


class Silence:
    def __init__(self):
        self.stages = []

    def stage(self, cells, kept):
        self.stages.append((cells, kept))

    def done(self, cell, seconds):
        pass


def places(folder: Path) -> Places:
    return Places(data=folder / "data", features=folder / "features", results=folder / "results")


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    conduct(Counting(folder / "marks", killed_at=4), places(folder), 1, Silence())
