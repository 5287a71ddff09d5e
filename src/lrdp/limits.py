"""The limits every value must keep, checked where it is born: and what was checked is what is kept.

A NaN fails each comparison, so every check is written to pass only on a positive answer. Each check returns the plain
value that it checked, and :func:`keep` stores it in place of what was passed: ``np.int16(30_000)`` is a fine number of
steps, and twice that is -5536. What a check does not know is refused, even where Python would convert it: True is not
a number of steps, and the text "replace-one" is not an adjacency. A refusal carries the name of its field.
"""

from __future__ import annotations

import math
from enum import Enum
from reprlib import repr as shortened
from typing import Final, TypeVar

import numpy as np

from lrdp.errors import InvalidInput

LARGEST_COUNT: Final = 2**63 - 1

Expected = TypeVar("Expected")
# These types and no others: a subclass may answer differently each time it is asked.
_WHOLE: Final = frozenset({int, *(np.dtype(code).type for code in np.typecodes["AllInteger"])})
_REAL: Final = _WHOLE | {float, *(np.dtype(code).type for code in np.typecodes["Float"])}


def keep(value: object, **checked: object) -> None:
    """Store in a frozen value, while it is born, what was checked in place of what was passed."""
    for name, plain in checked.items():
        object.__setattr__(value, name, plain)


def made_by(name: str, value: object, kind: type[Expected]) -> Expected:
    """Return ``value`` if its type is ``kind`` itself; what only looks like one is refused.

    ``isinstance`` asks the value, and a look-alike answers as it likes; an enumeration is compared by identity, so a
    text that equals a member's would be taken for the *other* member.
    """
    return _typed(name, value, kind, type(value) is kind)


def derived_from(name: str, value: object, kind: type[Expected]) -> Expected:
    """The same for a kind that is meant to be derived from."""
    return _typed(name, value, kind, issubclass(type(value), kind))


def _typed(name: str, value: object, kind: type[Expected], is_one: bool) -> Expected:
    if not is_one:
        members = f" ({', '.join(map(str, kind))})" if issubclass(kind, Enum) else ""
        raise InvalidInput(
            f"{name} must be of the type {kind.__name__}{members}, got {brief(value)}, a {type(value).__name__}: a "
            f"figure rests on it, so nothing else is taken for one.",
            field=name,
        )
    plain: Expected = value  # type: ignore[assignment]
    return plain


def positive(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 0 < value < infinity."""
    number = _number(name, value)
    if not 0.0 < number < math.inf:
        raise InvalidInput(f"{name} must be above 0 and finite, got {value}: {reason}.", field=name)
    return number


def between(name: str, value: float, least: float, most: float, reason: str) -> float:
    """Return ``value`` as a float if least ≤ value ≤ most."""
    number = _number(name, value)
    if not least <= number <= most:
        raise InvalidInput(f"{name} must lie between {least} and {most}, got {value}: {reason}.", field=name)
    return number


def open_unit(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 0 < value < 1."""
    number = _number(name, value)
    if not 0.0 < number < 1.0:
        raise InvalidInput(f"{name} must lie strictly between 0 and 1, got {value}: {reason}.", field=name)
    return number


def above_one(name: str, value: float, reason: str) -> float:
    """Return ``value`` as a float if 1 < value < infinity."""
    number = _number(name, value)
    if not 1.0 < number < math.inf:
        raise InvalidInput(f"{name} must be above 1 and finite, got {value}: {reason}.", field=name)
    return number


def bound(name: str, value: float) -> float:
    """Return ``value`` as a float if it is at least 0, which infinity is; what is not a number bounds nothing: +∞."""
    number = _number(name, value)
    if number < 0.0:
        raise InvalidInput(f"{name} must be at least 0, got {value}: nothing is known better than exactly.", field=name)
    return math.inf if math.isnan(number) else number


def whole(name: str, value: int, least: int, reason: str) -> int:
    """Return ``value`` as an int if it is a whole number from ``least`` to 2⁶³ - 1."""
    if type(value) not in _WHOLE:
        raise InvalidInput(f"{name} must be a whole number, got {brief(value)}: {reason}.", field=name)
    number = int(value)
    if not number >= least:
        raise InvalidInput(f"{name} must be at least {least}, got {brief(number)}: {reason}.", field=name)
    if not number <= LARGEST_COUNT:
        raise InvalidInput(
            f"{name} must be at most 2**63 - 1, got {brief(number)}: a larger one is not a count.", field=name
        )
    return number


def brief(value: object) -> str:
    """``value`` as an error shows it: in a few characters, whatever it is."""
    try:
        return shortened(value)
    except ValueError:  # Python does not print a number of more than 4300 digits
        return "a number of thousands of digits"


def _number(name: str, value: object) -> float:
    if type(value) not in _REAL:  # a text that reads as a number is not one, nor is a tensor that holds one
        raise InvalidInput(f"{name} must be a number, got {brief(value)}, a {type(value).__name__}.", field=name)
    try:
        number = float(value)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if number != value and not math.isnan(number):
        raise InvalidInput(f"{name} must be a number that a double holds exactly, got one near {number}.", field=name)
    return number
