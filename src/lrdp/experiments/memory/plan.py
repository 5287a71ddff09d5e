"""Which cells are measured: what lives, what the process has, and in which order blocks come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lrdp.experiments.memory.contestants import Method, poisson_sizes
from lrdp.experiments.memory.settings import Settings
from lrdp.experiments.study import Cell

NAME = "memory"


def measured_cells(settings: Settings) -> list[Cell]:
    """Bytes per step of each contestant."""
    return [
        cell for name in settings.contestants for cell in (*process_cells(settings, name), *live_cells(settings, name))
    ]


def process_cells(settings: Settings, name: str) -> Iterator[Cell]:
    """All steps, without a profiler."""
    for part, sizes in enumerate(asked_sizes(settings, settings.methods[name])):
        yield cell_for(settings, "process", name, sizes, part)


def live_cells(settings: Settings, name: str) -> Iterator[Cell]:
    """All steps; where sizes are asked for, each distinct one once, and the first twice to see that it repeats."""
    method = settings.methods[name]
    asked = list(asked_sizes(settings, method))
    if method.sampling == "poisson":
        distinct = sorted({size for sizes in asked for size in sizes})
        distinct.append(distinct[0])
        each = settings.steps_per_cell
        asked = [distinct[start : start + each] for start in range(0, len(distinct), each)]
    for part, sizes in enumerate(asked):
        yield cell_for(settings, "live", name, sizes, part)


def asked_sizes(settings: Settings, method: Method) -> Iterator[list[int]]:
    """The sizes of the batches in each part; our engine draws its own."""
    for part, steps in enumerate(settings.parts):
        poisson = method.sampling == "poisson"
        yield poisson_sizes(settings.setting(), steps, part) if poisson else [settings.batch_size] * steps


def cell_for(settings: Settings, measure: str, name: str, sizes: Sequence[int], part: int) -> Cell:
    """One measurement in one process."""
    values = {
        "measure": measure,
        "contestant": name,
        "part": part,
        "method": asdict(settings.methods[name]),
        "setting": asdict(settings.setting(part)),
        "sizes": list(sizes),
        "alone": settings.alone,
    }
    return Cell(NAME, values)
