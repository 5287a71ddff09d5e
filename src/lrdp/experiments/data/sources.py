"""Where a task's records come from, by name."""

from __future__ import annotations

from typing import Final

from lrdp.errors import InvalidInput
from lrdp.experiments.data.hub import HubSource, by_flower, by_hub
from lrdp.experiments.data.loading import TASKS, Source

_PUBLIC: Final = {"hf": by_hub, "flwr": by_flower}


def source(name: str) -> Source:
    """The source of this name.

    Raises:
        InvalidInput: naming those that there are.
    """
    if name in TASKS:
        return TASKS[name]
    kind, _, public = name.partition(":")
    if kind in _PUBLIC and public:
        return HubSource(public, _PUBLIC[kind])
    raise InvalidInput(
        f"data must be one of {', '.join(TASKS)}, or hf:NAME or flwr:NAME, got {name!r}: nothing was run."
    )
