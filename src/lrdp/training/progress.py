"""Progress: how many of a public number of steps are done, and when the rest will be done. Nothing about the data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


@dataclass(frozen=True, kw_only=True)
class StepDone:
    """One private step is over. Losses and norms are private and do not appear."""

    step: int
    steps: int
    seconds: float


ObserveStep = Callable[[StepDone], None]
"""Whoever is told of each step, as ``progress_bar`` makes one."""


def silence(_: object) -> None:
    """Observe nothing.

    >>> silence(StepDone(step=1, steps=30, seconds=0.2))
    """


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[ObserveStep]:
    """A bar on stderr with the time left.

    >>> from io import StringIO
    >>> with progress_bar(Console(file=StringIO())) as observe:
    ...     observe(StepDone(step=1, steps=30, seconds=0.2))
    """
    columns = (
        TextColumn("private steps"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console or Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)
        yield lambda done: bar.update(task, completed=done.step, total=done.steps)
