"""Entries with a right hash that cannot stand where they do: each is read in full, and after those before it."""

from pathlib import Path

import pytest

from ledger.worlds import STEP, World, request, round_trip
from lrdp.errors import LedgerDamaged
from lrdp.ledger import Refusal, events
from lrdp.ledger.books import Books
from lrdp.ledger.chain import GENESIS, link


@pytest.fixture
def used(world: World) -> World:
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
    return world


def test_a_ledger_of_a_later_format_is_refused_with_the_reason(used: World) -> None:
    with used.open() as ledger:
        line = events.encode(ledger.books.opened._replace(format="2"))
    with pytest.raises(LedgerDamaged, match=r"of format '2' and this release, lrdp .*, reads 1: nothing was changed"):
        Books().append(line, link(GENESIS, line))


def test_entries_that_cannot_follow_are_refused(world: World) -> None:
    with world.create() as ledger:
        receipt = ledger.charge(request())
        entry, opening = receipt.entry, ledger.books.opened
        ledger_charge = ledger.books.charges.newest
    assert ledger_charge is not None
    wrong: list[events.Event] = [
        events.Sent(0, entry),
        events.ReplyReady(0, 1, "0" * 64, 3),
        events.ReplyReady(0, -entry, "0" * 64, 3),
        events.Unlisted(0, Refusal.NOISE, 0),
        events.Unlisted(0, Refusal.NOISE, -7),
        events.Voided(0, entry, "unsigned", "00" * 64),
        ledger_charge._replace(steps=-39),
        events.Adopted(0, "no head", STEP, 3, "00"),
        events.Suspended(0, "no head"),
        opening,
    ]
    path: Path = world.path
    whole = path.read_bytes()
    for event in wrong:
        path.write_bytes(whole)
        with world.open() as opened:
            books = opened.books
            line = events.encode(event)
            with opened._store.writing():
                opened._store.append(books.seq + 1, line, link(books.digest, line))
        with pytest.raises(LedgerDamaged, match=f"entry {books.seq + 1} cannot stand where it does"):
            world.open()


@pytest.mark.parametrize("field", range(1, 11))
def test_a_charge_with_any_field_broken_is_refused(used: World, field: int) -> None:
    """Also one whose other fields were all seen before, and whose hash is right: a line is read in full."""
    with used.open() as ledger:
        books = ledger.books
        lines = [line for line, _ in ledger.entries() if line.startswith(b"RESERVED")]
        fields = lines[-1].split(b"\t")
        fields[field] = {2: b"no\thash", 3: b"%ff", 8: b"a\tb"}.get(field, b"x")
        line = b"\t".join(fields)
        with ledger._store.writing():
            ledger._store.append(books.seq + 1, line, link(books.digest, line))
    with pytest.raises(LedgerDamaged, match=f"entry {books.seq + 1} cannot stand where it does"):
        used.open()


@pytest.mark.parametrize("line", [b"READY\t1\t12\tdigest\tx", b"READY\tx\t12\tdigest\t1", b"READY\t1\t12\tdigest"])
def test_a_broken_reply_is_refused(used: World, line: bytes) -> None:
    with used.open() as ledger:
        assert ledger.charge(request(9)).entry == 12
        books = ledger.books
        with ledger._store.writing():
            ledger._store.append(13, line, link(books.digest, line))
    with pytest.raises(LedgerDamaged, match="entry 13 cannot stand where it does"):
        used.open()


def test_a_run_spelled_in_two_ways_has_one_share(world: World) -> None:
    """A line of the same words in another spelling must not open a second quota."""
    with world.create() as ledger:
        ledger.charge(request(1))
        books = ledger.books
        (line, _) = list(ledger.entries())[-1]
        again = line.replace(b"\trun-1\t", b"\trun%2D1\t")
        assert again != line
        with ledger._store.writing():
            ledger._store.append(books.seq + 1, again, link(books.digest, again))
        assert ledger.books.charges.history_of("run-1") == {STEP: 78}
        assert (ledger.books.charges.charges_in("run-1", 1), ledger.books.charges.runs) == (2, 1)
