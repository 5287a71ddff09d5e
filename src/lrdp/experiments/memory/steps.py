"""What was measured, step by step: the parts of a contestant put together again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lrdp.experiments.memory.contestants import DRAW_THEIR_OWN
from lrdp.experiments.memory.plan import asked_sizes, live_cells, process_cells
from lrdp.experiments.memory.settings import MemorySettings
from lrdp.experiments.study import Results


@dataclass(frozen=True, kw_only=True)
class Series:
    """Bytes of one contestant's steps, with the true sizes of their batches."""

    sizes: list[int]
    values: list[int]

    @property
    def flatness(self) -> float:
        """The largest over the smallest, which is taken to be at least a byte."""
        return max(self.values) / max(1, min(self.values))


def live_series(settings: MemorySettings, results: Results, name: str) -> Series:
    """By the allocator's count, beyond what lived before the first step; between two measured sizes, interpolated."""
    found = [results.of(cell) for cell in live_cells(settings, name)]
    sizes = [size for record in found for size in record["sizes"]]
    peaks = [peak for record in found for peak in record["live"]]
    if settings.methods[name].engine in DRAW_THEIR_OWN:
        return Series(sizes=sizes, values=peaks)
    by_size = dict(sorted(zip(sizes, peaks, strict=True)))
    taken = [size for part in asked_sizes(settings, settings.methods[name]) for size in part]
    between = np.interp(taken, list(by_size), list(by_size.values()))
    return Series(sizes=taken, values=[round(value) for value in between])


def repeats(settings: MemorySettings, results: Results, name: str) -> float:
    """By how much two steps of the same size differ, relatively: a size need not be measured again."""
    seen: dict[int, list[int]] = {}
    for cell in live_cells(settings, name):
        record = results.of(cell)
        for size, peak in zip(record["sizes"], record["live"], strict=True):
            seen.setdefault(size, []).append(peak)
    return max(max(peaks) / min(peaks) for peaks in seen.values()) - 1.0


def process_series(settings: MemorySettings, results: Results, name: str) -> Series:
    """The whole process, by the system's count."""
    found = [results.of(cell) for cell in process_cells(settings, name)]
    sizes = [size for record in found for size in record["sizes"]]
    return Series(sizes=sizes, values=[peak for record in found for peak in record["process"]])


def grown_series(settings: MemorySettings, results: Results, name: str) -> Series:
    """The process beyond what it had before anything was made ready: the interpreter, torch and the records."""
    found = [results.of(cell) for cell in process_cells(settings, name)]
    sizes = [size for record in found for size in record["sizes"]]
    return Series(sizes=sizes, values=[peak - record["before"] for record in found for peak in record["process"]])


def reserved_by_seed(results: Results, name: str) -> Mapping[int, list[int]]:
    """What a replay would have reserved after each step."""
    return {cell["seed"]: record["reserved"] for cell, record in results.where(measure="reserved", replay=name)}
