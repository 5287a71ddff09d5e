"""What one server may spend: a share of the budget that it cannot have again by opening another session."""

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import pytest

from ledger.test_policy import OLDER
from ledger.worlds import STEP, World, digest, exhaust, policy, request, round_trip
from lrdp.accounting import RenyiAccountant
from lrdp.errors import BudgetExceeded, InvalidInput, PolicyRefused
from lrdp.ledger import Ledger, Refusal, Request, parse_policy, void
from lrdp.ledger.summary import summarize

STEPS = 58
SERVER, OTHER = "5e" * 32, "07" * 32
RULES = policy(epsilon="8.0", per_run_epsilon="1.5", server_keys=f'["{SERVER}", "{OTHER}"]')


def asked(session: str, number: int = 1, server: str = SERVER) -> Request:
    """A request as the federation makes them: a run is a session, named by its digest."""
    return replace(request(number, run=digest(session), steps=STEPS), server=server)


def sessions(server: str = SERVER) -> Iterator[Request]:
    """One round in each of many sessions."""
    return (asked(f"session {number}", server=server) for number in count())


def spend(ledger: Ledger, requests: Iterator[Request]) -> Refusal:
    """Until one is refused; why it was."""
    with pytest.raises(BudgetExceeded, match="nothing was spent") as caught:
        deque(map(ledger.charge, requests), maxlen=0)
    assert isinstance(caught.value.refusal, Refusal)
    return caught.value.refusal


def epsilon(ledger: Ledger, steps: int) -> float:
    """By the accountant alone: what so many steps cost that were fixed in advance, which no filter can beat."""
    accountant = RenyiAccountant(adjacency=ledger.books.opened.adjacency)
    return accountant.epsilon({STEP: steps}, ledger.books.opened.delta).epsilon


def test_new_sessions_of_one_server_do_not_give_it_another_share(tmp_path: Path) -> None:
    with World(folder=tmp_path, rules=RULES).create() as ledger:
        assert spend(ledger, sessions()) is Refusal.RUN_QUOTA
        assert epsilon(ledger, ledger.books.charges.steps) <= 1.5
        assert ledger.books.charges.runs > 1
        spent = ledger.books.charges.steps
        assert spend(ledger, (asked("one session", number) for number in range(9))) is Refusal.RUN_QUOTA
        assert ledger.books.charges.steps == spent


def test_control_runs_that_the_client_names_itself_have_shares_of_their_own(tmp_path: Path) -> None:
    rules = policy(epsilon="2.5", per_run_epsilon="1.5")
    with World(folder=tmp_path, rules=rules).create() as ledger:
        assert spend(ledger, (request(1, run=f"run-{number}", steps=STEPS) for number in count())) is Refusal.BUDGET
        assert epsilon(ledger, ledger.books.charges.steps) > 1.5


def test_each_server_has_a_share_of_its_own_and_the_budget_holds_over_all(tmp_path: Path) -> None:
    with World(folder=tmp_path, rules=RULES).create() as ledger:
        spend(ledger, sessions())
        half = ledger.books.charges.steps
        assert spend(ledger, sessions(OTHER)) is Refusal.RUN_QUOTA
        assert ledger.books.charges.steps == 2 * half
        assert ledger.answer().guaranteed.epsilon <= 8.0


def test_the_share_outlives_the_process(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=RULES)
    with world.create() as ledger:
        for each in islice(sessions(), 3):
            round_trip(ledger, each)
    with world.open() as ledger:
        spend(ledger, islice(sessions(), 3, None))
        spent = ledger.books.charges.steps
    fresh = World(folder=tmp_path / "fresh", rules=RULES)
    fresh.folder.mkdir()
    with fresh.create() as ledger:
        spend(ledger, sessions())
        assert ledger.books.charges.steps == spent


def test_a_session_recorded_without_its_server_counts_against_every_server(tmp_path: Path) -> None:
    """As older versions wrote them: whose it was nobody can tell, so nobody gets that share again."""
    world = World(folder=tmp_path, rules=policy(epsilon="8.0", per_run_epsilon="1.5"))
    with world.create() as ledger, pytest.raises(BudgetExceeded):
        exhaust(ledger, run=digest("a session of before"), steps=STEPS)
    with replace(world, rules=RULES).open() as ledger:
        spent = ledger.books.charges.steps
        assert spent > 0
        for server in (SERVER, OTHER):
            assert spend(ledger, sessions(server)) is Refusal.RUN_QUOTA
        assert ledger.books.charges.steps == spent


def test_a_voided_charge_is_given_back_to_its_server(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=RULES)
    with world.create() as ledger:
        receipt = ledger.charge(asked("first"))
        spend(ledger, sessions())
        void(ledger, receipt.entry, "the process died before it drew anything", world.administrator)
        ledger.charge(asked("again"))


def test_a_round_of_a_session_is_still_charged_twice_at_most(tmp_path: Path) -> None:
    with World(folder=tmp_path, rules=RULES).create() as ledger:
        for _ in range(2):
            ledger.charge(asked("one"))
        with pytest.raises(PolicyRefused) as caught:
            ledger.charge(asked("one"))
        assert caught.value.refusal is Refusal.RECHARGE
        ledger.charge(asked("another"))
        ledger.charge(asked("one", server=OTHER))


def test_a_request_of_a_server_that_is_not_pinned_is_refused(tmp_path: Path) -> None:
    with World(folder=tmp_path, rules=RULES).create() as ledger:
        for stranger in ("ab" * 32, ""):
            with pytest.raises(PolicyRefused, match="nothing was spent") as caught:
                ledger.charge(asked("one", server=stranger))
            assert caught.value.refusal is Refusal.SERVER
        assert ledger.books.charges.steps == 0


@pytest.mark.parametrize("change", [{"server": "ab"}, {"server": "AB" * 32}, {"run": f"{'5e' * 8}/run"}])
def test_no_run_can_be_named_as_if_it_were_another_servers(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        replace(asked("one"), **change)


def test_a_ledger_under_an_older_policy_opens_shows_and_goes_on_under_a_new_one(tmp_path: Path) -> None:
    older = parse_policy(OLDER, source="policy.toml")
    world = World(folder=tmp_path, rules=older)
    with world.create() as ledger:
        ledger.charge(request(1))
        assert summarize(ledger.books).policy.peers == older.peers
        with pytest.raises(PolicyRefused) as caught:
            ledger.charge(asked("one"))
        assert caught.value.refusal is Refusal.SERVER
    with replace(world, rules=RULES).open() as ledger:
        ledger.charge(asked("one"))
        assert summarize(ledger.books).policy.peers.server_keys == (SERVER, OTHER)
