"""Reading figures back: every number in a text must be one that is known, on its safe side, and close."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, Final

_NUMBER: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w|\.\d)")
_HASH: Final = re.compile(r"\b[0-9a-f]{24,}\b")
_ROUGHLY: Final = 1 + Fraction(1, 10**9)


class Side(Enum):
    """Where the printed number may lie, seen from the true one."""

    UP = 1
    DOWN = -1
    WHOLE = 0


@dataclass(frozen=True)
class Claim:
    """A number that may be printed; ``value`` is exact."""

    value: Fraction
    side: Side
    near: float

    def fits(self, printed: str) -> bool:
        """Whether it is this number, read back as a float: on its side, and within one unit of the last digit."""
        if not math.isclose(float(printed), self.near, rel_tol=1e-9, abs_tol=2 * float(unit(printed))):
            return False  # most are not, and floats are quick
        excess = Fraction(float(printed)) - self.value
        if self.side is Side.WHOLE:
            return excess == 0
        return 0 <= excess * self.side.value <= unit(printed) * _ROUGHLY


def claim(value: float | int | Fraction, side: Side) -> Claim:
    return Claim(Fraction(value), side, float(value))


def up(*values: float | Fraction) -> list[Claim]:
    return [claim(value, Side.UP) for value in values]


def down(*values: float | Fraction) -> list[Claim]:
    return [claim(value, Side.DOWN) for value in values]


def whole(*values: float | int) -> list[Claim]:
    return [claim(value, Side.WHOLE) for value in values]


def unit(printed: str) -> Fraction:
    """One in the last digit: 0.01 for 3.14, 1e-8 for 1.2e-07."""
    digits, _, exponent = printed.partition("e")
    return Fraction(10) ** (int(exponent or 0) - len(digits.partition(".")[2]))


def numbers(text: str) -> list[str]:
    """All numbers in a text, but for hashes and versions."""
    return _NUMBER.findall(_HASH.sub("", text))


def check(text: str, claims: Iterable[Claim]) -> int:
    """How many numbers there were; each of them must be claimed."""
    known, found = list(claims), numbers(text)
    strangers = [number for number in found if not any(claim.fits(number) for claim in known)]
    assert not strangers, f"{strangers} is no figure on its safe side in {text!r}"
    return len(found)


def floats(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every float in a record or a dataclass, with its path; items of a list have the path of the list."""
    if isinstance(value, float):
        yield path, value
    elif is_dataclass(value):
        for field in fields(value):
            yield from floats(getattr(value, field.name), f"{path}.{field.name}".lstrip("."))
    elif isinstance(value, dict) or hasattr(value, "_asdict"):
        value = value if isinstance(value, dict) else value._asdict()
        for key, item in value.items():
            yield from floats(item, f"{path}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from floats(item, path)
