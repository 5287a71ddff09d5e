"""Learning rates as public values: known before the first record is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

from lrdp.accounting import limits
from lrdp.errors import InvalidInput


class Schedule(Protocol):
    """A learning rate for each step, counted over all rounds."""

    def at(self, step: int) -> float:
        """The rate of one step."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same rate in every step."""

    rate: float

    def __post_init__(self) -> None:
        limits.positive("rate", self.rate, "a step must lead somewhere")

    def at(self, step: int) -> float:  # noqa: ARG002 - every step is alike
        return self.rate


@dataclass(frozen=True, kw_only=True)
class WarmupCosine:
    """Linear warm-up to ``peak``, then half a cosine down to ``floor`` at the last of ``steps``.

    >>> rate = WarmupCosine(peak=0.5, floor=0.0, warmup=10, steps=110)
    >>> [round(rate.at(step), 3) for step in (0, 9, 60, 110)]
    [0.05, 0.5, 0.25, 0.0]
    """

    peak: float
    floor: float
    warmup: int
    steps: int

    def __post_init__(self) -> None:
        limits.positive("peak", self.peak, "a step must lead somewhere")
        limits.whole("warmup", self.warmup, 0, "a warm-up has a number of steps")
        limits.whole("steps", self.steps, self.warmup + 1, "the cosine begins after the warm-up")
        if not 0.0 <= self.floor <= self.peak:
            raise InvalidInput(f"floor must lie between 0 and peak={self.peak}, got {self.floor}.")

    def at(self, step: int) -> float:
        if step < self.warmup:
            return self.peak * (step + 1) / self.warmup
        share = min(1.0, (step - self.warmup) / (self.steps - self.warmup))
        return self.floor + (self.peak - self.floor) * 0.5 * (1.0 + math.cos(math.pi * share))


@dataclass(frozen=True, kw_only=True)
class Staircase:
    """``rate``, multiplied by ``factor`` after every ``every`` steps."""

    rate: float
    factor: float
    every: int

    def __post_init__(self) -> None:
        limits.positive("rate", self.rate, "a step must lead somewhere")
        limits.positive("factor", self.factor, "a stair leads up or down")
        limits.whole("every", self.every, 1, "a stair has a length")

    def at(self, step: int) -> float:
        return self.rate * float(self.factor ** (step // self.every))
