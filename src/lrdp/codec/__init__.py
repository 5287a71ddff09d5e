"""Bytes and lines that mean one thing only: a value states its format once, and is written and read by that statement.

A :class:`Format` is a label (with its version, perhaps a word for the kind) and named parts in their order, each
with its :class:`Part`: how it is written, and how it is read. Parts are put together in one of two styles::

    packed   before each part its length: below 128 in one byte, any other in four, big-endian, with the top bit set
    line     text, with tabs between the parts

Guarantees: a value has exactly one encoding, for what is read must be what would be written. More bytes or parts than
the limits are refused before they are looked at, so reading bytes costs no more than sending them. Whatever is wrong
with bytes is Malformed, an InvalidInput; a room that has its own error for this raises that instead.
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
