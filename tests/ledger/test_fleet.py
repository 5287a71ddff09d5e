from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.accounting import Adjacency, RenyiAccountant
from lrdp.errors import BudgetExceeded, InvalidInput
from lrdp.ledger import Ledger, SlotsChoice
from lrdp.ledger.fleet import FleetBooks, view
from lrdp.ledger.reports import Report, read_report, report_of
from lrdp.ledger.summary import rounds_left


def client(
    tmp_path: Path, name: str, rounds: list[tuple[float, int]], **options: object
) -> tuple[World, Report, Ledger]:
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
    seen = view(FleetBooks.load(tmp_path / "fleet.npz"))
    for row, (world, _, ledger) in enumerate(made):
        answer = ledger.answer()
        assert seen.guaranteed[row] == pytest.approx(answer.guaranteed.epsilon, rel=1e-12)
        assert seen.spent[row] == pytest.approx(answer.spent.epsilon, rel=0.02)
        assert seen.spent[row] >= answer.spent.epsilon * (1 - 1e-9)
        assert seen.left[row] == pytest.approx(8.0 - answer.guaranteed.epsilon)
        assert seen.rounds[row] == rounds_left(ledger.books, world.rules)
        ledger.close()
    assert seen.next_to_run_out(2).tolist() == np.lexsort((seen.left, seen.rounds))[:2].tolist()
    assert len(seen.next_to_run_out(99)) == 3


def test_the_rounds_left_are_the_rounds_that_are_admitted(tmp_path: Path) -> None:
    world, report, ledger = client(tmp_path, "a", [(2.0, 300)] * 2)
    promised = int(view(FleetBooks.of([report])).rounds[0])
    assert promised == rounds_left(ledger.books, world.rules)
    step = STEP.with_noise(2.0)
    for number in range(promised):
        round_trip(ledger, request(100 + number, mechanism=step, steps=300))
    with pytest.raises(BudgetExceeded):
        ledger.charge(request(999, mechanism=step, steps=300))
    ledger.close()


def test_clients_with_slots_are_seen_too(tmp_path: Path) -> None:
    _, report, ledger = client(tmp_path, "a", [(3.7, 39)], choice=SlotsChoice(slots={STEP: 100}))
    seen = view(FleetBooks.of([report]))
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
    for path in (tmp_path / "x.npz", tmp_path / "missing.npz"):
        with pytest.raises(InvalidInput, match="holds no fleet"):
            FleetBooks.load(path)


def test_many_clients_agree_with_the_accountant_one_by_one(tmp_path: Path) -> None:
    chance = np.random.default_rng(11)
    _, report, ledger = client(tmp_path, "a", [])
    ledger.close()
    steps = [STEP.with_noise(float(noise)) for noise in (2.1, 3.3, 7.7)]
    reports = []
    for number in range(300):
        history = {step: int(chance.integers(1, 900)) for step in steps if chance.random() < 0.5}
        reports.append(report._replace(ledger=f"{number:032x}", history=history, following={steps[0]: 39}))
    seen = view(FleetBooks.of(reports))
    accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    for row in range(0, 300, 37):
        exact = accountant.epsilon(reports[row].history, 1e-6).epsilon
        assert exact * (1 - 1e-9) <= seen.spent[row] <= exact * 1.02 + 1e-9
        assert seen.guaranteed[row] >= exact * (1 - 1e-9)
    assert replace(seen, rounds=seen.rounds).rounds.min() >= 0
