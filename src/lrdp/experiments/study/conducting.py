"""A study from its settings to its tables and pictures."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from lrdp.errors import InvalidInput, LrdpError
from lrdp.experiments.study.cells import Cell, Record, Results
from lrdp.experiments.study.processes import one_thread, run_alone
from lrdp.experiments.study.store import CellStore, write, write_json
from lrdp.experiments.study.surroundings import surroundings

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Places:
    """Folders: where data lies, where features are kept, and where results go."""

    data: Path
    features: Path
    results: Path


class Study(Protocol):
    """What a study is asked for. ``work`` and the study itself travel to other processes, so they can be pickled."""

    @property
    def name(self) -> str: ...

    @property
    def settings(self) -> Record:
        """As they were read, for the record."""

    @property
    def stages(self) -> Sequence[Callable[[Results], Sequence[Cell]]]:
        """Each names its cells once those before it are done."""

    def work(self, cell: Cell, places: Places) -> Record:
        """What comes out of a cell, in plain values."""

    def rows(self, results: Results) -> Rows:
        """The table, one flat row after the other, each with the same columns."""

    def draw(self, results: Results, folder: Path) -> Sequence[Path]:
        """The pictures, and where they were written."""


class ObserveStudy(Protocol):
    """Told of progress."""

    def stage(self, cells: int, kept: int) -> None:
        """A stage of ``cells`` cells begins; ``kept`` of them were run before."""

    def done(self, cell: Cell, seconds: float) -> None:
        """A cell has been run and kept."""


def conduct(study: Study, places: Places, jobs: int, observe: ObserveStudy) -> list[Path]:
    """Run what has not been run, and write NAME.json, NAME.csv and the pictures; returns what was written.

    Raises:
        InvalidInput: if cells failed; those that did not are kept.
    """
    store, results = CellStore(places.results), Results()
    for stage in study.stages:
        cells = stage(results)
        kept = {cell.key: result for cell in cells if (result := store.load(cell)) is not None}
        observe.stage(len(cells), len(kept))
        missing = [cell for cell in cells if cell.key not in kept]
        kept |= dict(_finished(study, missing, places, jobs, store, observe))
        for cell in cells:
            results.add(cell, kept[cell.key])
    return _written(study, results, places.results)


def _finished(
    study: Study, cells: Sequence[Cell], places: Places, jobs: int, store: CellStore, observe: ObserveStudy
) -> Iterator[tuple[str, Record]]:
    failed: list[tuple[Cell, BaseException]] = []
    for cell, outcome in _outcomes(study, cells, places, jobs):
        if isinstance(outcome, BaseException):
            failed.append((cell, outcome))
            continue
        result, seconds = outcome
        store.save(cell, result, seconds)
        observe.done(cell, seconds)
        yield cell.key, result
    if failed:
        cell, problem = failed[0]
        raise InvalidInput(
            f"{len(failed)} of {len(cells)} cells failed, the others are kept. The first was [{cell.label}]: "
            f"{type(problem).__name__}: {problem}"
        ) from problem


CellOutcome = tuple[Record, float] | BaseException


def _outcomes(study: Study, cells: Sequence[Cell], places: Places, jobs: int) -> Iterator[tuple[Cell, CellOutcome]]:
    """In the order in which they end. A mistake in the study's own code ends everything; bad input its cell alone."""
    with _pool(min(jobs, len(cells))) as start:
        running: dict[Future[tuple[Record, float]], Cell] = {}
        for cell in cells:
            running[start(_timed, study, cell, places)] = cell
            # Few are waiting at a time, so that an interrupt leaves none to be finished; alone, it has ended already.
            if len(running) > jobs or jobs == 1:
                yield from _ended(running)
        while running:
            yield from _ended(running)


def _ended(running: dict[Future[tuple[Record, float]], Cell]) -> Iterator[tuple[Cell, CellOutcome]]:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        problem = future.exception()
        if problem is not None and not isinstance(problem, LrdpError):
            raise problem
        yield running.pop(future), problem or future.result()


@contextmanager
def _pool(jobs: int) -> Iterator[Callable[..., Future[tuple[Record, float]]]]:
    """New processes rather than forked ones: torch's threads do not survive a fork."""
    if jobs <= 1:
        yield run_alone
        return
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=one_thread)
    try:
        yield pool.submit
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _timed(study: Study, cell: Cell, places: Places) -> tuple[Record, float]:
    begun = time.monotonic()
    return study.work(cell, places), round(time.monotonic() - begun, 3)


def _written(study: Study, results: Results, folder: Path) -> list[Path]:
    rows = study.rows(results)
    record = {
        "study": study.name,
        "made": surroundings(),
        "settings": study.settings,
        "rows": rows,
        "cells": [{"cell": cell.values, "result": result} for cell, result in results],
    }
    table, sheet = folder / f"{study.name}.json", folder / f"{study.name}.csv"
    write_json(table, record)
    write(sheet, as_csv(rows))
    return [table, sheet, *study.draw(results, folder)]


def as_csv(rows: Rows) -> bytes:
    """A heading and a line for each row."""
    text = io.StringIO(newline="")
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return text.getvalue().encode()
