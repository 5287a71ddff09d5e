"""Formats: how parts are put together, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from lrdp.errors import Malformed

MOST_BYTES: Final = 4 << 20
"""What is packed may have so many bytes unless its format says otherwise."""
MOST_PARTS: Final = 1 << 16
"""And so many parts."""
_SHORT: Final = 1 << 7
_LONG: Final = 1 << 31
_LENGTHS: Final = [bytes([size]) for size in range(_SHORT)]

Said = TypeVar("Said", bytes, str)
Value = TypeVar("Value")


def pack(*parts: bytes) -> bytes:
    r"""One byte string, from which ``unpack`` gets the parts back: injective.

    >>> pack(b"a", b"", b"bcd")
    b'\x01a\x00\x03bcd'
    >>> unpack(pack(b"a", b"", b"bcd"))
    [b'a', b'', b'bcd']
    """
    return _packed(parts)


def _packed(parts: Iterable[bytes]) -> bytes:
    said: list[bytes] = []
    for part in parts:
        size = len(part)
        said += (_LENGTHS[size] if size < _SHORT else (_LONG + size).to_bytes(4, "big"), part)
    return b"".join(said)


def unpack(data: bytes, most: int = MOST_PARTS, most_bytes: int = MOST_BYTES) -> list[bytes]:
    """The parts of ``data``, which must hold nothing else, and no more than ``most`` of them."""
    parts: list[bytes] = []
    start, end = 0, len(data)
    if end > most_bytes:
        raise Malformed(f"{end} bytes, at most {most_bytes} are read.")
    while start < end:
        if len(parts) == most:
            raise Malformed(f"more than {most} parts.")
        size, after = data[start], start + 1
        if size >= _SHORT:
            after = start + 4
            size = int.from_bytes(data[start:after], "big") & ~_LONG
        if after + size > end or data[start] >= _SHORT > size:
            raise Malformed("a part is cut short, or its length is not in its shortest form.")
        start = after + size
        parts.append(data[after:start])
    return parts


def _fields(text: str, most: int, most_characters: int) -> list[str]:
    if len(text) > most_characters:
        raise Malformed(f"{len(text)} characters, at most {most_characters} are read.")
    return text.split("\t", most)


@dataclass(frozen=True)
class Style(Generic[Said]):
    """How parts are joined, and split again; split stops soon after ``most`` parts."""

    join: Callable[[Iterable[Said]], Said]
    split: Callable[[Said, int, int], list[Said]]


PACKED: Final = Style(_packed, unpack)
"""Bytes: before each part its length."""
LINE: Final = Style("\t".join, _fields)
"""Text: tabs between the parts."""


@dataclass(frozen=True)
class Part(Generic[Said, Value]):
    """How one value is written, and read; ``read`` takes nothing but what ``write`` writes."""

    write: Callable[[Value], Said]
    read: Callable[[Said], Value]


@dataclass(frozen=True)
class Format(Generic[Said]):
    """A label, and parts by the names of the attributes they encode; ``a.b`` is the attribute of an attribute."""

    style: Style[Said]
    label: tuple[Said, ...]
    parts: Mapping[str, Part[Said, Any]]
    most: int = MOST_BYTES

    @cached_property
    def _writers(self) -> list[tuple[Callable[[Any], Any], Callable[[Any], Said]]]:
        return [(attrgetter(name), part.write) for name, part in self.parts.items()]

    @cached_property
    def _readers(self) -> list[tuple[str, Callable[[Said], Any]]]:
        return [(name, part.read) for name, part in self.parts.items()]

    def written(self, value: object) -> list[Said]:
        """Each part of the value as it is written."""
        return [write(get(value)) for get, write in self._writers]

    def encode(self, value: object) -> Said:
        """The one encoding of the value."""
        return self.style.join(list(self.label) + self.written(value))

    def split(self, data: Said) -> list[Said]:
        """Each part of what ``encode`` wrote, as it was written."""
        return self.after_label(self.style.split(data, len(self.label) + len(self.parts), self.most))

    def decode(self, data: Said) -> dict[str, Any]:
        """What ``encode`` wrote, by name and in order."""
        return self.read(self.split(data))

    def after_label(self, found: list[Said]) -> list[Said]:
        """The parts without the label, if it is this format's label and the number of parts is right."""
        size = len(self.label)
        if tuple(found[:size]) != self.label or len(found) - size != len(self.parts):
            raise Malformed(f"not {' '.join(map(repr, self.label)) or 'a row'} with {len(self.parts)} parts.")
        return found[size:]

    def read(self, parts: Iterable[Said]) -> dict[str, Any]:
        """What ``written`` wrote, by name and in order."""
        return {name: read(part) for (name, read), part in zip(self._readers, parts, strict=True)}


def packed(*label: bytes, **parts: Part[bytes, Any]) -> Format[bytes]:
    """A format of bytes."""
    return Format(PACKED, label, parts)


def line(*label: str, **parts: Part[str, Any]) -> Format[str]:
    """A format of one line of text."""
    return Format(LINE, label, parts)


@dataclass(frozen=True)
class Kinds(Generic[Said]):
    """Formats of one style under one label, by the last word of their labels, which tells them apart."""

    formats: Mapping[Said, Format[Said]]

    @cached_property
    def _limits(self) -> tuple[int, int, int]:
        one, *_ = every = list(self.formats.values())
        return len(one.label), len(one.label) + max(len(found.parts) for found in every), one.most

    @cached_property
    def _split(self) -> Callable[[Said, int, int], list[Said]]:
        return next(iter(self.formats.values())).style.split

    def decode(self, data: Said) -> tuple[Said, dict[str, Any]]:
        """The word, and what its format encoded."""
        size, most, most_bytes = self._limits
        parts = self._split(data, most, most_bytes)
        word = parts[size - 1] if len(parts) >= size else None
        if word is None or (found := self.formats.get(word)) is None:
            raise Malformed(f"{str(word)[:40]} is none of the kinds {', '.join(map(str, self.formats))}.")
        return word, found.read(found.after_label(parts))
