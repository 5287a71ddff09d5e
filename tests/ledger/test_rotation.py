"""A ledger's key is replaced: heads old and new still count, and nobody but the key in force can hand over."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from commands.endings import no_file_beyond
from ledger.worlds import STEP, World, request, round_trip, trained
from lrdp.cli import app
from lrdp.errors import InvalidInput, LedgerDamaged, LedgerRolledBack, LedgerUnwritable, PolicyRefused
from lrdp.ledger import Head, Refusal, SigningKey, adopt_head, events, rotate_key
from lrdp.ledger.export import verify_export, write_export
from lrdp.ledger.heads import Successor, rotation_message
from lrdp.ledger.reports import read_report, report_of
from lrdp.ledger.starting import Home, replace_key


def rotated(world: World) -> World:
    new = replace(world, key=SigningKey.generate())
    with world.open() as ledger:
        rotate_key(ledger, world.key, new.key)
    return new


@pytest.fixture
def used(world: World) -> World:
    with world.create() as ledger:
        round_trip(ledger, request(1))
    return world


def test_heads_of_both_keys_are_the_ledgers_own(used: World) -> None:
    with used.open() as ledger:
        before = ledger.head()
    new = rotated(rotated(used))
    with new.open() as ledger:
        round_trip(ledger, request(2))
        after = ledger.head()
        ledger.witness(before)
        ledger.witness(Head.decode(after.encode()))
        assert after.is_signed_by(used.key.public)
        assert not after.is_signed_by(new.key.public), "who knows the last key alone cannot follow"
        assert ledger.books.charges.history == {STEP: 78}
        assert ledger.reply_to(request(1)) is not None, "stored with a head that the first key signed"


def test_the_old_key_no_longer_opens_or_charges(used: World) -> None:
    with used.open() as still_open:
        receipt = still_open.charge(request(3))
        new = rotated(used)
        for forbidden in (lambda: still_open.charge(request(4)), still_open.head, lambda: trained(still_open, receipt)):
            with pytest.raises(PolicyRefused) as caught:
                forbidden()
            assert caught.value.refusal is Refusal.OTHER_LEDGER
    with pytest.raises(PolicyRefused, match="its key was rotated"):
        used.open()
    with new.open() as ledger:
        assert ledger.books.charges.history == {STEP: 78}, (
            "the charge before the rotation stands, and nothing was added"
        )


def test_a_rollback_to_before_the_rotation_is_noticed_with_the_old_key(used: World, tmp_path: Path) -> None:
    """Folder and key were both restored, as with a picture of the whole machine."""
    backup = tmp_path / "backup.db"
    with used.open() as ledger:
        used.back_up(backup)
    with rotated(used).open() as ledger:
        round_trip(ledger, request(2))
        newest = ledger.head()
    shutil.move(backup, used.path)
    with used.open() as ledger:
        with pytest.raises(LedgerRolledBack):
            ledger.witness(newest)
        assert ledger.books.suspended == newest
        assert adopt_head(ledger, newest, used.administrator).steps == 39
        ledger.witness(newest)


def test_an_export_follows_the_rotation(used: World, tmp_path: Path) -> None:
    new = rotated(used)
    with new.open() as ledger:
        head = write_export(ledger, tmp_path / "export.txt")
        report = read_report(report_of(ledger.books).signed(new.key))
    verified = verify_export(tmp_path / "export.txt")
    assert verified.head == head
    assert verified.books.client_key == report.key == new.key.public
    rows = (tmp_path / "export.txt").read_bytes().splitlines()
    stale = replace(head, successors=()).signed(used.key)
    (tmp_path / "stale.txt").write_bytes(b"\n".join([*rows[:-1], b"HEAD\t" + stale.encode().encode()]) + b"\n")
    with pytest.raises(LedgerDamaged, match="the client's key did not sign"):
        verify_export(tmp_path / "stale.txt")


def test_a_thief_without_the_key_cannot_hand_over(used: World) -> None:
    thief = SigningKey.generate()
    with used.open() as ledger:
        with pytest.raises(LedgerDamaged, match="the key before it did not sign it"):
            rotate_key(ledger, thief, thief)
        elsewhere = used.key.sign(rotation_message("another ledger", used.key.public, thief.public))
        with pytest.raises(LedgerDamaged, match="the key before it did not sign it"):
            ledger.record_signed(events.Rotated(0, thief.public, elsewhere))
        honest, entries = ledger.head(), ledger.books.seq
        own = thief.sign(rotation_message(honest.ledger, used.key.public, thief.public))
        forged = replace(honest, successors=(Successor(thief.public, own),)).signed(thief)
        with pytest.raises(InvalidInput, match="was not signed"):
            ledger.witness(forged)
        assert ledger.books.seq == entries


def test_the_old_key_cannot_hand_over_a_second_time(used: World) -> None:
    thief = SigningKey.generate()
    new = rotated(used)
    with new.open() as ledger:
        with pytest.raises(LedgerDamaged, match="the key before it did not sign it"):
            rotate_key(ledger, used.key, thief)
        ledger.charge(request(6))


def test_a_stolen_old_key_can_stop_a_ledger_but_not_make_it_forget(used: World) -> None:
    new = rotated(used)
    with new.open() as ledger:
        honest = ledger.head()
        point = replace(honest.points[0], digest="0" * 64, steps=0)
        with pytest.raises(LedgerRolledBack):
            ledger.witness(replace(honest, successors=(), points=(point,)).signed(used.key))
        assert ledger.books.charges.history == {STEP: 39}


def test_a_key_does_not_return(used: World) -> None:
    new = rotated(used)
    with new.open() as ledger, pytest.raises(InvalidInput, match="signed for this ledger before"):
        rotate_key(ledger, new.key, used.key)


@pytest.mark.parametrize("crash", ["key written", "entry written", "old key moved", "none"])
def test_the_command_ends_what_a_crash_interrupted(tmp_path: Path, crash: str) -> None:
    run = CliRunner()
    assert run.invoke(app, ["init", "--folder", str(tmp_path)]).exit_code == 0
    home = Home(folder=tmp_path)
    old = SigningKey.read(home.key)
    if crash != "none":
        SigningKey.generate().write(home.next_key)
    if crash in ("entry written", "old key moved"):
        with home.open() as ledger:
            rotate_key(ledger, old, SigningKey.read(home.next_key))
    if crash == "old key moved":
        home.key.rename(home.key.with_name("client-moved.pem"))
    answer = run.invoke(app, ["ledger", "rotate-key", "--folder", str(tmp_path), "--json"])
    assert answer.exit_code == 0, answer.output
    with home.open() as ledger:
        assert ledger.books.client_key == json.loads(answer.stdout)["key"] != old.public
        assert len(ledger.books.successors) == 1
        ledger.charge(request(1, steps=1, mechanism=ledger.policy.mechanism.costliest))
    verified = ["ledger", "verify", str(home.ledger), "--key"]
    assert run.invoke(app, [*verified, old.public]).exit_code == 0
    assert isinstance(run.invoke(app, [*verified, SigningKey.generate().public]).exception, LedgerDamaged)
    assert {path.name for path in home.key.parent.glob("client*")} > {"client.pem"}
    assert not home.next_key.exists()


def test_two_rotations_by_command_keep_every_key(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["init", "--folder", str(tmp_path)]).exit_code == 0
    home = Home(folder=tmp_path)
    keys = {SigningKey.read(home.key).public, replace_key(home).public, replace_key(home).public}
    assert {SigningKey.read(path).public for path in home.key.parent.glob("client*.pem")} == keys


def test_a_key_whose_rotation_could_not_be_written_is_kept_and_named_and_taken_up(tmp_path: Path) -> None:
    """It is not thrown away: after an error of the disk nobody knows whether the entry is there."""
    assert CliRunner().invoke(app, ["init", "--folder", str(tmp_path)]).exit_code == 0
    home = Home(folder=tmp_path)
    before = home.ledger.read_bytes()
    with no_file_beyond(300), pytest.raises(LedgerUnwritable, match=r"client\.next\.pem: rotate again"):
        replace_key(home)
    assert home.ledger.read_bytes() == before
    kept = SigningKey.read(home.next_key).public
    assert replace_key(home).public == kept
    assert not home.next_key.exists()
