"""Bytes per step: what lives at once by the allocator's own count, and what the whole process has at its worst."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from torch.profiler import ProfilerActivity, profile, record_function

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import PIECE, Done

STEP: Final = "lrdp: a step has ended"
Run = Callable[[Done], None]
"""Takes steps, and says after each how many records it had."""


@dataclass(frozen=True)
class Happening:
    """An allocation of this many bytes, or with a negative number the end of one; or, with a name, a mark."""

    address: int
    size: int
    mark: str = ""


def recorded(run: Run) -> tuple[list[int], list[Happening]]:
    """The sizes of the steps, and in order all that the marks told, and torch's allocator of blocks made since.

    What the profiler keeps for itself is not a tensor, so it is in none of these; it is in the process's memory, which
    is therefore measured without it.
    """
    sizes: list[int] = []

    def done(size: int) -> None:
        sizes.append(size)
        with record_function(STEP):
            pass

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as found:
        run(done)
    results: Any = found.profiler
    told = sorted(_events(results.kineto_results.experimental_event_tree()), key=lambda event: event.start_time_ns)
    return sizes, list(_since(_happening(event) for event in told))


def _events(trees: Sequence[Any]) -> Iterator[Any]:
    """Allocations and marks, however deep."""
    waiting = list(trees)
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.name in ("[memory]", STEP, PIECE):
            yield event


def _happening(event: Any) -> Happening:
    if event.name != "[memory]":
        return Happening(0, 0, event.name)
    return Happening(int(event.extra_fields.ptr), int(event.extra_fields.alloc_size))


def _since(happenings: Iterable[Happening]) -> Iterator[Happening]:
    """Without the ends of blocks that an earlier recording of this process saw begin: the profiler tells these, too."""
    living = set[int]()
    for one in happenings:
        if one.size > 0:
            living.add(one.address)
        elif one.size < 0 and one.address not in living:
            continue
        else:
            living.discard(one.address)
        yield one


def live_peaks(happenings: Sequence[Happening]) -> list[int]:
    """For each step the most bytes that lived at once, of those that were made since the recording began."""
    peaks, live, most = [], 0, 0
    for one in happenings:
        if one.mark == STEP:
            peaks.append(most)
            most = live
        live += one.size
        most = max(most, live)
    return peaks


def process_peaks(run: Run) -> list[tuple[int, int]]:
    """For each step its size and the most bytes that were resident within it."""
    found: list[tuple[int, int]] = []

    def done(size: int) -> None:
        found.append((size, process_peak()))
        forget_process_peak()

    forget_process_peak()
    run(done)
    return found


def process_peak() -> int:
    """The most bytes this process had resident since it last forgot."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        status = ""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    if found is None:
        raise InvalidInput("this system does not say how much memory a process had, as Linux does: nothing was run.")
    return int(found[1]) * 1024


def forget_process_peak() -> None:
    """What ran before in this process, such as another step, must not hide growth."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError as problem:
        raise InvalidInput(f"this system does not reset a process's peak ({problem}): nothing was run.") from None
