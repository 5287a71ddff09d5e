"""A server may invent requests without end: each is refused, with its reason, at no cost, and the file stays small."""

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.worlds import STEP, World, request, round_trip
from lrdp.errors import LedgerDamaged, PolicyRefused
from lrdp.ledger import Ledger, Refusal, events
from lrdp.ledger import ledger as ledger_module
from lrdp.ledger.export import verify_export
from lrdp.ledger.records import LONGEST_SENTENCE


def flood(ledger: Ledger, requests: int, start: int = 0) -> None:
    """Requests that no policy allows, each of them new; every third for another reason."""
    for number in range(start, start + requests):
        asked = request(number, run=f"run-{number}", steps=40_000)
        asked = replace(asked, clip_norm=77.0) if number % 3 == 0 else asked
        with pytest.raises(PolicyRefused) as caught:
            ledger.charge(asked)
        assert caught.value.refusal is (Refusal.CLIP_NORM if number % 3 == 0 else Refusal.STEPS)


def test_a_flood_of_refusals_hardly_grows_the_file(world: World) -> None:
    with world.create() as ledger:
        entries, size = ledger.books.seq, world.path.stat().st_size
        flood(ledger, 150)
        # 16 in full, then two reasons each time their number doubles: at 32, 64 and 128.
        assert ledger.books.seq - entries == 16 + 2 * 3
        assert world.path.stat().st_size - size <= 12_288
        assert ledger.books.charges.history == {}


def test_control_without_the_bound_the_same_flood_grows_the_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "MOST_LISTED", 10**9)
    with world.create() as ledger:
        entries, size = ledger.books.seq, world.path.stat().st_size
        flood(ledger, 150)
        assert ledger.books.seq - entries == 150
        assert world.path.stat().st_size - size > 3 * 12_288


def test_after_the_next_charge_every_refusal_is_counted(world: World) -> None:
    with world.create() as ledger:
        flood(ledger, 100)
        assert ledger.books.refusals.by_reason.total() == 64
        round_trip(ledger, request(1))
        assert ledger.books.refusals.by_reason == {Refusal.CLIP_NORM: 34, Refusal.STEPS: 66}
        assert ledger.books.charges.history == {STEP: 39}
        flood(ledger, 5, start=5000)
        newest = events.decode_all([line for line, _ in ledger.entries()])[-5:]
        assert {getattr(event, "run", None) for event in newest} == {f"run-{number}" for number in range(5000, 5005)}, (
            "in full again"
        )
    assert verify_export(world.path).books.refusals.by_reason.total() == 105


def test_a_process_per_message_counts_as_well(world: World) -> None:
    world.create().close()
    for number in range(40):
        with world.open() as ledger:
            flood(ledger, 1, start=number)
    with world.open() as ledger:
        assert ledger.books.seq == 2 + 16 + 2 * 1
        assert ledger.books.refusals.by_reason.total() == 32
        ledger.charge(request(1))
        assert ledger.books.refusals.by_reason == {Refusal.CLIP_NORM: 14, Refusal.STEPS: 26}


@pytest.mark.parametrize("change", ["refusal = 'mood'", "refusal = 7", "requests = 'many'", "requests = -3"])
def test_a_damaged_count_is_noticed_when_it_is_used(world: World, change: str) -> None:
    with world.create() as ledger:
        flood(ledger, 18)
    thief = sqlite3.connect(world.path)
    thief.execute(f"UPDATE unlisted SET {change} WHERE refusal = 'steps'")
    thief.commit()
    thief.close()
    with world.open() as ledger, pytest.raises(LedgerDamaged):
        ledger.charge(request(1))


def test_two_processes_share_one_list(world: World) -> None:
    with world.create() as ledger, world.open() as other:
        flood(ledger, 10)
        flood(other, 10, start=10)
        kinds = list(map(type, events.decode_all([line for line, _ in ledger.entries()])))
    assert kinds.count(events.Declined) == 16


def test_what_a_server_says_at_length_is_cut(world: World, tmp_path: Path) -> None:
    long = replace(request(1), metrics=tuple(f"metric-{number}" for number in range(10_000)))
    with world.create() as ledger:
        with pytest.raises(PolicyRefused):
            ledger.charge(long)
        (line, _) = list(ledger.entries())[-1]
        (event,) = events.decode_all([line])
    assert isinstance(event, events.Declined)
    assert len(event.sentence) == LONGEST_SENTENCE
    assert len(line) < 2000
