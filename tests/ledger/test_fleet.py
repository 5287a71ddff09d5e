from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.accounting import Adjacency, Mechanism, RenyiAccountant, ReservedSlots
from lrdp.commands.fleet import reports_in
from lrdp.errors import BudgetExceeded, InvalidInput
from lrdp.ledger import Ledger, SigningKey, rotate_key
from lrdp.ledger.export import write_export
from lrdp.ledger.fleet import FleetBooks, fleet_view
from lrdp.ledger.heads import Successor, rotation_message
from lrdp.ledger.reports import Report, read_report, report_of
from lrdp.ledger.summary import rounds_left

HAIR = 2e-4  # within which an accountant's search finds the best order: at fixed ones the view may be as much below


def client(tmp_path: Path, name: str, rounds: list[tuple[float, int]], **options: Any) -> tuple[World, Report, Ledger]:
    (tmp_path / name).mkdir()
    world = World(folder=tmp_path / name, rules=policy(client=f'"{name}"', per_run_epsilon="8.0"))
    ledger = world.create(**options)
    for number, (noise, steps) in enumerate(rounds):
        round_trip(ledger, request(number, mechanism=STEP.with_noise(noise), steps=steps))
    return world, read_report(report_of(ledger.books).signed(world.key)), ledger


def test_the_view_says_of_each_client_what_its_own_ledger_says(tmp_path: Path) -> None:
    histories = {"a": [(3.7, 39), (5.1, 20)], "b": [], "c": [(2.0, 100)] * 3}
    made = [client(tmp_path, name, rounds) for name, rounds in histories.items()]
    books = FleetBooks.of(report for _, report, _ in made)
    books.save(tmp_path / "fleet.npz")
    seen = fleet_view(FleetBooks.load(tmp_path / "fleet.npz"))
    for row, (world, _, ledger) in enumerate(made):
        answer = ledger.answer()
        assert seen.guaranteed[row] == pytest.approx(answer.guaranteed.epsilon, rel=1e-12)
        assert seen.spent[row] == pytest.approx(answer.spent.epsilon, rel=0.02)
        assert seen.spent[row] >= answer.spent.epsilon * (1 - HAIR)
        assert seen.left[row] == pytest.approx(8.0 - answer.guaranteed.epsilon)
        assert seen.rounds[row] == rounds_left(ledger.books, world.rules)
        ledger.close()
    assert seen.next_to_run_out(2).tolist() == np.lexsort((seen.left, seen.rounds))[:2].tolist()
    assert len(seen.next_to_run_out(99)) == 3


def test_the_rounds_left_are_the_rounds_that_are_admitted(tmp_path: Path) -> None:
    world, report, ledger = client(tmp_path, "a", [(2.0, 300)] * 2)
    promised = int(fleet_view(FleetBooks.of([report])).rounds[0])
    assert promised == rounds_left(ledger.books, world.rules)
    step = STEP.with_noise(2.0)
    for number in range(promised):
        round_trip(ledger, request(100 + number, mechanism=step, steps=300))
    with pytest.raises(BudgetExceeded):
        ledger.charge(request(999, mechanism=step, steps=300))
    ledger.close()


def test_clients_with_slots_are_seen_too(tmp_path: Path) -> None:
    _, report, ledger = client(tmp_path, "a", [(3.7, 39)], rule=ReservedSlots(slots={STEP: 100}))
    seen = fleet_view(FleetBooks.of([report]))
    assert seen.rounds.tolist() == [1]
    assert seen.guaranteed[0] == pytest.approx(ledger.answer().guaranteed.epsilon)
    ledger.close()


def test_the_newest_report_of_a_ledger_counts(tmp_path: Path) -> None:
    world, old, ledger = client(tmp_path, "a", [(3.7, 39)])
    round_trip(ledger, request(9))
    new = report_of(ledger.books)
    ledger.close()
    for order in ([old, new], [new, old]):
        assert FleetBooks.of(order).fleet.steps.tolist() == [78]
    assert FleetBooks.of([old]).updated([new]).fleet.steps.tolist() == [78]
    assert world.key.public == new.key


def test_a_forged_report_is_not_counted(tmp_path: Path) -> None:
    world, report, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    line = report.signed(world.key)
    assert read_report(line) == report
    with pytest.raises(InvalidInput, match="not signed"):
        read_report(line.replace("39*", "38*", 1))
    for wrong in ("", "lrdp-report-1\tx", line.rsplit("\t", 1)[0]):
        with pytest.raises(InvalidInput):
            read_report(wrong)


def test_adjacencies_are_not_mixed(tmp_path: Path) -> None:
    _, report, ledger = client(tmp_path, "a", [])
    ledger.close()
    other = report._replace(ledger="0" * 32, adjacency=Adjacency.REPLACE_ONE)
    with pytest.raises(InvalidInput, match="one adjacency, got 2"):
        FleetBooks.of([report, other])


def test_a_file_that_holds_no_fleet_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 nothing")
    for name, reason in {"x.npz": "it does not end as a file of columns does", "missing.npz": "No such file"}.items():
        with pytest.raises(InvalidInput, match=f"holds no fleet: {reason}"):
            FleetBooks.load(tmp_path / name)


