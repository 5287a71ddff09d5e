"""What any test can tell: the curve of a loss distribution, against closed forms, tests made by force and one point."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from lrdp.accounting import (
    FALSE_POSITIVES,
    Budget,
    FixedSizeGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    PrivacySpent,
    RenyiAccountant,
    RenyiOrders,
    ReservedSlots,
    TradeOff,
    guess_rate,
    trade_off,
)
from lrdp.errors import InvalidInput
from oracles.brute_force import Mixture

from .given import ADD_REMOVE, REPLACE_ONE, fixed_size, histories

PLD = PldAccountant(adjacency=ADD_REMOVE)
DELTA = 1e-5
RATES = (1e-5, *FALSE_POSITIVES, 0.37, 0.8, 0.99)


@pytest.mark.parametrize("noise", [0.4, 1.0, 7.0])
@pytest.mark.parametrize("steps", [1, 9])
def test_the_curve_of_gaussians_is_the_closed_form_from_above(noise: float, steps: int) -> None:
    curve, shift = trade_off(PLD, {Gaussian(noise_multiplier=noise): steps}, DELTA), math.sqrt(steps) / noise
    assert 0 <= curve.advantage - (2 * ndtr(shift / 2) - 1) <= 1e-4
    for rate in RATES:
        truth = ndtr(ndtri(rate) + shift)
        assert truth <= curve.true_positives(rate) <= truth + 1e-4


def power(first: Mixture, second: Mixture, rate: float) -> float:
    """Neyman and Pearson's test by force: the cells of a fine grid in the order of their ratio."""
    edges = np.linspace(-14.0, 16.0, 60_001)
    ours, theirs = (each.mass(edges[:-1], edges[1:]) for each in (first, second))
    order = np.argsort(-ours / np.maximum(theirs, 1e-300))
    return float(np.interp(rate, np.cumsum(theirs[order]), np.cumsum(ours[order])))


def test_the_curve_of_a_sampled_step_is_the_worse_direction_of_the_best_tests() -> None:
    q, noise = 0.3, 1.1
    step = FixedSizeGaussian(dataset_size=10, batch_size=3, noise_multiplier=2 * noise)
    with_it = Mixture(means=(0.0, 1.0), weights=(1 - q, q), deviation=noise)
    without = Mixture(means=(0.0,), weights=(1.0,), deviation=noise)
    curve = trade_off(PLD, {step: 1}, DELTA)
    for rate in RATES:
        truth = max(power(with_it, without, rate), power(without, with_it, rate))
        assert truth - 1e-6 <= curve.true_positives(rate) <= truth + 1e-4


def test_the_exact_curve_allows_far_less_than_one_point() -> None:
    # The figures of docs/accounting.md.
    for noise, epsilon, right, by_point in ((6.0, 4.101, 0.6693, 0.9838), (4.427, 5.997, 0.7279, 0.9976)):
        history: dict[Mechanism, int] = {fixed_size(noise): 10_000}
        spent = RenyiAccountant(adjacency=ADD_REMOVE).epsilon(history, DELTA)
        assert spent.epsilon == pytest.approx(epsilon, abs=1e-3)
        assert trade_off(PLD, history, DELTA).risk.guess_rate == pytest.approx(right, abs=1e-4)
        assert TradeOff.of_points([spent]).risk.guess_rate == pytest.approx(by_point, abs=1e-4)


@settings(max_examples=10)
@given(history=histories(renyi=False, most=2), rate=st.floats(1e-6, 1.0))
def test_the_curve_is_never_above_any_point_that_the_accountant_knows(
    history: dict[Mechanism, int], rate: float
) -> None:
    curve = trade_off(PLD, history, DELTA)
    for delta in (1e-2, 1e-5):
        spent = PLD.epsilon(history, delta)
        assert curve.true_positives(rate) <= TradeOff.of_points([spent]).true_positives(rate) + 1e-3
    assert rate <= curve.true_positives(rate) <= min(1.0, rate + curve.advantage)


@given(epsilon=st.floats(0.0, 40.0), delta=st.floats(1e-12, 0.5), rate=st.floats(0.0, 1.0))
def test_one_point_allows_what_its_definition_does_and_is_rounded_up(epsilon: float, delta: float, rate: float) -> None:
    curve = TradeOff.of_points([PrivacySpent(epsilon=epsilon, delta=delta)])
    forwards = math.exp(epsilon) * rate + delta
    backwards = 1 - math.exp(-epsilon) * (1 - delta - rate)
    allowed = min(forwards, backwards, 1.0)
    assert allowed * (1 - 1e-9) <= curve.true_positives(rate) <= allowed * (1 + 1e-9) + 1e-15
    exact = guess_rate(PrivacySpent(epsilon=epsilon, delta=delta))
    assert Fraction(exact) <= Fraction(curve.risk.guess_rate) <= Fraction(exact) + Fraction(1, 10**12)


def test_many_places_at_once_are_the_same_as_one_after_another() -> None:
    for direction in PLD.directions({fixed_size(3.3): 400}, 1e-12):
        places = np.array([-9.0, -0.7, 0.0, 0.31, 2.0, 55.0])
        assert direction.deltas(places) == pytest.approx([direction.delta(place) for place in places], abs=1e-12)


def test_nothing_released_tells_nothing_and_what_has_no_noise_tells_all() -> None:
    assert trade_off(PLD, {}, DELTA).risk.guess_rate == 0.5
    loud = Gaussian(noise_multiplier=0.001)
    assert trade_off(PLD, {loud: 3}, DELTA).risk.guess_rate == 1.0
    assert TradeOff.of_points([PrivacySpent(epsilon=math.inf, delta=0.1)]).true_positives(0.0) == 1.0


def test_a_curve_of_rows_that_no_pair_is_proved_for_is_that_of_the_formula() -> None:
    history: dict[Mechanism, int] = {fixed_size(40.0): 100}
    one, two = (trade_off(PldAccountant(adjacency=REPLACE_ONE, rows=rows), history, DELTA) for rows in (1, 2))
    assert one.advantage < two.advantage < 1.0


def test_slots_have_their_whole_curve_and_orders_one_point() -> None:
    budget, step = Budget(epsilon=8.0, delta=DELTA), fixed_size(6.0)
    slots, orders = ReservedSlots(slots={step: 10_000}), RenyiOrders(weights={6.0: 1.0})
    by_slots, by_orders = (rule.trade_off(budget, ADD_REMOVE, {step: 10_000}) for rule in (slots, orders))
    assert by_slots.risk.guess_rate == pytest.approx(0.6693, abs=1e-4)
    assert by_orders.risk.guess_rate == pytest.approx(0.9838, abs=1e-3)
    beyond = slots.trade_off(budget, ADD_REMOVE, {step: 10_001})
    assert beyond == TradeOff.of_points([slots.guaranteed(budget, ADD_REMOVE, {step: 10_001})])


def test_a_check_with_one_direction_alone_would_be_too_low() -> None:
    removal, _ = PLD.directions({FixedSizeGaussian(dataset_size=10, batch_size=3, noise_multiplier=0.7): 1}, 1e-12)
    both = trade_off(PLD, {FixedSizeGaussian(dataset_size=10, batch_size=3, noise_multiplier=0.7): 1}, DELTA)
    alone = TradeOff.of_losses((removal, removal))
    assert max(both.true_positives(rate) - alone.true_positives(rate) for rate in RATES) > 0.01


@pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
def test_what_is_no_rate_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="false_positives"):
        trade_off(PLD, {}, DELTA).true_positives(rate)
