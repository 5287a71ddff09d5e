"""The codec: whatever is read is what would be written, in every style and part, and hostile bytes cost little."""

from __future__ import annotations

import math
import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lrdp.codec import (
    DIGITS,
    DOUBLE,
    HEXADECIMAL,
    LINE,
    NAME,
    NUMBER,
    PACKED,
    RAW,
    Format,
    Kinds,
    Part,
    fixed,
    line,
    many,
    one_of,
    optional,
    pack,
    packed,
    row,
    text,
    unpack,
    whole,
    word,
)
from lrdp.errors import InvalidInput, Malformed


class Shade(StrEnum):
    LIGHT = "light"
    DARK = "very dark"


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str
    size: int


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    key: bytes
    scale: float | None
    shades: tuple[Shade, ...]
    pairs: tuple[tuple[str, int], ...]


class Entry(NamedTuple):
    at: int
    scale: float
    said: str
    shade: Shade


INNER = packed(b"INNER/v1", name=NAME, size=NUMBER)
OUTER = packed(
    b"OUTER/v3",
    inner=Part(INNER.encode, lambda data: Inner(**INNER.decode(data))),
    key=fixed(32),
    scale=optional(DOUBLE),
    shades=many(one_of(Shade, text(20)), 5),
    pairs=many(row(text(9, "utf-8"), whole(2))),
)
ENTRY = line("ENTRY", at=DIGITS, scale=HEXADECIMAL, said=word(99), shade=one_of(Shade, word(99)))

names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,62}", fullmatch=True)
numbers = st.integers(0, 2**64 - 1)
doubles = st.floats(allow_nan=False)
inners = st.builds(Inner, name=names, size=numbers)
outers = st.builds(
    Outer,
    inner=inners,
    key=st.binary(min_size=32, max_size=32),
    scale=st.none() | doubles,
    shades=st.lists(st.sampled_from(Shade), max_size=5).map(tuple),
    pairs=st.lists(st.tuples(st.text(max_size=2), st.integers(0, 65535))).map(tuple),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
entries = st.builds(Entry, at=st.integers(-(2**63), 2**63), scale=doubles, said=texts, shade=st.sampled_from(Shade))


@given(outers)
def test_a_value_is_read_as_it_was_written(value: Outer) -> None:
    assert Outer(**OUTER.decode(OUTER.encode(value))) == value


@given(entries)
def test_a_line_is_read_as_it_was_written_and_holds_no_end(value: Entry) -> None:
    said = ENTRY.encode(value)
    assert Entry._make(ENTRY.decode(said).values()) == value
    assert "\n" not in said
    assert said.count("\t") == len(value)


def test_the_bytes_are_those_of_the_specification() -> None:
    """By hand: a length, a part; numbers with the least byte first; a long part after four bytes of length."""
    assert INNER.encode(Inner(name="ab", size=258)) == b"\x08INNER/v1\x02ab\x08\x02\x01\0\0\0\0\0\0"
    assert pack(b"", b"x" * 127, b"y" * 128) == b"\0\x7f" + b"x" * 127 + b"\x80\0\0\x80" + b"y" * 128
    assert (
        ENTRY.encode(Entry(7, 1.5, "a\tb é", Shade.DARK)) == "ENTRY\t7\t0x1.8000000000000p+0\ta%09b %C3%A9\tvery dark"
    )


def _same_or_malformed(read: Callable[[Any], Any], write: Callable[[Any], Any], data: Any) -> bool:
    """Whether it is read; then it is written as the same bytes. Any other error than Malformed is raised."""
    try:
        value = read(data)
    except Malformed:
        return False
    assert write(value) == data
    return True


@st.composite
def nearly(draw: st.DrawFn, good: Any) -> Any:
    """A good encoding with a few letters replaced, inserted or removed."""
    letters = st.binary(max_size=5) if isinstance(good, bytes) else st.text(max_size=5)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(good)))
        good = good[:at] + draw(letters) + good[at + draw(st.integers(0, 5)) :]
    return good


