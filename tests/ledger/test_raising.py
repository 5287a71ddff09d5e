"""A budget is raised by a signed act alone, and a ledger is closed by one; both stay in the books."""

import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledger.worlds import STEP, World, exhaust, policy, request, round_trip
from lrdp.accounting import RenyiOrders, ReservedSlots, readings
from lrdp.errors import BudgetExceeded, InvalidInput, LedgerDamaged, PolicyRefused
from lrdp.ledger import (
    Ledger,
    Refusal,
    SigningKey,
    adopt_head,
    end_participation,
    events,
    raise_budget,
    report_of,
    summarize,
    verify_export,
    write_export,
)
from lrdp.ledger.books import close_message, raise_message

SPENT: dict[str, Any] = {"mechanism": STEP, "steps": 120}


@pytest.fixture
def small(tmp_path: Path) -> World:
    return World(folder=tmp_path, rules=policy(epsilon="1.0", per_run_epsilon="1.0"))


def restated(world: World, epsilon: str) -> World:
    return replace(world, rules=policy(epsilon=epsilon, per_run_epsilon=epsilon))


def rounds_of(ledger: Ledger, run: str) -> int:
    """How many rounds are admitted until one is refused."""
    before = len(ledger.books.charges.states)
    with pytest.raises(BudgetExceeded):
        exhaust(ledger, run=run, **SPENT)
    return len(ledger.books.charges.states) - before


def test_the_policy_alone_raises_nothing_and_the_refusal_names_the_command(small: World) -> None:
    with small.create(rule=RenyiOrders(weights={22.0: 1.0})) as ledger:
        assert rounds_of(ledger, "first") > 0
    with restated(small, "1.5").open() as ledger:
        with pytest.raises(BudgetExceeded, match=r"the 1\.5 that the policy states counts once `lrdp ledger raise`"):
            ledger.charge(request(5000, **SPENT))
        assert summarize(ledger.books).budget.epsilon == 1.0
        assert "lrdp ledger raise" in summarize(ledger.books).policy_note


def test_what_the_policy_states_is_said_of_the_budget_in_force_and_of_a_closed_one_not_at_all(small: World) -> None:
    with small.create(rule=RenyiOrders(weights={22.0: 1.0})):
        pass
    with restated(small, "1.5").open() as ledger:
        raise_budget(ledger, "a second study", small.administrator)
    with restated(small, "1.2").open() as ledger:
        assert summarize(ledger.books).policy_note == "; the policy allows 1.2 of the budget of 1.5"
    with restated(small, "2.0").open() as ledger:
        assert "lrdp ledger raise" in summarize(ledger.books).policy_note
        end_participation(ledger, "it has ended", small.administrator)
        assert summarize(ledger.books).policy_note == "", "no signature makes it count"


def test_a_signed_raise_admits_as_much_as_a_budget_that_was_opened_so(small: World, tmp_path: Path) -> None:
    rule = RenyiOrders(weights={22.0: 1.0})
    with small.create(rule=rule) as ledger:
        first = rounds_of(ledger, "first")
    world = restated(small, "1.5")
    with world.open() as ledger:
        raise_budget(ledger, "second study", world.administrator)
        second = rounds_of(ledger, "second")
        assert ledger.answer().guaranteed.epsilon <= 1.5
        assert report_of(ledger.books).epsilon == 1.5
        write_export(ledger, tmp_path / "export.txt")
    (tmp_path / "other").mkdir()
    with replace(world, folder=tmp_path / "other").create(rule=rule) as ledger:
        assert rounds_of(ledger, "all") == first + second
    told = summarize(verify_export(tmp_path / "export.txt").books)
    assert (told.opened_epsilon, [each.epsilon for each in told.raises], told.budget.epsilon) == (1.0, [1.5], 1.5)
    with small.open() as ledger:
        assert ledger.answer().guaranteed.epsilon > 1.0, "a policy may still say less than was signed"
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(9000, **SPENT))


def test_only_the_administrator_raises_and_only_upwards(small: World) -> None:
    small.create().close()
    with restated(small, "2.0").open() as ledger:
        with pytest.raises(InvalidInput, match="not that of this ledger's administrator"):
            raise_budget(ledger, "mine", small.key)
        with pytest.raises(InvalidInput, match="reason must say"):
            raise_budget(ledger, " ", small.administrator)
        raise_budget(ledger, "approved", small.administrator)
        with pytest.raises(InvalidInput, match=r"2\.0 is not above the present 2\.0"):
            raise_budget(ledger, "again", small.administrator)
        entry = ledger.books.raises[0]
        forged = small.key.sign(raise_message(ledger.books.opened.ledger, ledger.books.budget, 3.0, "x"))
        for wrong in (
            entry,
            entry._replace(epsilon=3.0),
            events.Raised(1, 3.0, "x", forged),
            entry._replace(epsilon=math.inf),
        ):
            with pytest.raises(LedgerDamaged):
                ledger.record_signed(wrong)
        assert [each.epsilon for each in ledger.books.raises] == [2.0]


