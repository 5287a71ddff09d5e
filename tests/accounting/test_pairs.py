"""Dominating pairs: masses, ranges and profiles against closed forms and adaptive quadrature."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from lrdp.accounting.mixed_pairs import MixedPair
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair, ReplaceOnePair
from lrdp.accounting.privacy_loss import LossBins
from oracles.brute_force import Mixture, hockey_stick

SUBSAMPLED = GaussianMixturePair(weights=(0.0256,), deviation=2.17)
WHOLE = GaussianMixturePair(weights=(1.0,), deviation=1.3)
SEVERAL = GaussianMixturePair(weights=(0.21, 0.04, 0.003), deviation=1.9)
REPLACED = ReplaceOnePair(probability=0.31, deviation=0.83)
EITHER = MixedPair(weights=((0.93, 0.07),), pairs=(GaussianMixturePair((0.1,), 2.6), GaussianMixturePair((0.1,), 1.3)))
PAIRS = [SUBSAMPLED, WHOLE, SEVERAL, REPLACED, EITHER]


def binned(pair: DominatingPair, tail: float, width: float) -> LossBins:
    low, high = pair.loss_range(tail)
    return pair.bins(width, math.floor(low / width), math.ceil(high / width))


def mixture(pair: Any) -> tuple[Mixture, Mixture]:
    """The same pair for the oracle."""
    base = 1 - math.fsum(pair.weights)
    means, weights = (range(len(pair.weights) + 1), (base, *pair.weights)) if base > 1e-15 else ([1], pair.weights)
    upper = Mixture(means=tuple(map(float, means)), weights=tuple(weights), deviation=pair.deviation)
    return upper, Mixture(means=(0.0,), weights=(1.0,), deviation=pair.deviation)


def profile(bins: LossBins, epsilon: float) -> float:
    """P's mass minus e^epsilon times Q's mass above epsilon, which must be an edge of the bins."""
    first = round(epsilon / bins.width) - bins.lowest
    return float(bins.upper[first:].sum() + bins.upper_above - math.exp(epsilon) * bins.lower[first:].sum())


@pytest.mark.parametrize("pair", PAIRS)
def test_all_of_both_masses_is_in_the_bins_or_outside_them(pair: DominatingPair) -> None:
    bins = binned(pair, 1e-9, 1e-3)
    assert bins.upper.sum() + bins.upper_above == pytest.approx(1, abs=2e-9)
    assert bins.lower.sum() + bins.lower_below == pytest.approx(1, abs=2e-9)
    assert min(bins.upper.min(), bins.lower.min()) >= 0


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("tail", [1e-3, 1e-9, 1e-17])
def test_the_range_leaves_out_no_more_than_it_was_allowed(pair: DominatingPair, tail: float) -> None:
    bins = binned(pair, tail, 7e-3)
    assert bins.upper_above <= tail * (1 + 1e-9)
    assert bins.lower_below <= tail * (1 + 1e-9)


@pytest.mark.parametrize("pair", PAIRS)
def test_the_two_masses_of_a_bin_have_the_ratio_that_the_bin_says(pair: DominatingPair) -> None:
    bins = binned(pair, 1e-10, 5e-3)
    held = bins.lower > 1e-14
    ratio = np.log(bins.upper[held] / bins.lower[held])
    edges = ((bins.lowest + np.arange(len(bins.upper))) * bins.width)[held]
    assert (ratio >= edges - 1e-7).all()
    assert (ratio <= edges + bins.width + 1e-7).all()


@pytest.mark.parametrize("pair", [SUBSAMPLED, WHOLE, SEVERAL])
@pytest.mark.parametrize("epsilon", [-0.016, 0.0, 0.008, 0.2, 1.0])
def test_a_mixtures_profile_is_the_brute_force_one_in_both_directions(
    pair: GaussianMixturePair, epsilon: float
) -> None:
    bins, (upper, lower) = binned(pair, 1e-14, 8e-3), mixture(pair)
    assert profile(bins, epsilon) == pytest.approx(hockey_stick(upper, lower, epsilon), abs=1e-12)
    assert profile(bins.mirrored(), epsilon) == pytest.approx(hockey_stick(lower, upper, epsilon), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 0.008, 0.2, 1.0, 2.4])
def test_the_replace_one_profile_is_the_closed_form_on_both_sides_of_zero(epsilon: float) -> None:
    q, s = REPLACED.probability, REPLACED.deviation
    inner = math.log1p(math.expm1(epsilon) / q)
    closed = q * (ndtr(1 / (2 * s) - inner * s) - math.exp(inner) * ndtr(-1 / (2 * s) - inner * s))
    bins = binned(REPLACED, 1e-14, 8e-3)
    assert profile(bins, epsilon) == pytest.approx(closed, abs=1e-12)
    assert profile(bins.mirrored(), epsilon) == pytest.approx(closed, abs=1e-12)
    below = -math.expm1(-epsilon) + math.exp(-epsilon) * closed
    assert profile(bins, -epsilon) == pytest.approx(below, abs=1e-12)


def test_a_profile_averages_where_the_attacker_is_told_which_pair_it_was() -> None:
    bins = binned(EITHER, 1e-14, 8e-3)
    for epsilon in (0.0, 0.2, 1.0):
        parts = [hockey_stick(*mixture(pair), epsilon) for pair in EITHER.pairs]
        assert profile(bins, epsilon) == pytest.approx(np.dot(EITHER.weights[0], parts), abs=1e-12)


def test_the_spread_of_a_gaussians_loss_is_its_root_mean_square() -> None:
    # The loss is N(1/(2s²), 1/s²) under P.
    truth = math.hypot(1 / (2 * 1.3**2), 1 / 1.3)
    assert WHOLE.loss_spread() == pytest.approx(truth, rel=1e-6)


@given(
    draws=st.integers(min_value=2, max_value=40),
    noise=st.floats(min_value=0.5, max_value=20.0),
    log_tail=st.floats(min_value=-40.0, max_value=-2.0),
)
def test_the_range_of_several_shifts_is_found_for_every_tail(draws: int, noise: float, log_tail: float) -> None:
    weights = tuple(math.comb(draws, k) * 0.02**k * 0.98 ** (draws - k) for k in range(1, draws + 1))
    pair = GaussianMixturePair(weights=tuple(weight for weight in weights if weight > 1e-34), deviation=noise)
    low, high = pair.loss_range(math.exp(log_tail))
    assert low < 0 <= high


def test_the_range_is_found_where_the_tail_is_just_above_one_shifts_weight() -> None:
    pair = GaussianMixturePair(weights=(0.2, 0.05, 1e-6, 2e-8), deviation=0.1)
    for share in (0.9, 0.99, 0.999, 1.0, 1.001, 1.01, 1.1):
        low, high = pair.loss_range(1e-6 * share)
        assert low < 0 <= high
