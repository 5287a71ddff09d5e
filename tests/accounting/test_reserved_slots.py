"""Slots reserved in advance: used in any order or never, paid for once, and nothing outside them."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.accounting import Budget, Filter, Mechanism, PldAccountant, ReservedSlots
from lrdp.errors import InvalidInput, OutOfReach

from .given import ADD_REMOVE, NEVER_A_COUNT, fixed_size, histories, sampled

BUDGET = Budget(epsilon=4.0, delta=1e-3)
SLOTS: dict[Mechanism, int] = {fixed_size(4.427): 40, fixed_size(9.1, batch=60): 25, sampled(2.2)[1]: 3}


@cache
def reserved() -> Filter:
    """A value, so one is enough."""
    return Filter.reserved(BUDGET, ADD_REMOVE, SLOTS)


@settings(max_examples=4)
@given(data=st.data())
def test_slots_are_used_in_any_order_and_the_guarantee_stays_what_was_paid(data: st.DataObject) -> None:
    state = reserved()
    paid = PldAccountant(adjacency=ADD_REMOVE).epsilon(SLOTS, BUDGET.delta)
    order = data.draw(st.permutations(sorted(SLOTS, key=lambda each: each.noise_multiplier)))
    for mechanism in order:
        used = data.draw(st.integers(1, SLOTS[mechanism]))
        state, answer = state.charge(mechanism, used)
        assert answer.admitted
        assert answer.guaranteed == paid
        assert 0 <= answer.spent.epsilon <= paid.epsilon * (1 + 5e-4)
        after, refused = state.charge(mechanism, SLOTS[mechanism] - used + 1)
        assert not refused.admitted
        assert after is state
    assert state.rule == ReservedSlots(slots=SLOTS)


def test_all_slots_used_have_spent_what_was_paid() -> None:
    state = reserved()
    for mechanism, steps in SLOTS.items():
        state, answer = state.charge(mechanism, steps)
    assert answer.spent.epsilon == pytest.approx(answer.guaranteed.epsilon, rel=1e-9)


def test_slots_that_are_skipped_are_paid_for_all_the_same() -> None:
    state = reserved()
    assert state.answer().spent.epsilon == 0.0
    assert state.answer().guaranteed.epsilon == reserved().guaranteed.epsilon > 0


def test_a_step_outside_the_slots_is_refused_and_changes_nothing() -> None:
    state = reserved()
    for outside in (fixed_size(4.428), fixed_size(4.427, n=5001), sampled(2.2)[2]):
        after, answer = state.charge(outside, 1)
        assert not answer.admitted
        assert after is state


def test_slots_over_budget_are_out_of_reach_and_nothing_is_reserved() -> None:
    with pytest.raises(OutOfReach, match=r"above the budget of 0\.05 at delta=0\.001"):
        Filter.reserved(Budget(epsilon=0.05, delta=1e-3), ADD_REMOVE, SLOTS)


def test_no_slots_are_no_reservation() -> None:
    with pytest.raises(InvalidInput, match="at least one step"):
        Filter.reserved(BUDGET, ADD_REMOVE, {})


@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_steps_that_are_no_count_are_neither_reserved_nor_charged(value: Any) -> None:
    with pytest.raises(InvalidInput, match="steps must"):
        Filter.reserved(BUDGET, ADD_REMOVE, {fixed_size(4.427): value})
    with pytest.raises(InvalidInput, match="steps must"):
        reserved().charge(fixed_size(4.427), value)


@settings(max_examples=10)
@given(slots=histories(renyi=False, most=2), epsilon=st.floats(0.5, 40.0))
def test_whatever_is_reserved_keeps_the_budget(slots: dict[Mechanism, int], epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    cost = PldAccountant(adjacency=ADD_REMOVE).epsilon(slots, budget.delta).epsilon
    if cost <= epsilon:
        assert Filter.reserved(budget, ADD_REMOVE, slots).answer().guaranteed.epsilon == cost
    else:
        with pytest.raises(OutOfReach, match="nothing was reserved"):
            Filter.reserved(budget, ADD_REMOVE, slots)
