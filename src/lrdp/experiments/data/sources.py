"""Where a task's records come from, by name."""

from __future__ import annotations

from lrdp.errors import InvalidInput
from lrdp.experiments.data.loading import TASKS, Source


def source(name: str) -> Source:
    """The source of this name.

    Raises:
        InvalidInput: naming those that there are.
    """
    if name in TASKS:
        return TASKS[name]
    raise InvalidInput(f"data must be one of {', '.join(TASKS)}, got {name!r}: nothing was run.")
