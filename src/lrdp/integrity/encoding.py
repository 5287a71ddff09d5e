"""What this room hashes, signs and keeps, in bytes that mean one thing only.

What is kept states its format (``lrdp.codec``) as a class attribute of ``Encoded``; what is signed or hashed is packed
under a label of its own. Vectors are too large to pack: they follow a packed prefix that holds their type and length.
What travels is smaller, and read by a ``Reader``; see ``wire``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final, Self, TypeVar

from lrdp.codec import Format, Part, fixed, is_name, pack
from lrdp.errors import InvalidInput
from lrdp.integrity.verdicts import Verdict, rejection

if TYPE_CHECKING:
    from hashlib import _Hash

HASH_SIZE = 32
"""Bytes of a SHA-256."""
SIGNATURE_SIZE = 64
"""Bytes of an Ed25519 signature."""
HASH: Final = fixed(HASH_SIZE)
"""Of the size of a hash, which is that of a key too."""
SIGNATURE: Final = fixed(SIGNATURE_SIZE)
_MOST_DIGITS = 10
_PREFIX = b"lrdp/"


class Encoded:
    """A value in the one encoding that its format states; the parts are named as its fields are."""

    FORMAT: ClassVar[Format[bytes]]

    def encode(self) -> bytes:
        return self.FORMAT.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """What ``encode`` made; NotVerified with MALFORMED for any other bytes."""
        with strictly():
            return cls.parse(data)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The same for a part of another value: an error is left as it was raised."""
        return cls(**cls.FORMAT.decode(data))


AnyEncoded = TypeVar("AnyEncoded", bound=Encoded)


def part_of(kind: type[AnyEncoded]) -> Part[bytes, AnyEncoded]:
    """A kept value as a part of another."""
    return Part(kind.encode, kind.parse)


@contextmanager
def strictly() -> Iterator[None]:
    """Bytes that the codec does not take, or that no value can be made from, are MALFORMED in this room."""
    try:
        yield
    except InvalidInput as problem:
        raise rejection(Verdict.MALFORMED, str(problem).rstrip(".")) from None


def checked_name(name: str) -> str:
    """``name`` if it is one."""
    if not is_name(name):
        raise rejection(Verdict.MALFORMED, f"{name[:80]!r} is not a name: up to 63 of a-z, 0-9, '.', '_', '-'")
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
        if value >> 64 or raw != varint(value):
            raise rejection(Verdict.MALFORMED, "a number is too large, or not in its shortest form")
        return value

    def end(self) -> None:
        if self.left:
            raise rejection(Verdict.MALFORMED, f"{self.left} bytes too many")


def statement(label: bytes, *parts: bytes) -> bytes:
    """What is signed: under this label, and no other."""
    return pack(_PREFIX + label, *parts)


def digest(label: bytes, *parts: bytes) -> bytes:
    """SHA-256 of the parts under a label of their own.

    >>> digest(b"a/v1", b"b", b"c") == digest(b"a/v1", b"bc")
    False
    """
    return hashlib.sha256(statement(label, *parts)).digest()


def hasher(label: bytes, *parts: bytes) -> _Hash:
    """A SHA-256 to be fed with a vector, after a prefix that names its type and length."""
    return hashlib.sha256(statement(label, *parts))
