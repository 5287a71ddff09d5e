"""Learning rates as public values: known before the first record is read."""

from __future__ import annotations

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
    """A learning rate for each step, counted over all rounds: any public value that says it.

    >>> @dataclass(frozen=True)
    ... class Halving:
    ...     first: float
    ...
    ...     def at(self, step: int) -> float:
    ...         return self.first / 2 ** (step // 100)
    >>> as_schedule(Halving(0.5)).at(250)
    0.125
    """

    def at(self, step: int) -> float:
        """The rate of one step."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """The same rate in every step.

    >>> Constant(rate=0.5).at(250)
    0.5
    """

    rate: float

    def __post_init__(self) -> None:
        _check_rate("rate", self.rate)

    def at(self, step: int) -> float:  # noqa: ARG002 - every step is alike
        return self.rate


def as_schedule(lr: float | Schedule) -> Schedule:
    """A number is the same rate in every step."""
    return lr if isinstance(lr, Schedule) else Constant(rate=lr)
