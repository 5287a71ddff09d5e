"""Refusing costs no more than asking: every decoder on 16 MiB of bytes that are cheap to send.

Seconds are measured by ``measure.py``; here it is memory that is counted, and how each refusal ends.
"""

from __future__ import annotations

import pytest

from hostile.decoders import ELSEWHERE, found, table
from hostile.inputs import COMMON, MANY, own
from hostile.measure import WORK, outcome, peak

SMALL = 2 << 20  # what any refusal may take beside: buffers, and a registry's worth of objects
QUICK = ("zeros", "ones", "tiny parts", "newlines", "a long key of TOML", "a bomb")

_LONGER = ("its own, again and again", "its own, and zeros", "its own, and spaces")
_HALF = "half of its own, and digits"
TAKEN = {
    # A frame, whose parts others read, and the bytes that follow it in the stream.
    "federation.wire.sockets.receive": ("a guard's first words", *_LONGER, _HALF),
    # Any number of parts, which others read.
    "codec.formats.unpack": ("nested lengths",),
    # SQLite reads as many pages as it wrote, and here only those of the entries, which are checked one by one.
    "ledger.export.verify of a ledger ": (*_LONGER, _HALF),
    # JSON that ends in spaces.
    "federation.server.archive.Archive ": ("its own, and spaces",),
}
"""What may be taken after all: it means what the first bytes mean, or nothing yet."""


def test_no_reader_is_forgotten() -> None:
    known = {name for name in table() if not name.endswith(" ")}
    assert known | set(ELSEWHERE) == found()


@pytest.mark.parametrize("name", table())
def test_what_a_decoder_is_given_here_as_its_own_is_its_own(name: str) -> None:
    """A control: refusing everything would pass every other test."""
    refused_anyway = ("read_columns", "of a vector ", "Standing.load")
    assert (outcome(table()[name], table()[name].sample) == "taken") is not name.endswith(refused_anyway)


def _refused_cheaply(name: str, kind: str, data: bytes, most: int) -> None:
    decoder = table()[name]
    said: list[str] = []
    taken = peak(lambda: said.append(outcome(decoder, data)))
    assert said != ["taken"] or decoder.takes_anything or kind in TAKEN.get(name, ()), (name, kind)
    assert taken <= 2 * most + SMALL, (name, kind, taken / most)


@pytest.mark.parametrize("kind", QUICK)
def test_sixteen_mebibytes_are_refused_by_every_decoder_within_twice_their_size(kind: str) -> None:
    data = COMMON[kind](MANY)
    assert len(data) == MANY
    for name in table():
        _refused_cheaply(name, kind, data, MANY)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", COMMON)
@pytest.mark.parametrize("size", [MANY, MANY + 1, MANY // 4], ids=["16 MiB", "a byte more", "4 MiB"])
def test_every_hostile_input_is_refused_by_every_decoder_within_twice_sixteen_mebibytes(kind: str, size: int) -> None:
    data = COMMON[kind](size)
    for name in table():
        _refused_cheaply(name, kind, data, MANY)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in table() if name not in WORK])
def test_a_decoder_s_own_bytes_made_long_are_refused_within_twice_their_size(name: str) -> None:
    for kind, data in own(table()[name], MANY):
        _refused_cheaply(name, kind, data, MANY)