@given(st.data())
def test_whatever_bytes_are_read_are_written_as_the_same_bytes(data: st.DataObject) -> None:
    said = data.draw(st.one_of(st.binary(max_size=200), nearly(OUTER.encode(data.draw(outers)))))
    _same_or_malformed(lambda bytes_: Outer(**OUTER.decode(bytes_)), OUTER.encode, said)


@given(st.data())
def test_whatever_line_is_read_is_written_as_the_same_line(data: st.DataObject) -> None:
    said = data.draw(st.one_of(st.text(max_size=80), nearly(ENTRY.encode(data.draw(entries)))))
    _same_or_malformed(lambda text_: Entry(**ENTRY.decode(text_)), ENTRY.encode, said)


PARTS: dict[str, Part[bytes, Any]] = {
    "raw": RAW,
    "number": NUMBER,
    "double": DOUBLE,
    "name": NAME,
    "fixed": fixed(3),
    "whole": whole(2),
    "ascii": text(9),
    "utf-8": text(9, "utf-8"),
    "one of": one_of(Shade, text(20)),
    "optional": optional(NUMBER),
    "many": many(whole(1), 4),
    "row": row(NAME, whole(1)),
}
SAYINGS: dict[str, Part[str, Any]] = {
    "digits": DIGITS,
    "hexadecimal": HEXADECIMAL,
    "word": word(50),
    "one of": one_of(Shade, word(50)),
}


@pytest.mark.parametrize("name", PARTS)
@given(said=st.binary(max_size=12) | st.sampled_from([struct.pack("<d", 1.5), b"light", b"\x01a\x01b", b"ab"]))
@example(said=struct.pack("<d", math.nan))
@example(said=b"\xc0\x80")
@example(said=b"")
def test_every_part_has_one_encoding_of_a_value(name: str, said: bytes) -> None:
    _same_or_malformed(PARTS[name].read, PARTS[name].write, said)


@pytest.mark.parametrize("name", SAYINGS)
@given(said=st.text(max_size=12) | st.sampled_from(["light", "0x1.8000000000000p+0", "a%09b", "-12"]))
@example(said="+1")
@example(said="1_0")
@example(said=" 1")
@example(said="٣")
@example(said="nan")
@example(said="0x1.8p+0")
@example(said="0x1p99999")
@example(said="%2f")
@example(said="%e9")
@example(said="")
def test_every_part_of_a_line_has_one_text_of_a_value(name: str, said: str) -> None:
    _same_or_malformed(SAYINGS[name].read, SAYINGS[name].write, said)


def test_control_a_lax_part_is_seen() -> None:
    lax: Part[str, int] = Part(str, int)
    with pytest.raises(AssertionError):
        _same_or_malformed(lax.read, lax.write, "+1")


def test_what_is_not_a_number_is_written_on_a_line_as_infinity_and_nowhere_else() -> None:
    assert HEXADECIMAL.write(math.nan) == "inf"
    with pytest.raises(Malformed, match="not a number"):
        DOUBLE.read(struct.pack("<d", math.nan))


@pytest.mark.parametrize(
    "damaged",
    {
        "nothing": b"",
        "another version": pack(b"INNER/v2", b"a", bytes(8)),
        "a part less": pack(b"INNER/v1", b"a"),
        "a part more": pack(b"INNER/v1", b"a", bytes(8), b""),
        "a byte more": pack(b"INNER/v1", b"a", bytes(8)) + b"\0",
        "a number too short": pack(b"INNER/v1", b"a", bytes(7)),
        "a number too long": pack(b"INNER/v1", b"a", bytes(9)),
        "no name": pack(b"INNER/v1", b"A", bytes(8)),
        "a long name": pack(b"INNER/v1", b"a" * 64, bytes(8)),
        "a length in four bytes": b"\x80\0\0\x08INNER/v1\x01a\x08" + bytes(8),
        "cut short": pack(b"INNER/v1", b"a", bytes(8))[:-1],
        "cut in a length": pack(b"INNER/v1", b"a") + b"\x80\0",
    }.items(),
    ids=lambda item: item[0],
)
def test_anything_else_is_malformed_which_is_an_invalid_input(damaged: tuple[str, bytes]) -> None:
    with pytest.raises(Malformed) as caught:
        INNER.decode(damaged[1])
    assert isinstance(caught.value, InvalidInput)
    assert str(caught.value).endswith(".")