def test_many_clients_agree_with_the_accountant_one_by_one(tmp_path: Path) -> None:
    chance = np.random.default_rng(11)
    _, report, ledger = client(tmp_path, "a", [])
    ledger.close()
    steps = [STEP.with_noise(float(noise)) for noise in (2.1, 3.3, 7.7)]
    reports = []
    for number in range(300):
        history: dict[Mechanism, int] = {step: int(chance.integers(1, 900)) for step in steps if chance.random() < 0.5}
        reports.append(report._replace(ledger=f"{number:032x}", history=history, following={steps[0]: 39}))
    seen = fleet_view(FleetBooks.of(reports))
    accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    for row in range(0, 300, 37):
        exact = accountant.epsilon(reports[row].history, 1e-6).epsilon
        assert exact * (1 - HAIR) <= seen.spent[row] <= exact * 1.02 + 1e-9
        assert seen.guaranteed[row] >= exact * (1 - 1e-9)
    assert replace(seen, rounds=seen.rounds).rounds.min() >= 0


# ---------------------------------------- whose a row is
def _strangers(report: Report, **changes: Any) -> Report:
    """What anybody can sign who knows a ledger's id: a report with a key of his own."""
    stranger = SigningKey.generate()
    forged = report._replace(key=stranger.public, opening_key=stranger.public, history={}, **changes)
    return read_report(forged.signed(stranger))


@pytest.mark.parametrize("seq", [1, 5, 6, 999])
def test_a_stranger_s_report_never_takes_the_place_of_a_row(tmp_path: Path, seq: int) -> None:
    _, true, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    forged = _strangers(true, seq=seq)
    books = FleetBooks.of([true])
    books.save(tmp_path / "fleet.npz")
    with pytest.raises(InvalidInput, match=r"two keys claim the ledger .* Nothing was imported and what was known"):
        FleetBooks.load(tmp_path / "fleet.npz").updated([forged])
    assert fleet_view(FleetBooks.load(tmp_path / "fleet.npz")).spent[0] > 0
    elsewhere = _strangers(true, ledger="0" * 32)
    assert len(books.updated([elsewhere])) == 2, "control: with an id of his own a stranger has a row of his own"


@pytest.mark.parametrize("forged_first", [True, False])
def test_of_two_keys_that_claim_a_ledger_at_once_neither_is_counted(tmp_path: Path, forged_first: bool) -> None:
    _, true, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    both = [true, _strangers(true, seq=true.seq + 1)]
    with pytest.raises(InvalidInput, match="ask the client which key is its own"):
        FleetBooks.of(reversed(both) if forged_first else both)


def test_a_key_that_was_handed_over_takes_the_row_along_and_the_old_one_does_not_come_back(tmp_path: Path) -> None:
    world, old, ledger = client(tmp_path, "a", [(3.7, 39)])
    second, third = SigningKey.generate(), SigningKey.generate()
    rotate_key(ledger, world.key, second)
    ledger.close()
    again = World(folder=world.folder, rules=world.rules, key=second, administrator=world.administrator)
    with again.open() as ledger:
        new = read_report(report_of(ledger.books).signed(second))
        rotate_key(ledger, second, third)
        newest = read_report(report_of(ledger.books).signed(third))
    assert (new.keys, newest.keys) == (
        (world.key.public, second.public),
        (world.key.public, second.public, third.public),
    )
    books = FleetBooks.of([old]).updated([new])
    assert books.keys.tolist() == [second.public]
    assert books.updated([newest]).keys.tolist() == [third.public]
    assert FleetBooks.of([newest, old, new]).keys.tolist() == [third.public]
    with pytest.raises(InvalidInput, match="two keys claim"):
        books.updated([read_report(old._replace(seq=99).signed(world.key))])  # a thief of the old key


def test_a_succession_that_the_old_key_did_not_sign_is_no_report(tmp_path: Path) -> None:
    world, true, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    thief = SigningKey.generate()
    rotation = rotation_message(true.ledger, world.key.public, thief.public)
    for signature, why in ((thief.sign(rotation), "not signed"), ("00" * 64, "not signed"), ("", "a successor is")):
        forged = true._replace(key=thief.public, successors=(Successor(thief.public, signature),))
        with pytest.raises(InvalidInput, match=why):
            read_report(forged.signed(thief))
    signed = true._replace(key=thief.public, successors=(Successor(thief.public, world.key.sign(rotation)),))
    assert read_report(signed.signed(thief)).keys == (world.key.public, thief.public), "control"


@pytest.mark.parametrize(
    "change",
    [{"following": {}}, {"seq": 0}, {"seq": 1 << 70}, {"history": {STEP: 1 << 70}}, {"epsilon": 0.0}, {"delta": 2.0}],
)
def test_a_signed_report_that_cannot_be_a_ledger_s_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    world, report, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    with pytest.raises(InvalidInput):
        read_report(report._replace(**change).signed(world.key))


def test_a_ledger_that_nobody_signed_is_not_imported(tmp_path: Path) -> None:
    world, _, ledger = client(tmp_path, "a", [(3.7, 39)])
    write_export(ledger, tmp_path / "export")
    ledger.close()
    with pytest.raises(InvalidInput, match="lrdp ledger export"):
        reports_in(world.path)
    assert len(reports_in(tmp_path / "export")) == 1, "control: its export is"


def test_a_fleet_is_saved_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, report, ledger = client(tmp_path, "a", [(3.7, 39)])
    ledger.close()
    books, path = FleetBooks.of([report]), tmp_path / "fleet.npz"
    books.save(path)
    before = path.read_bytes()

    def cut(file: object, **_: Any) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", cut)
    with pytest.raises(InvalidInput, match="No space left"):
        books.save(path)
    assert path.read_bytes() == before


def test_a_fleet_of_before_keys_were_kept_is_refused_with_what_to_do(tmp_path: Path) -> None:
    np.savez(tmp_path / "old.npz", names=np.array(["a"]))
    with pytest.raises(InvalidInput, match="import the reports into a new file"):
        FleetBooks.load(tmp_path / "old.npz")
