"""Bytes that mean one thing only: what is hashed, signed or sent is length-prefixed and begins with a label.

What is kept is ``pack(label, field, …)``: for each part its length, then the part. A length below 128 is one byte, any
other four bytes, big-endian, with the top bit set. What travels is smaller, and read by a ``Reader``; see ``wire``.
Decoding is strict, so everything has exactly one encoding. Vectors are too large to pack: they follow a packed prefix
that holds their type and length.

What is packed is small, and has few parts: more is refused before it is looked at, so no bytes cost more than they did
whoever sent them.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

from lrdp.integrity.verdicts import Verdict, rejection

if TYPE_CHECKING:
    from hashlib import _Hash

HASH_SIZE = 32
SIGNATURE_SIZE = 64
NUMBER_SIZE = 8
MOST_BYTES = 4 << 20
"""Of anything packed: a registry of 20,000 members, a receipt of 9,000 participants."""
MOST_PARTS = 1 << 16
LONGEST_NAME = 63
_MOST_DIGITS = 10
_PREFIX = b"lrdp/"
_SHORT = 1 << 7
_LONG = 1 << 31
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def pack(*parts: bytes) -> bytes:
    """One string of bytes from which ``unpack`` gets the parts back: injective."""
    return b"".join(_length(len(part)) + part for part in parts)


def _length(size: int) -> bytes:
    return size.to_bytes(1, "big") if size < _SHORT else (_LONG | size).to_bytes(4, "big")


def unpack(data: bytes, most: int = MOST_PARTS, most_bytes: int = MOST_BYTES) -> tuple[bytes, ...]:
    """The parts of ``data``, which must hold nothing else, and no more than ``most`` of them."""
    if len(data) > most_bytes:
        raise rejection(Verdict.MALFORMED, f"{len(data)} bytes, and {most_bytes} is the most")
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        if len(parts) == most:
            raise rejection(Verdict.MALFORMED, f"more than {most} parts")
        start = position + (1 if data[position] < _SHORT else 4)
        size = int.from_bytes(data[position:start], "big") & ~_LONG
        if start + size > len(data) or data[position:start] != _length(size):
            raise rejection(Verdict.MALFORMED, "a part is cut short, or its length is not in its shortest form")
        parts.append(data[start : start + size])
        position = start + size
    return tuple(parts)


def fields(data: bytes, label: bytes, count: int) -> tuple[bytes, ...]:
    """The ``count`` fields of a message that begins with ``label``."""
    found, *rest = unpack(data, count + 1) or (b"",)
    if found != label or len(rest) != count:
        raise rejection(Verdict.MALFORMED, f"not a message {label.decode()} of {count} fields")
    return tuple(rest)


def number(value: int) -> bytes:
    """A whole number in [0, 2^64)."""
    return value.to_bytes(NUMBER_SIZE, "little")


def as_number(part: bytes) -> int:
    """What ``number`` encoded."""
    return int.from_bytes(sized(part, NUMBER_SIZE), "little")


def as_name(part: bytes) -> str:
    """A name, or MALFORMED."""
    return checked_name(part[: LONGEST_NAME + 1].decode("ascii", errors="replace"))


def is_name(name: str) -> bool:
    """Lower-case ASCII, so that no two names look alike and each is a safe file name."""
    return _NAME.fullmatch(name) is not None


def checked_name(name: str) -> str:
    """``name`` if it is one."""
    if not is_name(name):
        raise rejection(Verdict.MALFORMED, f"{name[:80]!r} is no name: up to 63 of a-z, 0-9, '.', '_', '-'")
    return name


def sized(part: bytes, size: int) -> bytes:
    """``part`` if it has ``size`` bytes."""
    if len(part) != size:
        raise rejection(Verdict.MALFORMED, f"{len(part)} bytes where {size} belong")
    return part


def hashes(*parts: bytes) -> None:
    """Each must have the size of a hash, which is that of a key too."""
    for part in parts:
        sized(part, HASH_SIZE)


def varint(value: int) -> bytes:
    """A whole number in as few bytes as it needs: seven bits each, least first, the top bit set on all but the last."""
    low, rest = value & 127, value >> 7
    return bytes([low | 128]) + varint(rest) if rest else bytes([low])


class Reader:
    """Takes parts of known sizes from the front of a message, which must hold neither less nor more."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise rejection(Verdict.MALFORMED, f"cut short: {self.left} bytes where {size} belong")
        self._at += size
        return self._data[self._at - size : self._at]

    def varint(self) -> int:
        """What ``varint`` wrote, in its shortest form and below 2^64."""
        start = self._at
        while self.take(1)[0] & 128 and self._at - start < _MOST_DIGITS:
            pass
        raw = self._data[start : self._at]
        value = sum((byte & 127) << 7 * place for place, byte in enumerate(raw))
        if value >> 8 * NUMBER_SIZE or raw != varint(value):
            raise rejection(Verdict.MALFORMED, "a number is too large, or not in its shortest form")
        return value

    def end(self) -> None:
        if self.left:
            raise rejection(Verdict.MALFORMED, f"{self.left} bytes too many")


def statement(label: bytes, *parts: bytes) -> bytes:
    """What is signed: under this label, and no other."""
    return pack(_PREFIX + label, *parts)


def digest(label: bytes, *parts: bytes) -> bytes:
    """SHA-256 of the parts under a label of their own."""
    return hashlib.sha256(statement(label, *parts)).digest()


def hasher(label: bytes, *parts: bytes) -> _Hash:
    """A SHA-256 to be fed with a vector, after a prefix that names its type and length."""
    return hashlib.sha256(statement(label, *parts))
