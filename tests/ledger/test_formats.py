"""Ledgers of format 1, as the first release wrote them, open in this one: they verify, tell the same and charge on."""

import resource
import sqlite3
from pathlib import Path

import pytest

from commands.clients import Client, folder
from ledger.kept_ledgers import CLOSED, FIXTURES, KEPT, OPEN, KeptLedger, asked
from ledger.worlds import World, round_trip
from lrdp.errors import InvalidInput, LedgerDamaged, PolicyRefused
from lrdp.ledger import Refusal, State, summarize, verify_export, write_export
from lrdp.ledger.events import FORMS
from lrdp.ledger.store import Store

FIRST, *_ = KEPT
every = pytest.mark.parametrize("kept", KEPT, ids=str)


def to_nine_digits(*figures: float) -> object:
    """Another processor rounds the last digits of a sum elsewhere."""
    return pytest.approx(figures, rel=1e-9)


@pytest.fixture
def old(tmp_path: Path) -> World:
    return FIRST.put(tmp_path)


@every
def test_it_verifies_and_says_what_it_said(kept: KeptLedger, tmp_path: Path) -> None:
    books = verify_export(kept.put(tmp_path).path).books
    assert (books.seq, books.opened.format, books.digest.hex(), books.rule) == (
        *(kept.entries, "1", kept.digest, kept.rule),
    )
    told = summarize(books)
    assert (told.history, told.states, told.adopted) == (kept.history, kept.states, kept.adopted)
    assert (told.adjacency, told.policy.identity.clipped) == (kept.adjacency, kept.clipped)
    assert (told.closed is not None, told.rounds_left) == (kept in CLOSED, kept.rounds_left)
    assert (told.opened_epsilon, told.budget.epsilon) == kept.figures[:2]
    assert (told.guaranteed.epsilon, told.spent.epsilon) == to_nine_digits(*kept.figures[2:4])


@every
def test_it_is_exported_and_the_export_verifies(kept: KeptLedger, tmp_path: Path) -> None:
    place = kept.put(tmp_path)
    with place.open() as ledger:
        head = write_export(ledger, tmp_path / "export.txt")
    found = verify_export(tmp_path / "export.txt")
    assert (found.head, found.books.digest.hex(), found.books.seq) == (head, kept.digest, kept.entries)


@pytest.mark.parametrize("kept", OPEN, ids=str)
def test_it_sends_what_was_ready_and_charges_on(kept: KeptLedger, tmp_path: Path) -> None:
    with kept.put(tmp_path).open() as ledger:
        (waiting,) = ledger.unsent()
        ledger.sent(waiting)
        before, steps = ledger.answer(), ledger.books.charges.steps
        round_trip(ledger, asked(ledger, 77))
        after = ledger.answer()
        assert ledger.books.charges.steps == steps + 5
        assert (after.spent.epsilon,) == to_nine_digits(kept.figures.next_spent)
        assert after.spent.epsilon > before.spent.epsilon
        ledger.witness(ledger.head())
        assert summarize(ledger.books).states[State.READY] == 0


@pytest.mark.parametrize("kept", CLOSED, ids=str)
def test_what_was_closed_stays_closed_and_sends_what_was_ready(kept: KeptLedger, tmp_path: Path) -> None:
    with kept.put(tmp_path).open() as ledger:
        (waiting,) = ledger.unsent()
        ledger.sent(waiting)
        with pytest.raises(PolicyRefused) as caught:
            ledger.charge(asked(ledger, 77))
        assert caught.value.refusal is Refusal.CLOSED


def kinds(path: Path) -> list[str]:
    store = Store(path, read_only=True)
    found = [line.split(b"\t")[0].decode() for line, _ in store.entries()]
    store.close()
    return found


def test_every_kind_of_entry_is_in_them_and_no_file_is_forgotten() -> None:
    assert {kind for kept in KEPT for kind in kinds(kept.path)} == set(FORMS)
    assert sorted(FIXTURES.iterdir()) == sorted(kept.path for kept in KEPT)


@every
def test_what_is_kept_is_what_is_made(kept: KeptLedger, tmp_path: Path) -> None:
    kept.made(tmp_path)
    assert kinds(tmp_path / "ledger.db") == kinds(kept.path)


def test_a_file_of_a_later_format_is_refused_in_a_sentence_and_left_alone(old: World) -> None:
    with sqlite3.connect(old.path) as sql:
        sql.execute("PRAGMA user_version=1")
    sql.close()
    before = old.path.read_bytes()
    with pytest.raises(LedgerDamaged, match="is of format 2 and this release reads 1: nothing was changed"):
        old.open()
    assert old.path.read_bytes() == before


@every
def test_an_upgrade_has_nothing_to_do_today(kept: KeptLedger, tmp_path: Path) -> None:
    client, path = Client(tmp_path), kept.put(tmp_path).path
    before = path.read_bytes()
    told = client.json("ledger", "upgrade", *folder(client))
    assert told == {"format": "1", "changed": False, "entries": kept.entries}
    assert path.read_bytes() == before


def test_a_backup_that_is_no_backup_is_not_restored(old: World, tmp_path: Path) -> None:
    client = Client(tmp_path / "new")
    client.run("init", *folder(client), "--rounds", "2", "--local-steps", "2")
    assert "it is not overwritten" in client.run("ledger", "restore", str(old.path), *folder(client), code=2)
    client.home.ledger.unlink()
    assert "somebody else's" in client.run("ledger", "restore", str(old.path), *folder(client), code=6)
    assert not client.home.ledger.exists()
    with pytest.raises(InvalidInput):
        client.home.open()


def test_a_backup_that_fails_leaves_nothing_and_yesterdays_stays(old: World, tmp_path: Path) -> None:
    yesterday = tmp_path / "yesterday.db"
    yesterday.write_bytes(b"yesterday")
    store = Store(old.path, read_only=True)
    with pytest.raises(InvalidInput, match="never overwritten"):
        store.copy_to(yesterday)
    assert yesterday.read_bytes() == b"yesterday"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(LedgerDamaged):
            store.copy_to(tmp_path / "today.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(tmp_path.glob("today*"))
    store.copy_to(tmp_path / "today.db")
    store.close()
    assert verify_export(tmp_path / "today.db").books.seq == FIRST.entries
