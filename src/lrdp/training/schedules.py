"""Learning rates as public values: known before the first record is read."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from lrdp import limits
from lrdp.errors import InvalidInput

_MOST = 1e9


def _check_rate(name: str, value: float) -> None:
    limits.positive(name, value, "a step must lead somewhere")
    if value > _MOST:
        raise InvalidInput(f"{name} must be at most {_MOST}, got {value}: weights would leave float32 in one step.")


@runtime_checkable
class Schedule(Protocol):
    """A learning rate for each step, counted over all rounds."""

    def at(self, step: int) -> float:
        """The rate of one step."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same rate in every step."""

    rate: float

    def __post_init__(self) -> None:
        _check_rate("rate", self.rate)

    def at(self, step: int) -> float:  # noqa: ARG002 - every step is alike
        return self.rate


def as_schedule(lr: float | Schedule) -> Schedule:
    """A number is the same rate in every step."""
    return lr if isinstance(lr, Schedule) else Constant(rate=lr)


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
        _check_rate("peak", self.peak)
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
        _check_rate("rate", self.rate)
        limits.positive("factor", self.factor, "a stair leads up or down")
        limits.whole("every", self.every, 1, "a stair has a length")

    def at(self, step: int) -> float:
        stairs = step // self.every
        if stairs * math.log(self.factor) > math.log(_MOST / self.rate):
            return _MOST
        return self.rate * float(self.factor**stairs)
