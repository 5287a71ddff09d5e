"""Every way in which a file goes wrong: the verdict, the message, and that nothing is lost or released."""

import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from multiprocessing import get_context
from pathlib import Path

import pytest

from ledger.worlds import STEP, World, request, round_trip, trained
from lrdp.errors import InvalidInput, LedgerDamaged, LedgerRolledBack, LedgerUnwritable, LrdpError
from lrdp.ledger import Ledger
from lrdp.ledger.store import Store


def in_child(task: Callable[[], None]) -> str:
    """Run in a forked process and return how it ended."""
    reader, writer = get_context("fork").Pipe(duplex=False)

    def run() -> None:
        try:
            task()
            writer.send("done")
        except LrdpError as problem:
            writer.send(f"{type(problem).__name__}: {problem}")

    child = get_context("fork").Process(target=run)
    child.start()
    writer.close()
    try:
        return str(reader.recv())
    finally:
        child.join(60)


@pytest.fixture
def used(world: World) -> World:
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
    return world


def test_a_commit_waits_for_the_disk_and_leaves_one_file(used: World) -> None:
    """No kill of a process can show it, for the system's own memory outlives that; a power cut would."""
    with used.open() as ledger:
        ask = ledger._store._sql.execute
        assert ask("PRAGMA synchronous").fetchone() == (3,), "EXTRA"
        assert ask("PRAGMA journal_mode").fetchone() == (b"delete",)


def test_a_full_disk_refuses_and_loses_nothing(used: World) -> None:
    before = used.path.read_bytes()

    def write_on_a_full_disk() -> None:
        with used.open() as ledger:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
            ledger.charge(request(9))

    answer = in_child(write_on_a_full_disk)
    assert answer.startswith("LedgerUnwritable"), answer
    assert "what cannot be recorded is not released" in answer
    with used.open() as ledger:
        assert ledger.books.charges.history == {STEP: 117}
        assert used.path.read_bytes() == before
        ledger.charge(request(9))


def test_a_disk_that_fills_up_while_the_reply_is_stored_keeps_the_charge(used: World) -> None:
    with used.open() as ledger:
        receipt = ledger.charge(request(9))
        ledger._store._sql.execute("PRAGMA max_page_count = 1")
        receipt.redeem()
        with pytest.raises(LedgerUnwritable, match="the disk is full"):
            ledger.ready(receipt, b"x" * 100_000)
        assert ledger.unsent() == []
        assert ledger.books.charges.history == {STEP: 156}
        ledger._store._sql.execute("PRAGMA max_page_count = 1000000")
        reply = ledger.ready(receipt, b"x" * 100_000)
        ledger.sent(reply)


def fill_the_disk(ledger: Ledger, *, but: int = 0) -> None:
    """From now on the file grows by no more than ``but`` pages."""
    (pages,) = ledger._store._sql.execute("PRAGMA page_count").fetchone()
    ledger._store._sql.execute(f"PRAGMA max_page_count = {pages + but}")


def test_a_disk_that_takes_the_charge_but_not_the_reply_takes_neither(used: World) -> None:
    with used.open() as ledger:
        fill_the_disk(ledger, but=10)
        for number in (9, 10):
            with pytest.raises(LedgerUnwritable, match=r"the disk is full.* Nothing was spent: .* of 100000 bytes"):
                ledger.charge(request(number), room=100_000)
        assert ledger.books.charges.history == {STEP: 117}
        # The control: without a word about room this disk takes the charge, and the reply is lost.
        receipt = ledger.charge(request(11))
        receipt.redeem()
        with pytest.raises(LedgerUnwritable, match="the disk is full"):
            ledger.ready(receipt, b"x" * 100_000)


def test_a_disk_that_fills_up_after_the_charge_takes_the_reply(used: World) -> None:
    with used.open() as ledger:
        receipt = ledger.charge(request(9), room=100_000)
        found = used.path.stat()
        assert found.st_blocks * 512 >= found.st_size, "a hole is no room"
        fill_the_disk(ledger)
        receipt.redeem()
        reply = ledger.ready(receipt, b"x" * 100_000)
        assert ledger.unsent() == [reply]
        ledger.sent(reply)


