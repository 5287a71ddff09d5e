"""The limits every number must keep, checked where a value is born.

A NaN fails each comparison, so every check is written to pass only on a positive answer.
"""

from __future__ import annotations

import math
import operator
from numbers import Real
from typing import Final

from lrdp.errors import InvalidInput

HEADROOM: Final = {"float32": 2.0**-7, "float64": 2.0**-16}
"""The share of the clip norm that is kept free for rounding, by the type of the weights: what training clips to, and
what a statement says of it."""


def positive(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 0 < value < infinity."""
    number = _number(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidInput(f"{name} must be above 0 and finite, got {value}: {reason}.")
    return number


def between(name: str, value: float, least: float, most: float, reason: str) -> float:
    """Return ``value`` as a float if least ≤ value ≤ most."""
    number = _number(name, value)
    if not least <= number <= most:
        raise InvalidInput(f"{name} must lie between {least} and {most}, got {value}: {reason}.")
    return number


def open_unit(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 0 < value < 1."""
    number = _number(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value}: {reason}.")
    return number


def above_one(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 1 < value < infinity."""
    number = _number(name, value)
    if not 1.0 < number < math.inf:
        raise InvalidInput(f"{name} must be above 1 and finite, got {value}: {reason}.")
    return number


def whole(name: str, value: int, least: int, reason: str) -> int:
    """Return ``value`` as an int if it is a whole number of at least ``least``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidInput(f"{name} must be a whole number, got {value!r}: {reason}.") from None
    if not number >= least:
        raise InvalidInput(f"{name} must be at least {least}, got {value}: {reason}.")
    return number


def _number(name: str, value: object) -> float:
    if not isinstance(value, Real):  # a text that reads as a number is not one
        raise InvalidInput(f"{name} must be a number, got {value!r}.")
    return float(value)
