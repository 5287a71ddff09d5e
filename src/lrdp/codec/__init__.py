r"""Bytes and lines that mean one thing only: a value states its format once, and is written and read by that statement.

A :class:`Format` is a label (with its version, perhaps a word for the kind) and named parts in their order, each
with its :class:`Part`: how it is written, and how it is read. Parts are put together in one of two styles::

    packed   before each part its length: below 128 in one byte, any other in four, big-endian, with the top bit set
    line     text, with tabs between the parts

Guarantees: a value has exactly one encoding, for what is read must be what would be written. More bytes or parts than
the limits are refused before they are looked at, so reading bytes costs no more than sending them. Whatever is wrong
with bytes is Malformed, an InvalidInput; a room that has its own error for this raises that instead.

>>> from enum import Enum
>>> from typing import NamedTuple
>>> from lrdp.codec import *
>>> class Kind(Enum):
...     VISIT = "visit"
>>> class Letter(NamedTuple):
...     sender: str
...     kind: Kind
...     pages: tuple
...     copy: bytes | None
...     checksum: int
>>> form = packed(
...     b"LETTER/v1",
...     sender=NAME,
...     kind=one_of(Kind, text(20)),
...     pages=many(row(NUMBER, RAW)),
...     copy=optional(fixed(4)),
...     checksum=whole(2),
... )
>>> letter = Letter("hospital-a", Kind.VISIT, ((1, b"Dear"), (2, b"sirs")), None, 117)
>>> Letter(**form.decode(form.encode(letter))) == letter
True
>>> form.decode(form.encode(letter) + b"more")  # doctest: +ELLIPSIS
Traceback (most recent call last):
lrdp.errors.Malformed: ...
>>> yes = strict(lambda value: "yes" if value else "no", lambda said: said == "yes", 3)
>>> line("note-1", about=word(80), pages=DIGITS, urgent=yes).decode("note-1\ta%09b\t3\tno")
{'about': 'a\tb', 'pages': 3, 'urgent': False}
>>> is_name("hospital-a"), is_name("Hospital A")
(True, False)
"""

from lrdp.codec.formats import (
    LINE,
    MOST_BYTES,
    MOST_PARTS,
    PACKED,
    Format,
    Kinds,
    Part,
    Style,
    line,
    pack,
    packed,
    unpack,
)
from lrdp.codec.parts import (
    DIGITS,
    DOUBLE,
    HEXADECIMAL,
    LONGEST_NAME,
    NAME,
    NUMBER,
    RAW,
    fixed,
    is_name,
    many,
    one_of,
    optional,
    row,
    strict,
    text,
    whole,
    word,
)

__all__ = [
    "DIGITS",
    "DOUBLE",
    "HEXADECIMAL",
    "LINE",
    "LONGEST_NAME",
    "MOST_BYTES",
    "MOST_PARTS",
    "NAME",
    "NUMBER",
    "PACKED",
    "RAW",
    "Format",
    "Kinds",
    "Part",
    "Style",
    "fixed",
    "is_name",
    "line",
    "many",
    "one_of",
    "optional",
    "pack",
    "packed",
    "row",
    "strict",
    "text",
    "unpack",
    "whole",
    "word",
]
