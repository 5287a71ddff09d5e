"""A ledger of format 1, as the first release wrote it, opens in this one: it verifies, tells the same and charges on.

``fixtures/format-1.db`` was written once, by ``_write`` below, and is never written again: whoever changes the format
adds a migration to ``lrdp ledger upgrade`` and a file beside it.
"""

import resource
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from commands.clients import Client, folder
from ledger.worlds import STEP, World, policy, request, round_trip, trained
from lrdp.accounting import RenyiOrders
from lrdp.errors import InvalidInput, LedgerDamaged, PolicyRefused
from lrdp.ledger import SigningKey, State, adopt_head, raise_budget, rotate_key, summarize, verify_export, void
from lrdp.ledger.store import Store

FIXTURE = Path(__file__).parent / "fixtures" / "format-1.db"
ENTRIES, DIGEST = 31, "4c2fb00d9330d41df354e8ac307fd05845e66a5421d98e7c7395d4110807fad4"
RULE = RenyiOrders(weights={9.0: 0.75, 22.0: 0.25})


def key(number: int) -> SigningKey:
    """Keys that anybody can make: they sign for nothing but this file."""
    return SigningKey._of(Ed25519PrivateKey.from_private_bytes(bytes([number] * 32)))


def world(place: Path, signer: int) -> World:
    rules = policy(epsilon="9.5", per_run_epsilon="9.5", min_noise_multiplier="3.7")
    return World(folder=place, rules=rules, key=key(signer), administrator=key(3))


def _write(place: Path) -> None:
    """Every kind of entry but the last: OPENED, …, RAISED."""
    first = World(folder=place, rules=policy(min_noise_multiplier="3.7"), key=key(1), administrator=key(3))
    with first.create(rule=RULE) as ledger:
        round_trip(ledger, request(1))
        (place / "older.db").write_bytes(first.path.read_bytes())
        round_trip(ledger, request(2))
        head = ledger.head()
    (place / "older.db").replace(first.path)
    with first.open() as ledger:
        with suppress(LedgerDamaged):
            ledger.witness(head)
        adopt_head(ledger, head, key(3))
        charge = ledger.charge(request(3))
        void(ledger, charge.entry, "power cut before training", key(3))
        for number in range(20):
            with suppress(PolicyRefused):
                ledger.charge(request(number + 50, steps=1000))
        trained(ledger, ledger.charge(request(4)))
        rotate_key(ledger, key(1), key(2))
    with world(place, 2).open() as ledger:
        raise_budget(ledger, "second study", key(3))


@pytest.fixture
def old(tmp_path: Path) -> World:
    shutil.copyfile(FIXTURE, tmp_path / "ledger.db")
    return world(tmp_path, 2)


def test_it_verifies_and_says_what_it_said(old: World) -> None:
    books = verify_export(old.path).books
    assert (books.seq, books.opened.format, books.charges.steps) == (ENTRIES, "1", 156)
    assert books.digest.hex() == DIGEST
    told = summarize(books)
    assert (told.opened_epsilon, told.budget.epsilon, told.adopted) == (8.0, 9.5, 1)
    assert told.states == {State.SENT: 1, State.VOID: 1, State.READY: 1}
    assert told.history == {STEP: 117}
    assert books.rule == RULE


def test_it_opens_sends_what_was_ready_and_charges_on(old: World) -> None:
    with old.open() as ledger:
        (waiting,) = ledger.unsent()
        ledger.sent(waiting)
        before = ledger.answer().guaranteed.epsilon
        round_trip(ledger, request(77))
        assert ledger.books.charges.steps == 156 + 39
        assert ledger.answer().guaranteed.epsilon > before
        assert STEP in ledger.books.charges.history
        ledger.witness(ledger.head())


def test_every_kind_of_entry_is_in_it() -> None:
    lines = [line.split(b"\t")[0].decode() for line, _ in Store(FIXTURE, read_only=True).entries()]
    assert set(lines) == {
        *("OPENED", "POLICY", "RESERVED", "READY", "SENT", "REFUSED", "UNLISTED", "VOID", "SUSPENDED", "ADOPTED"),
        *("ROTATED", "RAISED"),
    }


def test_a_file_of_a_later_format_is_refused_in_a_sentence_and_left_alone(old: World) -> None:
    with sqlite3.connect(old.path) as sql:
        sql.execute("PRAGMA user_version=1")
    sql.close()
    before = old.path.read_bytes()
    with pytest.raises(LedgerDamaged, match="is of format 1 and this release reads 0: nothing was changed"):
        old.open()
    assert old.path.read_bytes() == before


def test_an_upgrade_has_nothing_to_do_today(old: World) -> None:
    client = Client(old.folder)
    before = old.path.read_bytes()
    assert client.json("ledger", "upgrade", *folder(client)) == {"format": "1", "changed": False, "entries": ENTRIES}
    assert old.path.read_bytes() == before


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
    assert verify_export(tmp_path / "today.db").books.seq == ENTRIES