def test_control_the_undamaged_bytes_are_read() -> None:
    assert INNER.decode(pack(b"INNER/v1", b"a", bytes(8))) == {"name": "a", "size": 0}


def test_what_cannot_be_read_back_is_not_written() -> None:
    with pytest.raises(Malformed, match="32 belong"):
        OUTER.encode(Outer(inner=Inner(name="a", size=0), key=b"", scale=None, shades=(), pairs=()))
    with pytest.raises(Malformed, match="None"):
        optional(RAW).write(b"")
    with pytest.raises(OverflowError):
        NUMBER.write(2**64)


def test_a_kind_is_found_by_the_last_word_of_its_head() -> None:
    more: dict[bytes, dict[str, Part[bytes, Any]]] = {b"short": {}, b"long": {"said.words": text(9)}}
    kinds = Kinds({kind: packed(b"letters/v1", kind, sent=NUMBER, **rest) for kind, rest in more.items()})
    assert kinds.decode(pack(b"letters/v1", b"short", bytes(8))) == (b"short", {"sent": 0})
    assert kinds.decode(pack(b"letters/v1", b"long", bytes(8), b"ab")) == (
        b"long",
        {"sent": 0, "said.words": "ab"},
    )
    for other in (b"", pack(b"letters/v1"), pack(b"letters/v2", b"short", bytes(8)), pack(b"letters/v1", b"other")):
        with pytest.raises(Malformed):
            kinds.decode(other)
    with pytest.raises(Malformed):
        kinds.decode(pack(b"letters/v1", b"short", bytes(8), b"ab"))


def test_an_attribute_of_an_attribute_is_named_with_a_dot() -> None:
    named: dict[str, Part[bytes, Any]] = {"inner.name": NAME, "key": RAW}
    flat = packed(b"flat/v1", **named)
    value = Outer(inner=Inner(name="a", size=0), key=b"k", scale=None, shades=(), pairs=())
    assert flat.decode(flat.encode(value)) == {"inner.name": "a", "key": b"k"}


def test_lines_are_told_apart_by_their_first_word_and_a_tab_too_many_is_noticed() -> None:
    kinds: Kinds[str] = Kinds({"ONE": line("ONE", at=DIGITS), "TWO": line("TWO", at=DIGITS, said=word(9))})
    assert kinds.decode("TWO\t1\ta") == ("TWO", {"at": 1, "said": "a"})
    for other in ("TWO\t1\ta\t", "TWO\t1", "ONE\t1\ta", "THREE\t1", "", "ONE", "ONE\t1\n"):
        with pytest.raises(Malformed):
            kinds.decode(other)


def test_more_bytes_or_parts_than_the_limits_are_refused_before_they_are_looked_at() -> None:
    small = Format(PACKED, (b"A",), {"raw": RAW}, most=16)
    assert small.decode(pack(b"A", bytes(13))) == {"raw": bytes(13)}
    with pytest.raises(Malformed, match="17 bytes, at most 16"):
        small.decode(pack(b"A", bytes(14)))
    with pytest.raises(Malformed, match="more than 5 parts"):
        OUTER.parts["shades"].read(pack(*[b"light"] * 6))
    with pytest.raises(Malformed, match="17 characters, at most 16"):
        Format(LINE, ("A",), {}, most=16).decode("A" * 17)


@pytest.mark.parametrize("data", [bytes(4 << 20), b"\x80\xff\xff\xff" * (1 << 18), b"\xff" * 64, b"\x01a" * (1 << 21)])
def test_hostile_bytes_take_no_memory_of_their_own(data: bytes) -> None:
    tracemalloc.start()
    try:
        for read in (OUTER.decode, OUTER.parts["pairs"].read, lambda data: unpack(data, 16)):
            with pytest.raises(Malformed):
                read(data)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 8 << 20
