"""Filters: the naive rule is broken by a strategy found here, and the rules that exist are not.

The strategy is adaptive: a first discrete mechanism, and a second one that depends on what the first has answered. Both
are distributions on a few points, so the divergence of the whole is an exact sum.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import logsumexp

from lrdp.accounting import (
    Adjacency,
    Budget,
    Filter,
    Mechanism,
    RenyiAccountant,
    RenyiOrders,
)
from lrdp.accounting.conversion import epsilon_at
from lrdp.errors import InvalidInput, Unsupported

from .given import ADD_REMOVE, NEVER_A_COUNT, REPLACE_ONE, fixed_size, mechanisms, sampled

# --- discrete mechanisms, and strategies made of them --------------------------------------------------------------


@dataclass(frozen=True)
class DiscretePair:
    """P against Q on a few points; the larger of the two directions counts."""

    upper: tuple[float, ...]
    lower: tuple[float, ...]

    @classmethod
    def log_excess_together(cls, pairs: Sequence[Self], orders: np.ndarray) -> np.ndarray:
        return np.array(
            [[max(pair.log_excess(order), pair.reversed().log_excess(order)) for order in orders] for pair in pairs]
        )

    def log_excess(self, order: float) -> float:
        log_moment = logsumexp(order * np.log(self.upper) + (1 - order) * np.log(self.lower))
        return float(np.log(np.expm1(log_moment))) if log_moment < 30 else float(log_moment)

    def reversed(self) -> DiscretePair:
        return DiscretePair(self.lower, self.upper)


@dataclass(frozen=True, kw_only=True)
class Discrete(Mechanism):
    """Outcome i has the given chance under P and the given loss log P/Q; a last outcome takes the rest."""

    name: ClassVar[str] = "discrete"
    noise_multiplier: float = 1.0
    chances: tuple[float, ...]
    losses: tuple[float, ...]

    def dominating_pair(self, adjacency: Adjacency) -> DiscretePair:  # type: ignore[override]
        lower = [chance * math.exp(-loss) for chance, loss in zip(self.chances, self.losses, strict=True)]
        return DiscretePair((*self.chances, 1 - math.fsum(self.chances)), (*lower, 1 - math.fsum(lower)))


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """``first``, then the second mechanism that belongs to its outcome, or nothing more."""

    first: Discrete
    seconds: tuple[Discrete | None, ...]

    def delta(self, epsilon: float) -> mpf:
        """The exact hockey-stick divergence of the whole transcript, the larger direction, by listing every outcome."""
        with mp.workdps(50):
            masses = list(self._transcripts())
            growth = mp.exp(mpf(epsilon))
            one = mp.fsum(max(mpf(0), upper - growth * lower) for upper, lower in masses)
            other = mp.fsum(max(mpf(0), lower - growth * upper) for upper, lower in masses)
            return max(one, other)

    def _transcripts(self) -> list[tuple[mpf, mpf]]:
        def points(mechanism: Discrete | None) -> list[tuple[mpf, mpf]]:
            if mechanism is None:
                return [(mpf(1), mpf(1))]
            pair = mechanism.dominating_pair(ADD_REMOVE)
            return [(mpf(upper), mpf(lower)) for upper, lower in zip(pair.upper, pair.lower, strict=True)]

        branches = zip(points(self.first), self.seconds, strict=True)
        return [
            (upper * more_upper, lower * more_lower)
            for (upper, lower), second in branches
            for more_upper, more_lower in points(second)
        ]

    def admitted_by(self, admits: Callable[[list[Discrete]], bool]) -> Strategy:
        """The same strategy with every second mechanism that the rule refuses left out."""
        seconds = tuple(
            second if second is not None and admits([self.first, second]) else None for second in self.seconds
        )
        return Strategy(first=self.first, seconds=seconds)


BUDGET = Budget(epsilon=4.0, delta=1e-3)
ORDERS = np.array([4.0, 16.0])

# Found by numerical search. Outcome 0 of the first is likely and a little revealing: it uses up order 16 and leaves
# order 4 its rest. Outcome 1 is rare and more revealing, the other way round.
BREAKS_THE_NAIVE_RULE = Strategy(
    first=Discrete(chances=(0.718, 0.0154), losses=(0.992, 1.513)),
    seconds=(Discrete(chances=(0.00505,), losses=(3.29,)), Discrete(chances=(0.92,), losses=(2.557,)), None),
)


def naive(taken: list[Discrete]) -> bool:
    """Go on while *some* order still fits with the whole of delta: the rule that must not exist."""
    divergence = sum(
        (RenyiAccountant(adjacency=ADD_REMOVE).divergence({each: 1}, ORDERS) for each in taken), 0 * ORDERS
    )
    return bool((epsilon_at(divergence, ORDERS, BUDGET.delta) <= BUDGET.epsilon).any())


def sound(weights: dict[float, float]) -> Callable[[list[Discrete]], bool]:
    """What a filter of these orders admits, step after step."""

    def admits(taken: list[Discrete]) -> bool:
        state, answers = Filter(rule=RenyiOrders(weights=weights), budget=BUDGET, adjacency=ADD_REMOVE), []
        for each in taken:
            state, answer = state.charge(each, 1)
            answers.append(answer.admitted)
        return all(answers)

    return admits


def test_the_naive_rule_admits_both_branches_and_delta_is_exceeded_by_four_fifths() -> None:
    strategy = BREAKS_THE_NAIVE_RULE
    assert naive([strategy.first])
    assert strategy.admitted_by(naive) == strategy
    assert strategy.delta(BUDGET.epsilon) > 1.8 * BUDGET.delta


@pytest.mark.parametrize(
    ("weights", "admitted"),
    [({4.0: 0.5, 16.0: 0.5}, (False, False)), ({4.0: 1.0}, (True, False)), ({16.0: 1.0}, (False, True))],
)
def test_a_filter_refuses_one_branch_at_least_and_delta_is_kept(
    weights: dict[float, float], admitted: tuple[bool, bool]
) -> None:
    strategy = BREAKS_THE_NAIVE_RULE
    left = strategy.admitted_by(sound(weights))
    assert sound(weights)([strategy.first])
    assert tuple(second is not None for second in left.seconds[:2]) == admitted
    assert left.delta(BUDGET.epsilon) <= BUDGET.delta


def test_weights_that_would_be_the_naive_rule_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 1, got 2"):
        Filter(rule=RenyiOrders(weights={4.0: 1.0, 16.0: 1.0}), budget=BUDGET, adjacency=ADD_REMOVE)


def jittered(value: float) -> st.SearchStrategy[float]:
    return st.floats(0.7 * value, min(1.2 * value, 0.97 if value < 0.97 else math.inf))


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    """Neighbours of the strategy above, where a filter is most likely to fail."""

    def near(each: Discrete) -> Discrete:
        losses = tuple(draw(st.floats(0.6 * loss, 1.5 * loss)) for loss in each.losses)
        return Discrete(chances=tuple(draw(jittered(chance)) for chance in each.chances), losses=losses)

    first = near(BREAKS_THE_NAIVE_RULE.first)
    return Strategy(first=first, seconds=tuple(each and near(each) for each in BREAKS_THE_NAIVE_RULE.seconds))


@settings(max_examples=60)
@given(
    strategy=strategies(),
    weights=st.sampled_from(
        [{4.0: 1.0}, {16.0: 1.0}, {4.0: 0.5, 16.0: 0.5}, {4.0: 0.8, 16.0: 0.2}, {3.0: 0.3, 9.5: 0.7}]
    ),
)
def test_no_adaptive_strategy_that_a_filter_admits_exceeds_delta(
    strategy: Strategy, weights: dict[float, float]
) -> None:
    if sound(weights)([strategy.first]):
        assert strategy.admitted_by(sound(weights)).delta(BUDGET.epsilon) <= BUDGET.delta


def test_the_search_around_the_counterexample_would_catch_the_naive_rule() -> None:
    caught = 0
    for scale in itertools.product((0.98, 1.0), repeat=3):
        first, (likely, rare, _) = BREAKS_THE_NAIVE_RULE.first, BREAKS_THE_NAIVE_RULE.seconds
        assert likely is not None
        assert rare is not None
        near = Strategy(
            first=Discrete(chances=first.chances, losses=tuple(loss * scale[0] for loss in first.losses)),
            seconds=(
                Discrete(chances=likely.chances, losses=(likely.losses[0] * scale[1],)),
                Discrete(chances=rare.chances, losses=(rare.losses[0] * scale[2],)),
                None,
            ),
        )
        caught += near.admitted_by(naive).delta(BUDGET.epsilon) > BUDGET.delta
    assert caught >= 4


# --- the committed order -------------------------------------------------------------------------------------------

PLANS = [{fixed_size(4.427): 10_000}, {fixed_size(4.427): 1200, fixed_size(9.1, batch=60): 700, sampled(2.2)[2]: 90}]


@pytest.mark.parametrize("plan", PLANS)
def test_on_plan_the_committed_order_costs_nothing_and_past_it_nothing_is_admitted(plan: dict[Mechanism, int]) -> None:
    planned = RenyiAccountant(adjacency=ADD_REMOVE).epsilon(plan, 1e-5)
    budget = Budget(epsilon=planned.epsilon * (1 + 1e-12), delta=1e-5)
    state = Filter.committed(budget, ADD_REMOVE, plan)
    assert planned.order is not None
    assert state.rule == RenyiOrders(weights={planned.order: 1.0})
    for mechanism, steps in plan.items():
        for _ in range(10):
            state, answer = state.charge(mechanism, steps // 10)
            assert answer.admitted
    assert state.answer().guaranteed.epsilon == pytest.approx(planned.epsilon, rel=1e-12)
    assert state.answer().spent.epsilon == pytest.approx(planned.epsilon, rel=1e-12)
    for mechanism in plan:
        after, answer = state.charge(mechanism, 1)
        assert not answer.admitted
        assert after is state


@settings(max_examples=40)
@given(
    charges=st.lists(st.tuples(mechanisms(), st.integers(1, 400)), min_size=1, max_size=8),
    epsilon=st.floats(0.3, 12.0),
    weights=st.sampled_from([None, {8.0: 1.0}, {2.5: 0.25, 6.0: 0.25, 17.0: 0.25, 64.0: 0.25}]),
)
def test_a_filter_never_admits_more_than_its_budget_and_never_forgets(
    charges: list[tuple[Mechanism, int]], epsilon: float, weights: dict[float, float] | None
) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-6)
    if weights is None:
        state = Filter.committed(budget, ADD_REMOVE, {charges[0][0]: 500})
    else:
        state = Filter(rule=RenyiOrders(weights=weights), budget=budget, adjacency=ADD_REMOVE)
    taken: dict[Mechanism, int] = {}
    for mechanism, steps in charges:
        before, (state, answer) = state, state.charge(mechanism, steps)
        if answer.admitted:
            taken[mechanism] = taken.get(mechanism, 0) + steps
        else:
            assert state is before
        assert dict(state.history) == taken
        assert answer == state.answer(admitted=answer.admitted)
        assert answer.guaranteed.epsilon <= budget.epsilon
        assert answer.guaranteed.epsilon >= answer.spent.epsilon * (1 - 1e-3)
        assert answer.guaranteed.delta == answer.spent.delta == budget.delta


@pytest.mark.parametrize(
    ("step", "planned", "taken", "delta"),
    [
        (fixed_size(13.70801469025604, n=58290, batch=132), 3129, 3092, 8.556167849038314e-08),
        (fixed_size(2.078704269947912, n=19250, batch=42), 4652, 4520, 0.0002996438588912479),
    ],
)
def test_what_is_guaranteed_is_never_below_what_is_spent_close_to_the_plan(
    step: Mechanism, planned: int, taken: int, delta: float
) -> None:
    state = Filter.committed(Budget(epsilon=50.0, delta=delta), ADD_REMOVE, {step: planned})
    _, answer = state.charge(step, taken)
    assert answer.guaranteed.epsilon >= answer.spent.epsilon


def test_steps_that_do_not_fit_leave_room_for_steps_that_do() -> None:
    state = Filter(rule=RenyiOrders(weights={12.0: 1.0}), budget=Budget(epsilon=2.0, delta=1e-5), adjacency=ADD_REMOVE)
    state, refused = state.charge(fixed_size(0.8), 100)
    assert not refused.admitted
    assert refused.guaranteed.epsilon == refused.spent.epsilon == 0.0
    state, admitted = state.charge(fixed_size(9.1), 100)
    assert admitted.admitted
    assert 0 < admitted.spent.epsilon <= admitted.guaranteed.epsilon <= 2.0


def test_many_small_charges_are_one_large_one() -> None:
    start = Filter(rule=RenyiOrders(weights={9.0: 1.0}), budget=Budget(epsilon=3.0, delta=1e-5), adjacency=REPLACE_ONE)
    small = start
    for _ in range(50):
        small, _ = small.charge(fixed_size(4.427), 7)
    large, _ = start.charge(fixed_size(4.427), 350)
    assert small.answer() == large.answer()


def test_a_filter_refuses_what_its_accountant_refuses() -> None:
    state = Filter(rule=RenyiOrders(weights={9.0: 1.0}), budget=BUDGET, adjacency=ADD_REMOVE)
    with pytest.raises(Unsupported, match="with replacement"):
        state.charge(sampled(4.427)[1], 1)


@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_a_charge_for_steps_that_are_no_count_is_refused_with_the_value(value: Any) -> None:
    state = Filter(rule=RenyiOrders(weights={9.0: 1.0}), budget=BUDGET, adjacency=ADD_REMOVE)
    with pytest.raises(InvalidInput, match="steps must"):
        state.charge(fixed_size(4.427), value)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "at least one order"),
        ({1.0: 1.0}, "order must be above 1 and finite, got 1.0"),
        ({float("nan"): 1.0}, "got nan"),
        ({float("inf"): 1.0}, "got inf"),
        ({-3.0: 1.0}, "got -3.0"),
        ({4.0: 0.0}, "weight must be above 0 and finite, got 0.0"),
        ({4.0: float("nan")}, "got nan"),
        ({4.0: -0.1, 16.0: 1.0}, "got -0.1"),
        ({4.0: 1.0000000000000002}, "at most 1, got 1.0000000000000002"),
        ({4.0: 0.6, 16.0: 0.6}, "at most 1, got 1.2"),
    ],
)
def test_weights_that_do_not_share_delta_are_refused(weights: dict[float, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Filter(rule=RenyiOrders(weights=weights), budget=BUDGET, adjacency=ADD_REMOVE)


def test_ten_tenths_are_one() -> None:
    made = RenyiOrders(weights={2.0 + order: 0.1 for order in range(10)})
    assert len(made.weights) == 10


def test_an_empty_plan_has_no_order_to_commit_to() -> None:
    with pytest.raises(InvalidInput, match="at least one step"):
        Filter.committed(BUDGET, ADD_REMOVE, {})
