"""Accountants: finite, never negative, monotone, additive, and refusing every number that is none."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.accounting import (
    Accountant,
    FixedSizeGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    TaylorAccountant,
    TruncatedPoissonGaussian,
)
from lrdp.errors import InvalidInput, LrdpError

from .given import (
    ADD_REMOVE,
    NEVER_A_COUNT,
    NEVER_A_PROBABILITY,
    NEVER_POSITIVE,
    REPLACE_ONE,
    deltas,
    fixed_size,
    histories,
    mechanisms,
    sampled,
)

RENYI, PLD = RenyiAccountant(adjacency=ADD_REMOVE), PldAccountant(adjacency=ADD_REMOVE)
TAYLOR = TaylorAccountant(adjacency=ADD_REMOVE)
EVERY = [RENYI, TAYLOR, PLD, RenyiAccountant(adjacency=REPLACE_ONE), PldAccountant(adjacency=REPLACE_ONE)]

# How far a monotone quantity may seem to go the wrong way: the search for an order stops within 2e-4 of the best, and a
# loss distribution is rounded up by as much.
SLACK = 5e-4

exact = pytest.mark.parametrize(("accountant", "renyi"), [(RENYI, True), (PLD, False)], ids=["rdp", "pld"])
every = pytest.mark.parametrize("accountant", EVERY, ids=lambda each: f"{each.name}-{each.adjacency.value}")


def cost(accountant: Accountant, history: dict[Mechanism, int], delta: float = 1e-5) -> float:
    return accountant.epsilon(history, delta).epsilon


def rises(low: float, high: float) -> bool:
    return low <= high * (1 + SLACK) + SLACK


@exact
@settings(max_examples=60)
@given(data=st.data(), delta=deltas)
def test_epsilon_is_finite_and_never_negative(
    accountant: Accountant, renyi: bool, data: st.DataObject, delta: float
) -> None:
    spent = accountant.epsilon(data.draw(histories(renyi=renyi)), delta)
    assert 0 <= spent.epsilon < math.inf
    assert spent.delta == delta


@exact
@settings(max_examples=40)
@given(data=st.data(), more=st.integers(1, 2000), delta=deltas)
def test_more_steps_cost_more(
    accountant: Accountant, renyi: bool, data: st.DataObject, more: int, delta: float
) -> None:
    history = data.draw(histories(renyi=renyi, most=2))
    mechanism = next(iter(history))
    longer = {**history, mechanism: history[mechanism] + more}
    assert rises(cost(accountant, history, delta), cost(accountant, longer, delta))


@exact
@settings(max_examples=40)
@given(data=st.data(), factor=st.floats(1.01, 9.0), steps=st.integers(1, 60), delta=deltas)
def test_more_noise_costs_less(
    accountant: Accountant, renyi: bool, data: st.DataObject, factor: float, steps: int, delta: float
) -> None:
    mechanism = data.draw(mechanisms(renyi=renyi))
    quieter = mechanism.with_noise(mechanism.noise_multiplier * factor)
    assert rises(cost(accountant, {quieter: steps}, delta), cost(accountant, {mechanism: steps}, delta))


@exact
@settings(max_examples=40)
@given(
    data=st.data(),
    n=st.integers(20, 9000),
    noise=st.floats(0.8, 12.0),
    kind=st.sampled_from([FixedSizeGaussian, PoissonGaussian]),
    steps=st.integers(1, 60),
)
def test_a_larger_share_of_the_data_costs_more(
    accountant: Accountant, renyi: bool, data: st.DataObject, n: int, noise: float, kind: type, steps: int
) -> None:
    few = data.draw(st.integers(1, n - 2))
    many = data.draw(st.integers(few + 1, n - 1))
    small, large = (kind(dataset_size=n, batch_size=size, noise_multiplier=noise) for size in (few, many))
    assert rises(cost(accountant, {small: steps}), cost(accountant, {large: steps}))


@exact
@settings(max_examples=40)
@given(data=st.data(), delta=deltas, share=st.floats(1e-3, 0.95))
def test_a_smaller_delta_costs_more(
    accountant: Accountant, renyi: bool, data: st.DataObject, delta: float, share: float
) -> None:
    history = data.draw(histories(renyi=renyi, most=2))
    assert rises(cost(accountant, history, delta), cost(accountant, history, max(delta * share, 1e-9)))


@exact
@settings(max_examples=40)
@given(data=st.data(), delta=st.floats(1e-8, 0.05))
def test_the_delta_of_the_epsilon_of_a_delta_is_that_delta(
    accountant: Accountant, renyi: bool, data: st.DataObject, delta: float
) -> None:
    history = data.draw(histories(renyi=renyi, most=2))
    epsilon = cost(accountant, history, delta)
    if epsilon > 1e-3:
        back = accountant.delta(history, epsilon)
        assert back.epsilon == epsilon
        assert back.delta <= delta * 1.01
        assert cost(accountant, history, back.delta) == pytest.approx(epsilon, rel=2e-3, abs=1e-3)


@settings(max_examples=40)
@given(history=histories(most=5))
def test_the_divergence_of_a_history_is_the_sum_over_its_steps(history: dict[Mechanism, int]) -> None:
    orders = np.array([1.1, 2.0, 3.7, 16.0, 64.5])
    summed = sum(steps * RENYI.divergence({mechanism: 1}, orders) for mechanism, steps in history.items())
    assert RENYI.divergence(history, orders) == pytest.approx(summed, rel=1e-11)


@exact
@settings(max_examples=25)
@given(data=st.data())
def test_the_order_of_the_steps_does_not_matter(accountant: Accountant, renyi: bool, data: st.DataObject) -> None:
    history = data.draw(histories(renyi=renyi))
    backwards = dict(reversed(history.items()))
    assert cost(accountant, backwards) == pytest.approx(cost(accountant, history), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("accountant", [RENYI, TAYLOR, PLD])
def test_ten_thousand_equal_steps_cost_what_they_cost_under_two_names(accountant: Accountant) -> None:
    # The same step, once as 128 of 5000 and once as 256 of 10,000.
    twins: dict[Mechanism, int] = {fixed_size(4.427): 4_000, fixed_size(4.427, n=10_000, batch=256): 6_000}
    assert cost(accountant, twins) == pytest.approx(cost(accountant, {fixed_size(4.427): 10_000}), rel=1e-6)


def test_tiny_spends_are_not_lost_beside_a_large_one() -> None:
    large, tiny = fixed_size(0.9), fixed_size(900.0, n=10**6, batch=1)
    orders = np.array([2.0, 8.5])
    alone, both = RENYI.divergence({large: 1}, orders), RENYI.divergence({large: 1, tiny: 10**12}, orders)
    assert both - alone == pytest.approx(10**12 * RENYI.divergence({tiny: 1}, orders), rel=1e-3)


@settings(max_examples=30)
@given(history=histories(most=2), delta=deltas)
def test_a_loss_distribution_never_costs_more_than_renyi(history: dict[Mechanism, int], delta: float) -> None:
    by_renyi = cost(RENYI, history, delta)
    if by_renyi < 500:
        assert rises(cost(PLD, history, delta), by_renyi)


@pytest.mark.parametrize("steps", [1, 7, 250])
@pytest.mark.parametrize("noise", [0.8, 3.1, 20.0])
def test_gaussian_steps_cost_what_the_closed_form_says(noise: float, steps: int) -> None:
    from scipy.special import ndtr

    ratio = math.sqrt(steps) / noise
    for delta in (1e-2, 1e-5, 1e-8):
        epsilon = cost(PLD, {Gaussian(noise_multiplier=noise): steps}, delta)
        truth = ndtr(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * ndtr(-ratio / 2 - epsilon / ratio)
        assert delta * 0.97 <= truth <= delta if epsilon > 0 else truth <= delta


def test_a_history_without_steps_costs_nothing() -> None:
    for accountant in EVERY:
        assert cost(accountant, {}) == 0.0
        assert accountant.delta({}, 1.3).delta == 0.0


@every
@pytest.mark.parametrize("value", [*NEVER_A_PROBABILITY, "much", None])
def test_a_delta_that_is_no_probability_is_refused_with_the_value(accountant: Accountant, value: Any) -> None:
    histories: list[dict[Mechanism, int]] = [{fixed_size(4.427): 10}, {}]
    for history in histories:
        with pytest.raises(InvalidInput, match=f"delta must .*got .*{re.escape(str(value))}"):
            accountant.epsilon(history, value)


@every
@pytest.mark.parametrize("value", [*NEVER_POSITIVE, "much", None])
def test_an_epsilon_that_is_no_positive_number_is_refused_with_the_value(accountant: Accountant, value: Any) -> None:
    histories: list[dict[Mechanism, int]] = [{fixed_size(4.427): 10}, {}]
    for history in histories:
        with pytest.raises(InvalidInput, match=f"epsilon must .*got .*{re.escape(str(value))}"):
            accountant.delta(history, value)


@every
@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_steps_that_are_no_count_are_refused_with_the_value(accountant: Accountant, value: Any) -> None:
    for ask in (accountant.epsilon, accountant.delta):
        with pytest.raises(InvalidInput, match=f"steps must .*got .*{re.escape(str(value))}"):
            ask({fixed_size(4.427): value}, 0.1)


def test_a_delta_below_what_a_loss_distribution_resolves_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match=r"1e-14.*rdp"):
        PLD.epsilon({fixed_size(4.427): 10_000}, 1e-14)


KINDS = ["gaussian", "fixed-size", "fixed-size-with-replacement", "poisson", "truncated-poisson"]


def of_kind(kind: str, noise: float) -> Mechanism:
    every_kind: list[Mechanism] = [Gaussian(noise_multiplier=noise), *sampled(noise)]
    return next(mechanism for mechanism in every_kind if mechanism.name == kind)


def answers_or_refuses(accountant: Accountant, kind: str, noise: float) -> bool:
    """Whether three steps cost a finite ε and δ, or are refused with a reason."""
    for question in ("epsilon", "delta"):
        try:
            answer = getattr(accountant, question)({of_kind(kind, noise): 3}, 1e-5)
        except LrdpError:
            continue
        if not (0 <= answer.epsilon < math.inf and 0 <= answer.delta <= 1):
            return False
    return True


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", KINDS)
@every
def test_next_to_no_noise_costs_a_finite_epsilon_or_is_refused_with_a_reason(accountant: Accountant, kind: str) -> None:
    assert all(answers_or_refuses(accountant, kind, noise) for noise in (0.4, 0.3, 0.21, 0.1, 0.03, 0.01))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accountant", [RENYI, PLD], ids=["rdp", "pld"])
def test_absurd_noise_costs_a_finite_epsilon_or_is_refused_with_a_reason(accountant: Accountant, kind: str) -> None:
    assert all(answers_or_refuses(accountant, kind, noise) for noise in (1e-200, 1e-30, 1e12, 1e160, 1e300))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("accountant", [RENYI, PLD], ids=["rdp", "pld"])
def test_enormous_noise_costs_next_to_nothing(accountant: Accountant, kind: str) -> None:
    if accountant is RENYI and kind == "fixed-size-with-replacement":
        pytest.skip("has no Rényi bound")
    assert 0 <= cost(accountant, {of_kind(kind, 1e6): 3}) < 0.01


@pytest.mark.parametrize("noise", [0.5, 0.4, 0.3, 0.2, 0.1])
def test_a_plain_gaussian_with_little_noise_is_never_charged_too_little(noise: float) -> None:
    from scipy.special import log_ndtr

    for accountant in (RENYI, PLD):
        try:
            epsilon = cost(accountant, {Gaussian(noise_multiplier=noise): 1})
        except LrdpError:
            continue
        upper, lower = log_ndtr(0.5 / noise - epsilon * noise), log_ndtr(-0.5 / noise - epsilon * noise)
        assert math.exp(upper) - math.exp(epsilon + lower) <= 1e-5


def test_a_cap_that_is_always_reached_costs_no_more_than_fixed_size() -> None:
    capped = TruncatedPoissonGaussian(dataset_size=1000, batch_size=999, cap=999, noise_multiplier=3.1)
    whole = FixedSizeGaussian(dataset_size=1000, batch_size=999, noise_multiplier=3.1)
    for accountant in (RENYI, PLD):
        assert cost(accountant, {capped: 5}) <= cost(accountant, {whole: 5}) * (1 + SLACK)