def test_a_disk_with_no_room_for_a_journal_takes_no_charge(used: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lrdp.ledger.outbox.disk_usage", lambda _: shutil._ntuple_diskusage(1 << 40, 1 << 40, 1 << 19))
    with used.open() as ledger:
        with pytest.raises(LedgerUnwritable, match=r"the disk is full\. Nothing was spent"):
            ledger.charge(request(9), room=100_000)
        assert ledger.books.charges.history == {STEP: 117}


def test_a_reply_that_no_database_takes_is_no_damage(used: World) -> None:
    with used.open() as ledger:
        with pytest.raises(LedgerUnwritable, match=r"a reply of this size does not fit.* Nothing was spent"):
            ledger.charge(request(9), room=10**9)
        assert ledger.books.charges.history == {STEP: 117}


def test_room_is_made_once_and_used_again_round_after_round(world: World) -> None:
    sizes = []
    with world.create() as ledger:
        for number in range(16):
            receipt = ledger.charge(request(number, steps=1), room=100_000)
            sizes.append(world.path.stat().st_size)
            receipt.redeem()
            ledger.sent(ledger.ready(receipt, b"x" * 100_000))
            assert world.path.stat().st_size == sizes[-1]
    assert sizes[4] > sizes[3]
    assert len(set(sizes[4:])) == 1


def test_room_that_a_killed_process_left_is_no_reply_and_is_used(used: World) -> None:
    with used.open() as ledger:
        with ledger._store.writing():
            assert ledger._store.put_room(100_000)
        assert ledger.unsent() == []
        assert ledger.reply_of(0) is None
        size = used.path.stat().st_size
    used.back_up(used.folder / "backup.db")
    with used.open() as ledger:
        receipt = ledger.charge(request(9), room=100_000)
        assert 0 not in ledger._store.kept_replies()
        receipt.redeem()
        ledger.sent(ledger.ready(receipt, b"x" * 100_000))
    assert used.path.stat().st_size == size


def test_a_read_only_file_refuses_and_can_be_read(used: World) -> None:
    used.path.chmod(0o444)
    used.folder.chmod(0o555)
    # Root writes what is read-only, so the child becomes nobody; it must then be let through to the folder.
    for parent in list(used.folder.parents)[:3]:
        parent.chmod(parent.stat().st_mode | 0o111)

    def charge_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        with used.open() as ledger:
            ledger.charge(request(9))

    def read_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        store = Store(used.path, read_only=True)
        if len(list(store.entries())) != 11:
            raise LedgerDamaged("entries are missing")

    answer = in_child(charge_as_nobody)
    assert answer.startswith("LedgerUnwritable"), answer
    assert in_child(read_as_nobody) == "done"
    used.folder.chmod(0o755)
    used.path.chmod(0o600)
    with used.open() as ledger:
        assert ledger.books.charges.history == {STEP: 117}


def killed_half_way(world: World) -> None:
    """A writer that dies in mid-commit: pages of its transaction are in the file, and its journal lies beside it."""

    def write_and_die() -> None:
        sql = sqlite3.connect(world.path, isolation_level=None)
        sql.execute("PRAGMA cache_size = 2")
        sql.execute("BEGIN IMMEDIATE")
        for charge in (998, 999):
            sql.execute("INSERT INTO outbox VALUES (?, 'head', zeroblob(400000))", (charge,))
        os.kill(os.getpid(), signal.SIGKILL)

    child = get_context("fork").Process(target=write_and_die)
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert journal(world).stat().st_size > 0


def journal(world: World) -> Path:
    return world.path.with_name(f"{world.path.name}-journal")


def test_what_a_killed_writer_left_half_way_is_rolled_back_by_the_next_reader(used: World) -> None:
    killed_half_way(used)
    # The control: a reader that only reads is refused, so that there was something to roll back.
    reader = closing(sqlite3.connect(f"{used.path.as_uri()}?mode=ro", uri=True))
    with reader as sql, pytest.raises(sqlite3.OperationalError) as refused:
        sql.execute("SELECT count(*) FROM entries")
    assert refused.value.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK
    used.back_up(used.folder / "backup.db")
    with closing(Store(used.path, read_only=True)) as store:
        assert len(list(store.entries())) == 11
        assert store.kept_replies() == [3, 6, 9]
        with pytest.raises(LedgerUnwritable, match="read-only"), store.writing():
            store.put_reply(999, "head", b"")
    assert not journal(used).exists()


def test_a_reader_that_may_not_roll_back_names_the_cause_and_the_way_out(used: World) -> None:
    killed_half_way(used)
    for path, mode in ((used.path, 0o444), (journal(used), 0o444), (used.folder, 0o555)):
        path.chmod(mode)
    for parent in list(used.folder.parents)[:3]:
        parent.chmod(parent.stat().st_mode | 0o111)

    def read_as_nobody() -> None:
        if os.geteuid() == 0:
            os.setuid(65534)
        Store(used.path, read_only=True)

    answer = in_child(read_as_nobody)
    used.folder.chmod(0o755)
    assert answer.startswith("LedgerUnwritable"), answer
    assert "was killed while it wrote" in answer
    assert "run this as the ledger's owner, or start the guard" in answer
    assert journal(used).exists()


def test_a_reader_never_rolls_back_what_a_living_writer_is_at(used: World) -> None:
    with closing(sqlite3.connect(used.path, isolation_level=None)) as sql:
        sql.execute("BEGIN IMMEDIATE")
        sql.execute("INSERT INTO outbox VALUES (999, 'head', zeroblob(4000))")
        assert journal(used).exists()
        with closing(Store(used.path, read_only=True)) as store:
            assert store.kept_replies() == [3, 6, 9]
        assert journal(used).exists()
        sql.execute("COMMIT")
    with closing(Store(used.path, read_only=True)) as store:
        assert store.kept_replies() == [3, 6, 9, 999]


@pytest.mark.parametrize("kept", [0, 1, 100, 4096, 8192, -4096, -1])
def test_a_truncated_file_is_damaged(used: World, kept: int) -> None:
    whole = used.path.read_bytes()
    used.path.write_bytes(whole[:kept])
    with pytest.raises(LedgerDamaged, match=r"is damaged|is not a ledger|does not match") as caught:
        used.open()
    assert caught.value.exit_code == 6


def test_every_flipped_byte_is_noticed_or_harmless(used: World) -> None:
    """A flip in a free part of a page changes nothing; any other is refused."""
    whole = used.path.read_bytes()
    with used.open() as ledger:
        truth = (ledger.books.digest, ledger.books.charges.history, ledger.reply_to(request(2)))
    noticed = 0
    for place in range(0, len(whole), 41):
        flipped = bytearray(whole)
        flipped[place] ^= 0x40
        used.path.write_bytes(flipped)
        try:
            with used.open() as ledger:
                assert (ledger.books.digest, ledger.books.charges.history, ledger.reply_to(request(2))) == truth
        except LedgerDamaged:
            noticed += 1
    assert noticed > len(whole) // 41 // 4


def test_an_edited_entry_is_named(used: World) -> None:
    thief = sqlite3.connect(used.path)
    with pytest.raises(sqlite3.IntegrityError, match="never changed"):
        thief.execute("UPDATE entries SET line = line WHERE seq = 3")
    with pytest.raises(sqlite3.IntegrityError, match="never deleted"):
        thief.execute("DELETE FROM entries WHERE seq = 3")
    with pytest.raises(sqlite3.IntegrityError, match="in order"):
        thief.execute("INSERT OR REPLACE INTO entries SELECT * FROM entries WHERE seq = 3")
    (trigger,) = thief.execute("SELECT sql FROM sqlite_schema WHERE name = 'entries_unchanged'").fetchone()
    thief.execute("DROP TRIGGER entries_unchanged")
    thief.commit()
    with pytest.raises(LedgerDamaged, match="triggers are not as made"):
        used.open()
    thief.execute("UPDATE entries SET line = replace(line, '\t39\t', '\t38\t') WHERE seq = 3")
    thief.execute(trigger)
    thief.commit()
    thief.close()
    with pytest.raises(LedgerDamaged, match="entry 3 does not match its hash"):
        used.open()


def test_a_changed_reply_is_not_sent(used: World) -> None:
    thief = sqlite3.connect(used.path)
    (trigger,) = thief.execute("SELECT sql FROM sqlite_schema WHERE name = 'outbox_unchanged'").fetchone()
    thief.execute("DROP TRIGGER outbox_unchanged")
    thief.execute("UPDATE outbox SET reply = x'00'")
    thief.execute(trigger)
    thief.commit()
    thief.close()
    with used.open() as ledger, pytest.raises(LedgerDamaged, match="it is not sent"):
        ledger.reply_to(request(2))


def test_a_reply_that_vanished_before_it_was_sent_is_damage(world: World) -> None:
    with world.create() as ledger:
        trained(ledger, ledger.charge(request()))
    thief = sqlite3.connect(world.path)
    thief.execute("DELETE FROM outbox")
    thief.commit()
    thief.close()
    with world.open() as ledger, pytest.raises(LedgerDamaged, match="gone though it was never sent"):
        ledger.unsent()


@pytest.mark.parametrize("content", [b"", b"not a ledger" * 1000, b"SQLite format 3\x00"])
def test_another_file_is_no_ledger(world: World, content: bytes) -> None:
    world.path.write_bytes(content)
    with pytest.raises(LedgerDamaged):
        world.open()
    assert world.path.read_bytes() == content


def test_no_file_is_no_ledger(world: World) -> None:
    with pytest.raises(InvalidInput, match="lrdp init"):
        world.open()
    assert not world.path.exists()


def test_a_file_replaced_while_open_refuses(used: World) -> None:
    with used.open() as ledger:
        used.back_up(used.folder / "backup.db")
        shutil.move(used.folder / "backup.db", used.path)
        with pytest.raises(LedgerRolledBack, match="replaced or removed while it was open"):
            ledger.charge(request(9))
        used.path.unlink()
        with pytest.raises(LedgerRolledBack):
            ledger.charge(request(9))


def test_a_file_overwritten_in_place_while_open_refuses(used: World) -> None:
    old = used.path.read_bytes()
    with used.open() as ledger:
        round_trip(ledger, request(9))
        used.path.write_bytes(old)
        with pytest.raises(LedgerDamaged):
            ledger.charge(request(10))


def test_a_clock_that_goes_backwards_changes_nothing_but_is_noted(world: World) -> None:
    world.create().close()
    times = iter([5_000, 3_000, 2_000, 1_000, 9_000, 8_000] + [7_000] * 50)
    with world.open(clock=lambda: next(times)) as ledger:
        for number in range(2):
            round_trip(ledger, request(number))
        spent = ledger.answer()
    with world.open() as ledger:
        assert ledger.answer() == spent
        assert ledger.books.charges.history == {STEP: 78}
        assert ledger.books.clock_fell_at == [3, 4, 5, 6, 8]


def test_a_ledger_that_is_held_too_long_is_refused(used: World) -> None:
    holder = sqlite3.connect(used.path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    store = Store(used.path, patience=0.05)
    ledger = Ledger(store=store, policy=used.rules, key=used.key)
    with pytest.raises(LedgerUnwritable, match="held it for too long"):
        ledger.charge(request(9))
    holder.execute("ROLLBACK")
    holder.close()
    trained(ledger, ledger.charge(request(9)))
    ledger.close()
