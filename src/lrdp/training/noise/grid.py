"""What released values are multiples of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

GRID_BITS = 20


@dataclass(frozen=True)
class Grid:
    """The grid of noise with one ``deviation``."""

    deviation: float

    @cached_property
    def step(self) -> float:
        """2^-20 of the largest power of two that is at most the deviation.

        It is a power of two, so dividing by it loses nothing.
        """
        return math.ldexp(1.0, math.frexp(self.deviation)[1] - 1 - GRID_BITS)

    @cached_property
    def stretch(self) -> float:
        """What a uniform's logarithm is multiplied by: its root is then the pair's distance from 0, in steps."""
        return -2.0 * (self.deviation / self.step) ** 2
