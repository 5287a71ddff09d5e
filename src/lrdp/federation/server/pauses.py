"""Whoever cannot hand in what waits at it is asked again later and later, so that the others go on without it."""

from __future__ import annotations

import time
from collections import Counter
from typing import Final

_FIRST_SECONDS: Final = 0.1


class Pauses:
    """Since the last verified round: how often each failed, and until when it is left alone; ``longest`` in seconds."""

    def __init__(self, longest: float) -> None:
        self._longest, self._failures, self._until = longest, Counter[str](), dict[str, float]()

    def failed(self, name: str) -> None:
        """Ask it once more at once; after that, leave it alone, each time for twice as long as the last time."""
        before = self._failures[name]
        if before:
            self._until[name] = time.monotonic() + min(self._longest, _FIRST_SECONDS * 2 ** min(before - 1, 30))
        self._failures[name] += 1

    def failures(self, name: str) -> int:
        """How often it failed."""
        return self._failures[name]

    def over(self, name: str) -> bool:
        """Whether it may be asked."""
        return time.monotonic() >= self._until.get(name, 0.0)

    def forget(self) -> None:
        """A round was verified: everybody has another chance."""
        self._failures.clear()
        self._until.clear()
