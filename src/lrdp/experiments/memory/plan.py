"""Which cells are measured: what lives, what the process has, and in which order blocks come and go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import DRAW_THEIR_OWN, ContestantMethod, poisson_sizes
from lrdp.experiments.memory.settings import MemorySettings
from lrdp.experiments.memory.traces import rows_of
from lrdp.experiments.study import Cell

NAME = "memory"
_FIRST_REPLAY = 100  # the parts before this are those of the measured steps
_LIVE_SIZES = 9
_STEADY = 2  # the first step makes what all others find: a trace is of the second


def measured_cells(settings: MemorySettings) -> list[Cell]:
    """Bytes per step of each contestant, and traces of those that are replayed.

    First parts come first: a run that is stopped then has the same study with fewer steps.
    """
    replayed = dict.fromkeys(run.contestant for run in settings.replay.runs.values())
    traces = [cell for name in replayed for cell in trace_cells(settings, name).values()]
    live = [cell for name in settings.contestants for cell in live_cells(settings, name)]
    process = [cell for name in settings.contestants for cell in process_cells(settings, name)]
    return sorted([*live, *traces, *process], key=lambda cell: int(cell["part"]))


def process_cells(settings: MemorySettings, name: str) -> Iterator[Cell]:
    """Steps without a profiler; perhaps fewer for a contestant that takes long."""
    most = settings.process_steps.get(name, settings.steps)
    for part, sizes in enumerate(asked_sizes(settings, settings.methods[name])):
        if part * settings.steps_per_cell < most:
            yield cell_for(settings, "process", name, sizes, part)


def live_cells(settings: MemorySettings, name: str) -> Iterator[Cell]:
    """All steps; where sizes can be asked for, those that are needed, and one of them twice to see that it repeats."""
    method, seen = settings.methods[name], set[int]()
    for part, sizes in enumerate(asked_sizes(settings, method)):
        if method.engine in DRAW_THEIR_OWN:
            yield cell_for(settings, "live", name, sizes, part)
        elif fresh := sorted(_needed_sizes(settings, method, sizes) - seen):
            yield cell_for(settings, "live", name, [*fresh, fresh[0]], part)
            seen |= set(fresh)


def _needed_sizes(settings: MemorySettings, method: ContestantMethod, sizes: Sequence[int]) -> set[int]:
    """In pieces, each: their rows go up and down. Whole batches, a few: what lives is a straight line in their size."""
    if method.micro_batch or method.sampling != "poisson":
        return set(sizes)
    parts = enumerate(settings.parts)
    taken = [size for part, steps in parts for size in poisson_sizes(settings.setting(), steps, part)]
    low, high = min(settings.replay.recorded[0], *taken), max(settings.replay.recorded[1], *taken)
    return {round(low + (high - low) * place / (_LIVE_SIZES - 1)) for place in range(_LIVE_SIZES)}


def asked_sizes(settings: MemorySettings, method: ContestantMethod) -> Iterator[list[int]]:
    """The sizes of the batches in each part; our engine draws its own."""
    for part, steps in enumerate(settings.parts):
        poisson = method.sampling == "poisson"
        yield poisson_sizes(settings.setting(), steps, part) if poisson else [settings.batch_size] * steps


def replayed_sizes(settings: MemorySettings, seed: int) -> list[int]:
    """A long sequence of Poisson batches."""
    return poisson_sizes(settings.setting(), settings.replay.steps, _FIRST_REPLAY + seed)


def trace_cells(settings: MemorySettings, name: str) -> dict[int, Cell]:
    """By size: for each number of pieces the smallest and the largest batch, and one more to check by."""
    method = settings.methods[name]
    sizes = [settings.batch_size]
    if method.sampling == "poisson":
        ends = [size for pieces in pieces_needed(settings, method) for size in recorded_sizes(settings, method, pieces)]
        sizes = sorted({*ends, settings.replay.checked})
    return {size: cell_for(settings, "trace", name, [size] * _STEADY, 0) for size in sizes}


def pieces_needed(settings: MemorySettings, method: ContestantMethod) -> list[int]:
    """In how many pieces batches of the replays are computed."""
    sizes = {size for seed in range(settings.replay.seeds) for size in replayed_sizes(settings, seed)}
    sizes |= {settings.batch_size, settings.replay.checked}
    sizes |= {run.first for run in settings.replay.runs.values() if settings.methods[run.contestant] == method}
    return sorted({len(rows_of(size, method.micro_batch)) for size in sizes - {0}})


def recorded_sizes(settings: MemorySettings, method: ContestantMethod, pieces: int) -> tuple[int, int]:
    """The two batches in this many equal pieces between which, or near which, all others in as many pieces lie."""
    low, high = settings.replay.recorded
    split = [rows_of(size, method.micro_batch) for size in range(low, high + 1)]
    rows = {each for batch in split if len(batch) == pieces for each in batch}
    rows = {each for each in rows if len(rows_of(pieces * each, method.micro_batch)) == pieces}
    many = max(rows, default=method.micro_batch)
    few = min(rows - {many}, default=many - 1)
    if few < 1 or len(rows_of(pieces * few, method.micro_batch)) != pieces:
        raise InvalidInput(
            f"micro-batches of {method.micro_batch} are too small to replay: with {pieces} pieces all have the "
            f"same number of rows, so other sizes do not follow from two; nothing was run."
        )
    return pieces * few, pieces * many


def cell_for(settings: MemorySettings, measure: str, name: str, sizes: Sequence[int], part: int) -> Cell:
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


def replay_cells(settings: MemorySettings) -> list[Cell]:
    """Steps that are sent through the model of the allocator; sequences of equal batches are all the same."""
    return [
        _replay_cell(settings, name, seed)
        for name, run in settings.replay.runs.items()
        for seed in range(settings.replay.seeds if run.sampling == "poisson" else 1)
    ]


def _replay_cell(settings: MemorySettings, name: str, seed: int) -> Cell:
    run = settings.replay.runs[name]
    values = {
        "measure": "reserved",
        "replay": name,
        "seed": seed,
        "steps": settings.replay.steps,
        "run": asdict(run),
        "traces": sorted(cell.key for cell in trace_cells(settings, run.contestant).values()),
    }
    return Cell(NAME, values)