def test_reserved_rounds_are_never_raised(small: World) -> None:
    """They are paid for as a whole; no theorem here covers adding to them after answers were seen."""
    small.create(rule=ReservedSlots(slots={STEP: 40})).close()
    with restated(small, "2.0").open() as ledger:
        with pytest.raises(InvalidInput, match="reserved and paid for as a whole"):
            raise_budget(ledger, "more", small.administrator)
        message = raise_message(ledger.books.opened.ledger, ledger.books.budget, 2.0, "more")
        with pytest.raises(LedgerDamaged, match="reserved and paid for as a whole"):
            ledger.record_signed(events.Raised(1, 2.0, "more", small.administrator.sign(message)))


def test_a_closed_ledger_refuses_everything_with_a_constant_and_cannot_be_reopened(small: World) -> None:
    with small.create() as ledger:
        round_trip(ledger, request(1))
        spent = ledger.answer().guaranteed.epsilon
        with pytest.raises(InvalidInput, match="not that of this ledger's administrator"):
            end_participation(ledger, "mine", small.key)
        end_participation(ledger, "the study has ended", small.administrator)
    with restated(small, "9.0").open() as ledger:
        for asked in (request(1), request(2), request(3, steps=1)):
            with pytest.raises(PolicyRefused) as caught:
                ledger.charge(asked)
            assert caught.value.refusal is Refusal.CLOSED
        for act in (end_participation, raise_budget):
            with pytest.raises(InvalidInput, match="closed"):
                act(ledger, "again", small.administrator)
        books = ledger.books
        assert ledger.answer().guaranteed.epsilon == spent
        assert summarize(books).rounds_left == 0
        charge = books.charges.newest
        assert charge is not None
        for wrong in (charge, books.closed):
            assert wrong is not None
            with pytest.raises(LedgerDamaged):
                ledger.record_signed(wrong)  # type: ignore[arg-type]


def test_an_end_that_the_administrator_did_not_sign_is_none(small: World) -> None:
    with small.create() as ledger:
        unsigned = SigningKey.generate().sign(close_message(ledger.books.opened.ledger, "x"))
        with pytest.raises(LedgerDamaged, match="signature"):
            ledger.record_signed(events.Closed(1, "x", unsigned))
        ledger.charge(request(1, steps=1))


def test_what_was_lost_is_still_adopted_after_the_end(small: World, tmp_path: Path) -> None:
    with small.create() as ledger:
        small.back_up(tmp_path / "backup.db")
        round_trip(ledger, request(1))
        head = ledger.head()
    small.path.write_bytes((tmp_path / "backup.db").read_bytes())
    with small.open() as ledger:
        end_participation(ledger, "ended", small.administrator)
        assert adopt_head(ledger, head, small.administrator).steps == 39


def test_a_raise_that_follows_the_answers_is_covered_by_the_budget_of_its_own_time() -> None:
    """Theorem 7, summed over every transcript: coins of bias 0.6 against 0.4, and a budget that is raised on heads."""
    order, delta, steps = 6.0, 0.02, 14
    one_coin = math.log(0.6**order * 0.4 ** (1 - order) + 0.4**order * 0.6 ** (1 - order)) / (order - 1)
    reading = [float(readings(np.array([n * one_coin]), {order: 1.0}, delta)[0]) for n in range(steps + 1)]
    low, high = reading[6], reading[steps]
    excess = {"its own": 0.0, "the first": 0.0}
    for coins in itertools.product((0, 1), repeat=steps):
        raised = sum(coins[:6]) >= 4
        taken = steps if raised else 6
        if any(coins[taken:]):
            continue  # the same transcript, counted once
        heads = sum(coins[:taken])
        likely, other = (p**heads * (1 - p) ** (taken - heads) for p in (0.6, 0.4))
        for name, budget in (("its own", high if raised else low), ("the first", low)):
            excess[name] += max(0.0, likely - math.exp(budget) * other)
    assert excess["its own"] <= delta
    assert excess["the first"] > excess["its own"], "who quotes the first budget after a raise says too little"
