import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.accounting import Adjacency, Mechanism, RenyiAccountant
from lrdp.errors import BudgetExceeded, InvalidInput, LedgerRolledBack, PolicyRefused
from lrdp.ledger import Head, Ledger, Refusal, SigningKey, adopt_head


def rounds(ledger: Ledger, first: int, count: int, run: str = "run-1") -> Head:
    for number in range(first, first + count):
        round_trip(ledger, request(number, run=run))
    return ledger.head()


def test_a_head_travels_with_every_reply_and_is_signed(world: World) -> None:
    with world.create() as ledger:
        reply = round_trip(ledger, request())
        head = Head.decode(reply.head)
        assert head.is_signed_by(world.key.public)
        assert (head.steps, head.generation) == (39, 0)
        ledger.witness(head)
        again = ledger.reply_to(request())
        assert again is not None
        assert again.head == reply.head


@given(
    change=st.sampled_from(["ledger", "generation", "points", "costliest", "signature"]),
    costliest=st.sampled_from([None, STEP]),
)
def test_a_changed_head_is_not_signed(change: str, costliest: Mechanism | None) -> None:
    key = SigningKey.generate()
    points = Head.decode(f"lrdp-head-1 {'0' * 32} 0 3:{'a' * 64}:39,2:{'b' * 64}:0 00").points
    head = Head(ledger="0" * 32, generation=0, points=points, costliest=costliest).signed(key)
    assert head.is_signed_by(key.public)
    other: dict[str, Any] = {
        "ledger": "1" * 32,
        "generation": 1,
        "points": points[:1],
        "costliest": STEP.with_noise(9.0),
        "signature": head.signature[:-1] + ("0" if head.signature[-1] != "0" else "1"),
    }
    assert not replace(head, **{change: other[change]}).is_signed_by(key.public)
    assert Head.decode(head.encode()) == head


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "x" * 20_000,
        "lrdp-head-1 a b c d",
        "lrdp-head-2 00 0 1:00:1 00",
        "a b 1 1:a:01 c",
        "lrdp-head-3 00 0 1:00:1 00",
    ]
    + [
        f"lrdp-head-2 00 0 1:00:1 {costliest} 00"
        for costliest in ("gaussian", "none,noise_multiplier=0x1p+0", "gaussian,noise_multiplier=1")
    ],
)
def test_what_is_no_head_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="head"):
        Head.decode(text)


def test_a_restored_backup_is_noticed_and_stays_refused(world: World) -> None:
    backup = world.folder / "backup.db"
    with world.create() as ledger:
        rounds(ledger, 0, 2)
        world.back_up(backup)
        newest = rounds(ledger, 2, 3)
    shutil.move(backup, world.path)
    with world.open() as ledger:
        with pytest.raises(LedgerRolledBack, match="a backup was restored or the machine was cloned"):
            ledger.witness(newest)
        with pytest.raises(PolicyRefused, match="adopt-head") as caught:
            ledger.charge(request(9))
        assert caught.value.refusal is Refusal.SUSPENDED
    with world.open() as ledger, pytest.raises(PolicyRefused):
        ledger.charge(request(9))


def test_a_deleted_tail_is_noticed_from_the_head_that_others_hold(world: World) -> None:
    import sqlite3

    with world.create() as ledger:
        newest = rounds(ledger, 0, 3)
    thief = sqlite3.connect(world.path)
    (trigger,) = thief.execute("SELECT sql FROM sqlite_schema WHERE name = 'entries_kept'").fetchone()
    thief.execute("DROP TRIGGER entries_kept")
    thief.execute("DELETE FROM entries WHERE seq > 5")
    thief.execute(trigger)
    thief.commit()
    thief.close()
    with world.open() as ledger:
        assert ledger.books.charges.history == {STEP: 39}, "the chain alone does not notice"
        with pytest.raises(LedgerRolledBack, match=r"end at entry 5 .*do not contain entry 11"):
            ledger.witness(newest)


def test_a_cloned_machine_is_noticed_by_whichever_branch_sees_the_other(world: World) -> None:
    (world.folder / "clone").mkdir()
    clone = replace(world, folder=world.folder / "clone")
    with world.create() as ledger:
        rounds(ledger, 0, 1)
    shutil.copy(world.path, clone.path)
    with world.open() as one, clone.open() as two:
        head_one, head_two = rounds(one, 1, 2, run="a"), rounds(two, 1, 2, run="b")
        assert head_one.seq == head_two.seq
        for ledger, other in ((one, head_two), (two, head_one)):
            with pytest.raises(LedgerRolledBack):
                ledger.witness(other)


def test_a_new_ledger_under_an_old_key_is_a_rollback_too(world: World) -> None:
    with world.create() as ledger:
        newest = rounds(ledger, 0, 2)
    world.path.unlink()
    with world.create() as ledger:
        with pytest.raises(LedgerRolledBack):
            ledger.witness(newest)
        adopted = adopt_head(ledger, newest, world.administrator)
        assert adopted.steps == 78
        ledger.witness(newest)


def test_a_strangers_head_changes_nothing(world: World) -> None:
    with world.create() as ledger:
        head = rounds(ledger, 0, 1)
        forged = replace(head, signature="").signed(SigningKey.generate())
        for wrong in (forged, replace(head, generation=7)):
            with pytest.raises(InvalidInput, match="not signed with this ledger's key"):
                ledger.witness(wrong)
            with pytest.raises(InvalidInput, match="not signed"):
                adopt_head(ledger, wrong, world.administrator)
        ledger.charge(request(5))


