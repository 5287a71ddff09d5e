"""Recorded steps, sent through the model of a CUDA card's allocator: how many bytes it would have reserved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

from lrdp.errors import InvalidInput, OutOfReach
from lrdp.experiments.memory.caching import UNLIMITED, Block, CachingAllocator
from lrdp.experiments.memory.contestants import ContestantMethod
from lrdp.experiments.memory.plan import recorded_sizes, replayed_sizes, trace_cells
from lrdp.experiments.memory.settings import MemorySettings, Run
from lrdp.experiments.memory.traces import Lines, Trace, difference, live_peak, rows_of, trace_of
from lrdp.experiments.networks import NETWORKS
from lrdp.experiments.study import CellStore
from lrdp.figures import AtMost

_GIGABYTE = 10**9
_LARGEST_DIFFERENCE = 0.001


def replayed(settings: MemorySettings, run: Run, seed: int, store: CellStore) -> dict[str, Any]:
    """What would be reserved after each step, and how well the recorded traces predict one between them."""
    method = settings.methods[run.contestant]
    traces = {size: _loaded(store, cell) for size, cell in trace_cells(settings, run.contestant).items()}
    trace_at = cache(partial(found_trace, settings, method, traces))
    error = difference(traces[settings.replay.checked], trace_at(settings.replay.checked)) if len(traces) > 1 else 0.0
    if error > _LARGEST_DIFFERENCE:
        raise InvalidInput(
            f"a batch of {settings.replay.checked}, as found between others, differs from the recorded one by "
            f"{AtMost(error):.2%} of what lives: nothing follows from such traces."
        )
    poisson = run.sampling == "poisson"
    sizes = replayed_sizes(settings, seed) if poisson else [settings.batch_size] * settings.replay.steps
    asked = [run.first, *sizes] if run.first else sizes
    allocator = CachingAllocator(expandable=run.expandable, capacity=run.card_gb * _GIGABYTE or UNLIMITED)
    reserved = reserved_bytes(allocator, weights_of(settings.model), asked, trace_at)
    return {
        "reserved": reserved[len(asked) - len(sizes) :],
        "sizes": sizes,
        "live": max(live_peak(trace_at(size)) for size in set(asked)),
        "moves": len(list(trace_at(asked[0]).moves)),
        "error": error,
    }


def found_trace(settings: MemorySettings, method: ContestantMethod, traces: Mapping[int, Trace], size: int) -> Trace:
    """Of a batch of that size: where only one was recorded, that one."""
    if len(traces) == 1:
        return next(iter(traces.values()))
    rows = rows_of(size, method.micro_batch)
    few, many = recorded_sizes(settings, method, len(rows))
    return Lines(traces[few], few // len(rows), traces[many], many // len(rows)).at(rows)


def reserved_bytes(
    allocator: CachingAllocator, weights: Iterable[int], sizes: Sequence[int], trace_at: Callable[[int], Trace]
) -> list[int]:
    """What is reserved after each step; ends early where the card is full."""
    for size in weights:
        allocator.take(size)
    found: list[int] = []
    for size in sizes:
        try:
            replay(allocator, trace_at(size))
        except OutOfReach:
            break
        found.append(allocator.reserved)
    return found


def replay(allocator: CachingAllocator, trace: Trace) -> None:
    """One step."""
    taken: list[Block] = []
    for move in trace.moves:
        if move > 0:
            taken.append(allocator.take(move))
        else:
            allocator.give_back(taken[-move - 1])


def weights_of(model: str) -> list[int]:
    """The bytes of each weight: they lie on the card before the first step."""
    return [parameter.nbytes for parameter in NETWORKS[model].build().parameters()]


def _loaded(store: CellStore, cell: Any) -> Trace:
    record = store.load(cell)
    if record is None:
        raise InvalidInput(f"the trace [{cell.label}] is not among the results: run again, and it is recorded.")
    return trace_of(record)
