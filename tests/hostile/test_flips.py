"""No bit can be turned unnoticed: a typed error, or the very meaning that was there before."""

from __future__ import annotations

from random import Random

import pytest

from hostile.flips import Kept, everything, outcomes

KEPT = everything()
FEW, MANY = 60, 20_000


def _bits(kept: Kept, most: int) -> list[int]:
    """All of them, or as many of them as ``most``, drawn anew for each length."""
    every = range(8 * len(kept.data))
    return list(every) if len(every) <= most else Random(len(kept.data)).sample(every, most)


def _held(name: str, most: int) -> None:
    kept = KEPT[name]
    count = outcomes(kept, _bits(kept, most))
    assert count["refused"], "a control: something was noticed"
    assert kept.free or not count["other"], count


@pytest.mark.parametrize("name", KEPT)
def test_a_turned_bit_is_noticed_or_changes_nothing(name: str) -> None:
    _held(name, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", KEPT)
def test_all_turned_bits_are_noticed_or_change_nothing(name: str) -> None:
    _held(name, MANY)


def test_a_turned_bit_that_hides_the_newest_entries_is_noticed() -> None:
    """The number of a page's entries: with one bit less the chain still holds, and what was spent would be less."""
    kept = KEPT["ledger, verified"]
    counts = [8 * (page + place) for page in range(0, len(kept.data), 4096) for place in (3, 4)]
    count = outcomes(kept, [bit + shift for bit in counts for shift in range(8)])
    assert not count["other"]
    assert count["refused"] >= 16, "at least all of the one page that holds them"


def test_every_bit_of_a_schema_is_noticed() -> None:
    """Where SQLite's own words stand, a turned bit ended in an exception that nobody had named."""
    kept = KEPT["ledger, verified"]
    start = kept.data.index(b"CREATE TABLE entries")
    count = outcomes(kept, range(8 * start, 8 * start + 400))
    assert count == {"refused": 400}