@pytest.mark.parametrize("lost", [1, 2, 3, 7])
def test_adopting_charges_the_gap_at_the_policys_worst_case(tmp_path: Path, lost: int) -> None:
    world = World(folder=tmp_path, rules=policy(min_noise_multiplier="3.5"))
    backup = world.folder / "backup.db"
    with world.create() as ledger:
        rounds(ledger, 0, 4)
        world.back_up(backup)
        newest = rounds(ledger, 4, lost)
        true_steps = ledger.books.charges.steps
    shutil.move(backup, world.path)
    with world.open() as ledger:
        before = ledger.answer()
        with pytest.raises(LedgerRolledBack):
            ledger.witness(newest)
        with pytest.raises(InvalidInput, match="administrator"):
            adopt_head(ledger, newest, SigningKey.generate())
        adopted = adopt_head(ledger, newest, world.administrator)
        assert adopted.mechanism == world.rules.mechanism.costliest
        gap = 39 * lost
        assert gap <= adopted.steps <= 2 * gap + 39, "never too little, and at most about twice as much"
        assert ledger.books.charges.steps >= true_steps
        assert ledger.answer().guaranteed.epsilon > before.guaranteed.epsilon
        ledger.witness(newest)
        with pytest.raises(InvalidInput, match="nothing to adopt"):
            adopt_head(ledger, newest, world.administrator)
        assert ledger.head().age > newest.age
        round_trip(ledger, request(50))
    with world.open() as ledger:
        ledger.witness(newest)


def test_a_fork_is_charged_from_the_point_where_the_chains_parted(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(min_noise_multiplier="3.5", per_run_epsilon="8.0"))
    clone = replace(world, folder=tmp_path / "clone")
    clone.folder.mkdir()
    with world.create() as ledger:
        rounds(ledger, 0, 2)
    shutil.copy(world.path, clone.path)
    with world.open() as one, clone.open() as two:
        rounds(one, 2, 5)
        other = rounds(two, 2, 7, run="b")
        with pytest.raises(LedgerRolledBack):
            one.witness(other)
        adopted = adopt_head(one, other, world.administrator)
        assert adopted.steps >= 7 * 39, "own rounds after the fork do not hide the other branch's"


def test_an_adopted_gap_may_exhaust_the_budget(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(epsilon="2.0", per_run_epsilon="2.0"))
    with world.create() as ledger:
        empty = world.folder / "backup.db"
        world.back_up(empty)
        newest = rounds(ledger, 0, 8)
    shutil.move(empty, world.path)
    with world.open() as ledger:
        adopt_head(ledger, newest, world.administrator)
        assert ledger.answer().guaranteed.epsilon > 2.0
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(50))


LOOSER = STEP.with_noise(1.8)


def loosened_and_tightened(world: World, lost: int) -> Head:
    """The newest head of a ledger whose policy allowed less noise for a while, all since a backup that is restored."""
    loose = replace(world, rules=policy(min_noise_multiplier="1.8", per_run_epsilon="8.0"))
    with world.create() as ledger:
        rounds(ledger, 0, 1)
        world.back_up(world.folder / "backup.db")
    with loose.open() as ledger:
        for number in range(1, 1 + lost):
            round_trip(ledger, request(number, mechanism=LOOSER))
    with world.open() as ledger:
        newest = ledger.head()
        assert ledger.books.charges.history == {STEP: 39, LOOSER: 39 * lost}
    shutil.copy(world.folder / "backup.db", world.path)
    return newest


def test_a_policy_that_only_the_lost_entries_knew_counts_as_well(tmp_path: Path) -> None:
    """Its steps, at σ = 1.8, were charged as such at 3.7, and ε came out too small."""
    world = World(folder=tmp_path, rules=policy(min_noise_multiplier="3.7", per_run_epsilon="8.0"))
    newest = loosened_and_tightened(world, lost=3)
    true = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE).epsilon({STEP: 39, LOOSER: 3 * 39}, 1e-6).epsilon
    with world.open() as ledger:
        adopted = adopt_head(ledger, newest, world.administrator)
        assert adopted.mechanism == LOOSER
        assert adopted.steps >= 3 * 39
        assert ledger.answer().spent.epsilon > true
        again = ledger.head()
    shutil.copy(tmp_path / "backup.db", world.path)
    with world.open() as ledger:  # the adopted entry is lost in turn, and nothing else knew the looser policy
        assert adopt_head(ledger, again, world.administrator).mechanism == LOOSER


def test_control_a_head_that_does_not_say_it_is_charged_as_the_books_know(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(min_noise_multiplier="3.7", per_run_epsilon="8.0"))
    newest = loosened_and_tightened(world, lost=1)
    silent = replace(newest, costliest=None).signed(world.key)
    assert silent.encode().startswith("lrdp-head-1 ")
    with world.open() as ledger:
        assert adopt_head(ledger, silent, world.administrator).mechanism == STEP.with_noise(3.7)


def test_the_worst_case_is_that_of_every_policy_the_books_know(tmp_path: Path) -> None:
    loose = World(folder=tmp_path, rules=policy(min_noise_multiplier="3.0"))
    with loose.create() as ledger:
        backup = tmp_path / "backup.db"
        loose.back_up(backup)
        newest = rounds(ledger, 0, 1)
    shutil.move(backup, loose.path)
    strict = replace(loose, rules=policy(min_noise_multiplier="9.0"))
    with strict.open() as ledger:
        assert adopt_head(ledger, newest, loose.administrator).mechanism.noise_multiplier == 3.0
