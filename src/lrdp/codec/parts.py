"""Parts: how one value is written and read."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from enum import Enum
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

from lrdp.codec.formats import MOST_BYTES, MOST_PARTS, Part, Said, Value, pack, packed, unpack
from lrdp.errors import Malformed

LONGEST_NAME: Final = 63
"""Characters of a name, as of a label in DNS."""
_LONGEST_CHOICE: Final = 80
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_SAFE: Final = " ()[],:;=+-*/._'<>"
_DOUBLE: Final = struct.Struct("<d")

OneOf = TypeVar("OneOf", bound=Enum)


def strict(write: Callable[[Value], Said], read: Callable[[Said], Value], most: int) -> Part[Said, Value]:
    """A part of at most ``most`` bytes or characters; ``read`` may be lax: what it found is written and compared."""

    def checked(said: Said) -> Value:
        if len(said) > most:
            raise Malformed(f"{len(said)} bytes where {most} are the most.")
        try:
            value = read(said)
            same = write(value) == said
        except (ValueError, OverflowError, struct.error) as problem:
            raise Malformed(f"{said[:40]!r} cannot be read: {str(problem).rstrip('.')}.") from None
        if not same:
            raise Malformed(f"{said[:40]!r} is another way to write {value!r:.40}: a value is written in one way.")
        return value

    return Part(write, checked)


def fixed(size: int) -> Part[bytes, bytes]:
    """Exactly ``size`` bytes: a hash, a key, a signature."""

    def same(part: bytes) -> bytes:
        if len(part) != size:
            raise Malformed(f"{len(part)} bytes where {size} belong.")
        return part

    return Part(same, same)


def whole(size: int) -> Part[bytes, int]:
    """A whole number, 0 or more, in ``size`` bytes, the least significant first."""
    return strict(lambda value: value.to_bytes(size, "little"), lambda part: int.from_bytes(part, "little"), size)


def text(most: int, encoding: str = "ascii") -> Part[bytes, str]:
    """A text of at most ``most`` bytes."""
    return strict(lambda value: value.encode(encoding), lambda part: part.decode(encoding), most)


def is_name(name: str) -> bool:
    """Lower-case ASCII, so that no two names look alike and each is a safe file name."""
    return _NAME.fullmatch(name) is not None


def _name(part: bytes) -> str:
    if not is_name(name := part.decode("ascii", errors="replace")):
        raise Malformed("a name has up to 63 of a-z, 0-9, '.', '_', '-'.")
    return name


def _double(part: bytes) -> float:
    if math.isnan(value := float(*_DOUBLE.unpack(part))):
        raise Malformed("not a number, which has many encodings and no meaning.")
    return value


RAW: Final = Part(bytes, bytes)
"""Bytes as they are."""
NUMBER: Final = whole(8)
"""A whole number below 2^64, in eight bytes."""
DOUBLE: Final[Part[bytes, float]] = strict(_DOUBLE.pack, _double, _DOUBLE.size)
"""A float in its eight bytes; never what is not a number."""
NAME: Final = strict(str.encode, _name, LONGEST_NAME)
"""The name of a party, as :func:`is_name` wants it."""
DIGITS: Final = strict(lambda value: str(int(value)), int, 40)
"""In a line: a whole number."""
HEXADECIMAL: Final = strict(lambda value: (math.inf if math.isnan(value) else float(value)).hex(), float.fromhex, 64)
"""In a line: a float, exactly. What is not a number is written as infinity, which no budget admits."""


def word(most: int) -> Part[str, str]:
    """Any text in a line, percent-encoded, so that it holds no tab and no line end."""
    return strict(lambda value: quote(value, safe=_SAFE), lambda said: unquote_to_bytes(said).decode(), most)


def one_of(kind: type[OneOf], part: Part[Said, str]) -> Part[Said, OneOf]:
    """A member of an enumeration of texts."""
    return strict(lambda member: part.write(member.value), lambda said: kind(part.read(said)), _LONGEST_CHOICE)


def optional(part: Part[bytes, Value]) -> Part[bytes, Value | None]:
    """A part, or nothing in the place of None: so the part itself must never be empty."""

    def write(value: Value | None) -> bytes:
        said = b"" if value is None else part.write(value)
        if value is not None and not said:
            raise Malformed("an optional part must not be empty: it would be read as None.")
        return said

    return Part(write, lambda said: part.read(said) if said else None)


def many(
    part: Part[bytes, Value], most: int = MOST_PARTS, most_bytes: int = MOST_BYTES
) -> Part[bytes, tuple[Value, ...]]:
    """Up to ``most`` values of one kind, packed."""
    return Part(
        lambda values: pack(*map(part.write, values)),
        lambda said: tuple(map(part.read, unpack(said, most, most_bytes))),
    )


def row(*parts: Part[bytes, Any]) -> Part[bytes, tuple[Any, ...]]:
    """One of each, packed."""
    each = packed(**{str(place): part for place, part in enumerate(parts)})
    return Part(
        lambda values: pack(*(part.write(value) for part, value in zip(parts, values, strict=True))),
        lambda said: tuple(each.decode(said).values()),
    )
