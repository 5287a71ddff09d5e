"""How long a round may take, whoever keeps silent: one time for all of its exchanges."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from lrdp import limits

ROUND_SECONDS: Final = 3600.0
"""How long a round may take, unless ``timeout`` says otherwise: half of it is for training."""
_LEAST_SECONDS: Final = 1.0
"""An answer that is there is taken, however late it is."""
_TO_START: Final = 60.0


class RoundClock:
    """``seconds`` for a round, from the moment that work is sent to the proof of the sum.

    Each exchange of it may take half of what is left, so that somebody who is silent in one leaves time for the next:
    a round that was paid for is given up by those who are silent in it, never for a lack of time to ask them. Even
    then nothing is lost, for the same updates are shown again. Questions outside a round cost nobody anything, and each
    is waited for an eighth of the time, or for a minute if that is more and no more than half of it: a process that has
    to start first has that much to do.

    >>> clock = RoundClock(3600, now=lambda: 0.0)
    >>> clock.aside, clock.begin(), clock.share()
    (450.0, 1800.0, 1800.0)
    """

    def __init__(self, seconds: float, *, now: Callable[[], float] = time.monotonic) -> None:
        self.seconds = limits.positive("timeout", seconds, "it is how long a round may take, in seconds")
        self._now = now
        self._end = now() + self.seconds

    def begin(self) -> float:
        """A round begins now; how long its work is waited for."""
        self._end = self._now() + self.seconds
        return self.share()

    def share(self) -> float:
        """How long the next exchange of the round may take."""
        return max(_LEAST_SECONDS, (self._end - self._now()) / 2)

    @property
    def aside(self) -> float:
        """How long a question outside the rounds is waited for."""
        return max(_LEAST_SECONDS, self.seconds / 8, min(_TO_START, self.seconds / 2))

    def after(self, seconds: float) -> float:
        """A moment to come."""
        return self._now() + seconds

    def is_past(self, moment: float) -> bool:
        """Whether that moment has come."""
        return self._now() >= moment
