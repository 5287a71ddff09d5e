"""Calibration: what comes back keeps the budget, and a hair less noise, one round more or another batch does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.accounting import (
    Accountant,
    Budget,
    Calibrated,
    FixedSizeGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    RenyiAccountant,
    SampledGaussian,
    TaylorAccountant,
    TruncatedPoissonGaussian,
    least_noise,
    most_rounds,
    quietest_batch,
)
from lrdp.errors import InvalidInput, OutOfReach, Unsupported

from .given import (
    ADD_REMOVE,
    NEVER_A_COUNT,
    NEVER_A_PROBABILITY,
    NEVER_POSITIVE,
    REPLACE_ONE,
    fixed_size,
    mechanisms,
    sampled,
)

RENYI, PLD = RenyiAccountant(adjacency=ADD_REMOVE), PldAccountant(adjacency=ADD_REMOVE)
TAYLOR = TaylorAccountant(adjacency=ADD_REMOVE)

budgets = st.builds(Budget, epsilon=st.floats(0.2, 15.0), delta=st.floats(1e-7, 1e-2))
exact = pytest.mark.parametrize(("accountant", "renyi"), [(RENYI, True), (PLD, False)], ids=["rdp", "pld"])


def cost(accountant: Accountant, mechanism: Mechanism, steps: int, budget: Budget) -> float:
    return accountant.epsilon({mechanism: steps}, budget.delta).epsilon


def hits(found: Calibrated[Mechanism], steps: int, budget: Budget, accountant: Accountant) -> bool:
    """Whether the noise found keeps the budget and three parts in 10⁴ less break it.

    Rényi orders are searched as finely as that: between two of them a part in 10⁴ less noise may cost no more.
    """
    less = found.mechanism.with_noise(found.mechanism.noise_multiplier * (1 - 3e-4))
    kept = cost(accountant, found.mechanism, steps, budget) <= budget.epsilon
    return kept and cost(accountant, less, steps, budget) > budget.epsilon


@exact
@settings(max_examples=15)
@given(data=st.data(), steps=st.integers(1, 500), budget=budgets)
def test_the_least_noise_keeps_the_budget_and_a_hair_less_breaks_it(
    accountant: Accountant, renyi: bool, data: st.DataObject, steps: int, budget: Budget
) -> None:
    mechanism = data.draw(mechanisms(renyi=renyi))
    found = least_noise(mechanism, steps, budget, accountant)
    assert found.spent == accountant.epsilon({found.mechanism: steps}, budget.delta)
    assert found.mechanism.with_noise(1.0) == mechanism.with_noise(1.0)
    if found.mechanism.noise_multiplier > 0.1:  # below, a hair is lost in the accountant's own rounding
        assert hits(found, steps, budget, accountant)
    else:
        assert found.spent.epsilon <= budget.epsilon


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "accountant", [TAYLOR, RenyiAccountant(adjacency=REPLACE_ONE), PldAccountant(adjacency=REPLACE_ONE)]
)
@pytest.mark.parametrize("epsilon", [0.7, 4.1])
def test_the_least_noise_is_least_for_the_other_accountants_too(accountant: Accountant, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=3e-6)
    assert hits(least_noise(fixed_size(1.0), 700, budget, accountant), 700, budget, accountant)


def test_the_check_would_reject_noise_that_is_a_little_too_little_or_too_much() -> None:
    budget = Budget(epsilon=2.3, delta=1e-5)
    found = least_noise(fixed_size(1.0), 700, budget, RENYI)
    for factor in (1 - 2e-5, 1 + 4e-4):
        other = found.mechanism.with_noise(found.mechanism.noise_multiplier * factor)
        assert not hits(Calibrated(mechanism=other, spent=found.spent), 700, budget, RENYI)


def is_the_most(rounds: int, mechanism: Mechanism, per_round: int, budget: Budget, accountant: Accountant) -> bool:
    fits = rounds == 0 or cost(accountant, mechanism, rounds * per_round, budget) <= budget.epsilon
    return fits and cost(accountant, mechanism, (rounds + 1) * per_round, budget) > budget.epsilon


@settings(max_examples=30)
@given(mechanism=mechanisms(), per_round=st.integers(1, 60), budget=budgets)
def test_the_most_rounds_fit_and_one_more_does_not(mechanism: Mechanism, per_round: int, budget: Budget) -> None:
    try:
        rounds = most_rounds(mechanism, per_round, budget, RENYI)
    except OutOfReach:
        assert cost(RENYI, mechanism, 10**8, budget) <= budget.epsilon
    else:
        assert is_the_most(rounds, mechanism, per_round, budget, RENYI)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("accountant", [PLD, TAYLOR], ids=["pld", "taylor"])
@pytest.mark.parametrize("epsilon", [0.9, 5.3])
def test_the_most_rounds_are_most_for_the_other_accountants_too(accountant: Accountant, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=3e-6)
    every = sampled(2.3, n=2000, batch=60, cap=71)
    bounded = [step for step in every if accountant is PLD or step.name != "fixed-size-with-replacement"]
    assert len(bounded) == (4 if accountant is PLD else 3)
    for mechanism in bounded:
        assert is_the_most(most_rounds(mechanism, 17, budget, accountant), mechanism, 17, budget, accountant)


@pytest.mark.parametrize("accountant", [RENYI, PLD, TAYLOR])
def test_a_round_that_does_not_fit_is_no_round(accountant: Accountant) -> None:
    assert most_rounds(fixed_size(0.9), 500, Budget(epsilon=0.3, delta=1e-6), accountant) == 0


def test_the_most_rounds_of_the_least_noise_are_the_rounds_it_was_asked_for() -> None:
    budget = Budget(epsilon=6.0, delta=1e-5)
    for accountant in (RENYI, PLD):
        found = least_noise(fixed_size(1.0), 10_000, budget, accountant)
        assert most_rounds(found.mechanism, 40, budget, accountant) == 250


def truncated(batch_size: int) -> TruncatedPoissonGaussian:
    return TruncatedPoissonGaussian(dataset_size=5000, batch_size=batch_size, cap=128, noise_multiplier=1.0)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("accountant", [RENYI, PLD], ids=["rdp", "pld"])
@pytest.mark.parametrize("epsilon", [2.0, 8.0])
def test_the_quietest_batch_is_quieter_than_its_neighbours(accountant: Accountant, epsilon: float) -> None:
    budget = Budget(epsilon=epsilon, delta=1e-5)
    found = quietest_batch(truncated, 128, 2000, budget, accountant)
    best = found.mechanism
    assert cost(accountant, best, 2000, budget) <= epsilon
    assert 64 < best.batch_size < 128
    for size in (best.batch_size - 8, best.batch_size - 1, best.batch_size + 1, best.batch_size + 8, 128, 64):
        other = least_noise(truncated(size), 2000, budget, accountant).mechanism
        assert best.noise_on_mean <= other.noise_on_mean * (1 + 2e-4)


def test_the_quietest_batch_is_the_largest_where_size_costs_nothing_else() -> None:
    def plain(batch_size: int) -> FixedSizeGaussian:
        return fixed_size(1.0, n=900, batch=batch_size)

    budget = Budget(epsilon=1.7, delta=1e-5)
    assert quietest_batch(plain, 77, 40, budget, RENYI).mechanism.batch_size == 77
    assert quietest_batch(plain, 1, 40, budget, RENYI).mechanism.batch_size == 1


@pytest.mark.parametrize("value", [*NEVER_POSITIVE, None])
def test_a_budget_of_no_positive_epsilon_is_refused_with_the_value(value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"epsilon must .*got .*{re.escape(str(value))}"):
        Budget(epsilon=value, delta=1e-5)


@pytest.mark.parametrize("value", [*NEVER_A_PROBABILITY, None])
def test_a_budget_of_no_probable_delta_is_refused_with_the_value(value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"delta must .*got .*{re.escape(str(value))}"):
        Budget(epsilon=1.0, delta=value)


@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_counts_that_are_none_are_refused_with_the_value(value: Any) -> None:
    budget, message = Budget(epsilon=1.0, delta=1e-5), f"must .*got .*{re.escape(str(value))}"
    with pytest.raises(InvalidInput, match=f"steps {message}"):
        least_noise(fixed_size(1.0), value, budget, RENYI)
    with pytest.raises(InvalidInput, match=f"steps per round {message}"):
        most_rounds(fixed_size(1.0), value, budget, RENYI)
    with pytest.raises(InvalidInput, match=f"largest batch {message}"):
        quietest_batch(truncated, value, 100, budget, RENYI)


def test_a_budget_that_no_noise_keeps_is_out_of_reach_and_says_so() -> None:
    with pytest.raises(OutOfReach, match="no noise multiplier up to 1000000\\.0"):
        least_noise(Gaussian(noise_multiplier=1.0), 10**9, Budget(epsilon=1e-3, delta=1e-9), RENYI)


def test_rounds_that_are_no_limit_are_out_of_reach_and_say_so() -> None:
    with pytest.raises(OutOfReach, match="rounds keep epsilon=5"):
        most_rounds(fixed_size(3000.0, n=10**6, batch=1), 1, Budget(epsilon=5.0, delta=1e-5), RENYI)


@pytest.mark.parametrize("accountant", [RENYI, TAYLOR])
def test_what_an_accountant_does_not_support_is_not_calibrated_either(accountant: Accountant) -> None:
    redrawn: SampledGaussian = sampled(1.0)[1]
    with pytest.raises(Unsupported, match="with replacement"):
        least_noise(redrawn, 100, Budget(epsilon=1.0, delta=1e-5), accountant)
    with pytest.raises(Unsupported, match="with replacement"):
        most_rounds(redrawn, 100, Budget(epsilon=1.0, delta=1e-5), accountant)


@pytest.mark.parametrize("epsilon", [1e-2, 60.0, 400.0])
@pytest.mark.parametrize("accountant", [RENYI, PLD, TAYLOR], ids=["rdp", "pld", "taylor"])
def test_extreme_budgets_are_used_to_their_end(accountant: Accountant, epsilon: float) -> None:
    if (accountant, epsilon) == (TAYLOR, 1e-2):
        pytest.skip("below what any noise costs by this bound: the next test")
    found = least_noise(fixed_size(1.0), 50, Budget(epsilon=epsilon, delta=1e-5), accountant)
    assert 0.999 * epsilon <= found.spent.epsilon <= epsilon


def test_a_budget_below_what_any_noise_costs_is_out_of_reach() -> None:
    with pytest.raises(OutOfReach, match="no noise multiplier up to"):
        least_noise(fixed_size(1.0), 50, Budget(epsilon=1e-2, delta=1e-5), TAYLOR)
