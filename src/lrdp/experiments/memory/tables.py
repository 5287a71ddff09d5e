"""The table of the study: bytes of each contestant, and of each replay."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any, Final

from lrdp.experiments.memory.settings import MemorySettings
from lrdp.experiments.memory.steps import (
    Series,
    grown_series,
    live_series,
    process_series,
    repeats,
    reserved_by_seed,
)
from lrdp.experiments.study import Results
from lrdp.experiments.study.conducting import Rows

_MEGABYTE: Final = 1e6
_KINDS: Final = {"live": live_series, "process": process_series, "process beyond start": grown_series}
FLAT, LEAN = 1.02, 0.65
"""Our steps' largest over smallest live bytes, and micro-batches' over plain SGD's: at most these."""


def table(settings: MemorySettings, results: Results) -> Rows:
    """Bytes per step by kind of measurement and contestant, then bytes reserved by the model of a card."""
    measured = [row for kind in _KINDS for row in _measured(settings, results, kind)]
    return [*measured, *(row for name in settings.replay.runs for row in _replayed(settings, results, name))]


def _measured(settings: MemorySettings, results: Results, kind: str) -> Rows:
    series = {name: _KINDS[kind](settings, results, name) for name in settings.contestants}
    plain = next((found for name, found in series.items() if settings.methods[name].engine == "plain"), None)
    rows = []
    for name, found in series.items():
        row = _row(kind, name, settings.methods[name].malloc, found)
        if plain is not None:
            row["over_plain"] = round(max(found.values) / max(1, *plain.values), 4)
        if kind == "live":
            row["repeat_differs_by"] = round(repeats(settings, results, name), 6)
        rows.append(row | _bars(settings, name, row))
    return rows


def _bars(settings: MemorySettings, name: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """What this project set itself, and whether it holds."""
    method = settings.methods[name]
    if row["measure"] != "live" or method.engine != "ours":
        return {}
    bars = {f"largest / smallest ≤ {FLAT}": row["largest_over_smallest"] <= FLAT}
    if method.micro_batch and row["over_plain"] != "":
        bars[f"over plain SGD ≤ {LEAN}"] = row["over_plain"] <= LEAN
    return {"bars": "; ".join(f"{bar}: {'met' if met else 'missed'}" for bar, met in bars.items())}


def _replayed(settings: MemorySettings, results: Results, name: str) -> Rows:
    rows = []
    cells = {cell["seed"]: record for cell, record in results.where(measure="reserved", replay=name)}
    for seed, reserved in reserved_by_seed(results, name).items():
        row = _row("reserved (model of a card)", name, "", Series(sizes=cells[seed]["sizes"], values=reserved))
        ended = {} if len(reserved) == settings.replay.steps else {"bars": f"card full after {len(reserved)} steps"}
        rows.append(row | {"sequence": seed, "trace_differs_by": round(cells[seed]["error"], 6)} | ended)
    return rows


def _row(measure: str, name: str, malloc: str, found: Series) -> dict[str, Any]:
    low, middle, high = min(found.values), statistics.median(found.values), max(found.values)
    return {
        "measure": measure,
        "contestant": name,
        "sequence": "",
        "malloc": malloc,
        "records": "made-up pixels",
        "steps": len(found.values),
        "smallest_batch": min(found.sizes),
        "largest_batch": max(found.sizes),
        "smallest_mb": round(low / _MEGABYTE, 2),
        "median_mb": round(middle / _MEGABYTE, 2),
        "largest_mb": round(high / _MEGABYTE, 2),
        "last_mb": round(found.values[-1] / _MEGABYTE, 2),
        "largest_over_smallest": round(found.flatness, 4),
        "over_plain": "",
        "repeat_differs_by": "",
        "trace_differs_by": "",
        "bars": "",
    }
