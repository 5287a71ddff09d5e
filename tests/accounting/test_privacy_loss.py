"""Privacy-loss distributions: discretised from above, composed by convolution, and charged for what is cut off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lrdp.accounting.pairs import GaussianMixturePair
from lrdp.accounting.privacy_loss import LossBins, LossDistribution, compose, connect_the_dots
from oracles.brute_force import Mixture, hockey_stick

ROOM = 1e-11  # what the transform's own rounding is charged


def gaussian_bins(width: float, tail: float = 1e-13) -> LossBins:
    pair = GaussianMixturePair(weights=(0.37,), deviation=1.1)
    low, high = pair.loss_range(tail)
    return pair.bins(width, math.floor(low / width), math.ceil(high / width))


def gaussian_truth(epsilon: float) -> tuple[float, float]:
    """Removal and addition, by brute force."""
    upper = Mixture(means=(0.0, 1.0), weights=(0.63, 0.37), deviation=1.1)
    lower = Mixture(means=(0.0,), weights=(1.0,), deviation=1.1)
    return hockey_stick(upper, lower, epsilon), hockey_stick(lower, upper, epsilon)


def coin(probability: float, loss_in_bins: int = 4, width: float = 0.25) -> LossDistribution:
    """Randomised response: loss ±loss with P(+) = probability."""
    atoms = np.zeros(2 * loss_in_bins + 1)
    atoms[0], atoms[-1] = 1 - probability, probability
    return LossDistribution(width=width, lowest=-loss_in_bins, atoms=atoms, infinity=0.0)


@st.composite
def distributions(draw: st.DrawFn) -> LossDistribution:
    raw = np.array(draw(st.lists(st.floats(min_value=1e-6, max_value=1.0), min_size=1, max_size=12)))
    infinity = draw(st.sampled_from([0.0, 1e-7, 0.03]))
    lowest = draw(st.integers(min_value=-9, max_value=3))
    return LossDistribution(width=0.125, lowest=lowest, atoms=raw / raw.sum() * (1 - infinity), infinity=infinity)


@pytest.mark.parametrize("width", [0.5, 0.03, 1e-3])
@pytest.mark.parametrize("epsilon", [-0.3, 0.0, 0.01, 0.17, 0.9, 2.2])
def test_the_discretised_profile_is_never_below_the_true_one(width: float, epsilon: float) -> None:
    bins = gaussian_bins(width)
    for truth, ends in zip(gaussian_truth(epsilon), (bins, bins.mirrored()), strict=True):
        assert connect_the_dots(ends).delta(epsilon) >= truth - 1e-15


@pytest.mark.parametrize("epsilon", [-0.3, 0.0, 0.17, 0.9])
def test_the_discretised_profile_touches_the_true_one_at_the_edges_and_is_close_between(epsilon: float) -> None:
    removal, addition = gaussian_truth(epsilon)
    for width, tolerance in ((0.01, 1e-9), (3.3e-3, 1e-3)):
        bins = gaussian_bins(width)
        assert connect_the_dots(bins).delta(epsilon) == pytest.approx(removal, rel=tolerance)
        assert connect_the_dots(bins.mirrored()).delta(epsilon) == pytest.approx(addition, rel=tolerance)


def test_the_check_would_reject_losses_rounded_down() -> None:
    bins, epsilon = gaussian_bins(0.03), 0.17
    down = LossDistribution(width=bins.width, lowest=bins.lowest, atoms=bins.upper, infinity=bins.upper_above)
    assert down.delta(epsilon) < gaussian_truth(epsilon)[0]


def test_a_mirrored_mirror_is_the_original() -> None:
    bins = gaussian_bins(0.03)
    twice = bins.mirrored().mirrored()
    assert (twice.lowest, twice.upper_above, twice.lower_below) == (bins.lowest, bins.upper_above, bins.lower_below)
    assert np.array_equal(twice.upper, bins.upper)
    assert np.array_equal(twice.lower, bins.lower)


@pytest.mark.parametrize("steps", [1, 2, 5, 9])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.7])
def test_composed_coins_cost_what_counting_says(steps: int, epsilon: float) -> None:
    chance = math.e / (1 + math.e)  # loss ±1
    truth = sum(
        math.comb(steps, k) * chance**k * (1 - chance) ** (steps - k) * max(0.0, -math.expm1(epsilon - (2 * k - steps)))
        for k in range(steps + 1)
    )
    composed = compose([(coin(chance), steps)], 1e-15)
    assert truth <= composed.delta(epsilon) <= truth + ROOM


@given(
    parts=st.lists(st.tuples(distributions(), st.integers(min_value=1, max_value=4)), min_size=1, max_size=3),
    epsilon=st.floats(min_value=-1.0, max_value=6.0),
)
def test_composition_is_convolution_and_all_that_is_infinite_stays_so(
    parts: list[tuple[LossDistribution, int]], epsilon: float
) -> None:
    atoms, lowest, kept = np.ones(1), 0, 1.0
    for part, count in parts:
        for _ in range(count):
            atoms, lowest, kept = np.convolve(atoms, part.atoms), lowest + part.lowest, kept * (1 - part.infinity)
    truth = LossDistribution(width=0.125, lowest=lowest, atoms=atoms, infinity=1 - kept).delta(epsilon)
    composed = compose(parts, 1e-14).delta(epsilon)
    assert truth - 1e-12 <= composed <= min(1.0, truth + ROOM)


def test_the_tail_that_a_window_cuts_off_is_charged() -> None:
    fine = compose([(connect_the_dots(gaussian_bins(1e-3)), 40)], 1e-14)
    for tail in (1e-3, 1e-6, 1e-9):
        cut = compose([(connect_the_dots(gaussian_bins(1e-3)), 40)], tail)
        assert len(cut.atoms) < len(fine.atoms)
        for epsilon in (0.5, 3.0, 9.0):
            assert fine.delta(epsilon) <= cut.delta(epsilon) + 1e-12
            assert cut.delta(epsilon) <= fine.delta(epsilon) + 2.1 * tail + ROOM


@given(distribution=distributions(), delta=st.floats(min_value=1e-9, max_value=0.9))
def test_epsilon_is_the_smallest_at_which_delta_holds(distribution: LossDistribution, delta: float) -> None:
    epsilon = distribution.epsilon(delta)
    assert (epsilon == math.inf) == (delta <= distribution.infinity)
    if epsilon < math.inf:
        assert epsilon >= 0.0
        assert distribution.delta(epsilon) <= delta + 1e-15
    if 1e-6 < epsilon < math.inf:
        assert distribution.delta(epsilon * (1 - 1e-6)) > delta - 1e-15


@given(distribution=distributions())
def test_delta_falls_with_epsilon_from_at_most_one_to_what_is_infinite(distribution: LossDistribution) -> None:
    deltas = [distribution.delta(epsilon) for epsilon in np.linspace(-3.0, 6.0, 37)]
    assert deltas == sorted(deltas, reverse=True)
    assert min(deltas) >= 0.0
    assert max(deltas) <= 1.0
    assert deltas[-1] == pytest.approx(distribution.infinity)
