"""One of several pairs, by chances that are one of several: what holds is the worst of them, to every test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.accounting.mixed_pairs import MixedPair
from lrdp.accounting.pairs import GaussianMixturePair, log_excess
from lrdp.accounting.privacy_loss import LossBins, compose, connect_the_dots
from oracles.brute_force import Mixture, hockey_stick

WIDTH = 4e-3
EDGES = [-0.1, -0.04, -0.012, 0.0, 0.004, 0.1, 0.6, 1.6]  # at most 1e-11 of a bin from one of its edges
ORDERS = np.array([1.05, 1.7, 2.0, 5.0, 31.0, 180.0])

FREE, OFTEN, SELDOM = (GaussianMixturePair((p,), s) for p, s in ((0.11, 0.9), (0.08, 0.45), (0.05, 0.45)))
ROWS = ((1.0, 0.0, 0.0), (0.2, 0.0, 0.8), (0.7, 0.3, 0.0))
WORST = MixedPair(weights=ROWS, pairs=(FREE, OFTEN, SELDOM))


def one(pair: MixedPair, row: int) -> MixedPair:
    return MixedPair(weights=(pair.weights[row],), pairs=pair.pairs)


def binned(pair: MixedPair, tail: float = 1e-13) -> LossBins:
    low, high = pair.loss_range(tail)
    return pair.bins(WIDTH, math.floor(low / WIDTH), math.ceil(high / WIDTH))


def truth(pair: MixedPair, row: int, epsilon: float, *, removal: bool) -> float:
    """The profile of one row by the oracle, which averages over what the attacker is told."""
    total = 0.0
    for weight, part in zip(pair.weights[row], pair.pairs, strict=True):
        assert isinstance(part, GaussianMixturePair)
        ends = (
            Mixture(means=(0.0, 1.0), weights=(1 - part.weights[0], part.weights[0]), deviation=part.deviation),
            Mixture(means=(0.0,), weights=(1.0,), deviation=part.deviation),
        )
        total += weight * hockey_stick(*(ends if removal else ends[::-1]), epsilon)
    return total


@pytest.mark.parametrize("removal", [True, False])
def test_the_worst_pairs_profile_is_the_largest_of_all_rows_in_both_directions(removal: bool) -> None:
    bins = binned(WORST)
    found = connect_the_dots(bins if removal else bins.mirrored())
    rows: set[int] = set()
    for epsilon in EDGES:
        profiles = [truth(WORST, row, epsilon, removal=removal) for row in range(len(ROWS))]
        rows.add(int(np.argmax(profiles)))
        assert max(profiles) - 1e-14 <= found.delta(epsilon) <= max(profiles) + 1e-11
    assert len(rows) >= 2  # no row alone would do


def test_each_row_alone_falls_short_of_another_at_some_test() -> None:
    for row in range(len(ROWS)):
        short = [truth(WORST, row, epsilon, removal=True) for epsilon in EDGES]
        largest = [max(truth(WORST, each, epsilon, removal=True) for each in range(len(ROWS))) for epsilon in EDGES]
        assert max(np.subtract(largest, short)) > 1e-4


def test_the_worst_pair_is_a_pair_its_masses_sum_to_one_and_have_their_bins_ratio() -> None:
    bins = binned(WORST)
    assert bins.upper.sum() + bins.upper_above == pytest.approx(1, abs=1e-11)
    assert bins.lower.sum() + bins.lower_below == pytest.approx(1, abs=1e-11)
    held = bins.lower > 1e-12
    ratio = np.log(bins.upper[held] / bins.lower[held])
    edges = ((bins.lowest + np.arange(len(bins.upper))) * WIDTH)[held]
    assert (ratio >= edges - 1e-4).all()
    assert (ratio <= edges + WIDTH + 1e-4).all()


@pytest.mark.parametrize("steps", [1, 7, 300])
def test_composed_the_worst_pair_costs_at_least_what_every_row_costs(steps: int) -> None:
    whole = binned(WORST)
    for row in range(len(ROWS)):
        alone = one(WORST, row).bins(WIDTH, whole.lowest, whole.lowest + len(whole.upper))
        for ours, theirs in ((whole, alone), (whole.mirrored(), alone.mirrored())):
            worst, each = (compose([(connect_the_dots(bins), steps)], 1e-12) for bins in (ours, theirs))
            assert all(worst.delta(epsilon) >= each.delta(epsilon) for epsilon in (0.05, 0.7, 3.0, 9.0))


def test_the_moment_at_each_order_is_the_largest_of_all_rows() -> None:
    rows = np.array([log_excess([one(WORST, row)], ORDERS)[0] for row in range(len(ROWS))])
    assert log_excess([WORST], ORDERS)[0] == pytest.approx(rows.max(axis=0), rel=1e-12)
    assert len(set(rows.argmax(axis=0))) >= 2


def test_a_row_without_chances_beyond_the_first_pair_is_that_pair() -> None:
    assert log_excess([one(WORST, 0)], ORDERS)[0] == pytest.approx(log_excess([FREE], ORDERS)[0], rel=1e-12)


@st.composite
def mixed(draw: st.DrawFn) -> MixedPair:
    noise = draw(st.floats(0.5, 4.0))
    chances = draw(st.lists(st.floats(1e-4, 0.6), min_size=2, max_size=3, unique=True))
    pairs = tuple(GaussianMixturePair((p,), noise / (1 + (i > 0))) for i, p in enumerate(chances))
    rows = []
    for _ in range(draw(st.integers(2, 4))):
        raw = [draw(st.floats(0.01, 1.0)) for _ in pairs]
        rows.append(tuple(each / sum(raw) for each in raw))
    return MixedPair(weights=tuple(rows), pairs=pairs)


@settings(max_examples=25)
@given(pair=mixed(), edge=st.integers(-60, 400), removal=st.booleans())
def test_whatever_the_rows_no_profile_is_above_the_worst_pairs(pair: MixedPair, edge: int, removal: bool) -> None:
    bins = binned(pair, 1e-12)
    said = connect_the_dots(bins if removal else bins.mirrored()).delta(edge * WIDTH)
    for row in range(len(pair.weights)):
        assert truth(pair, row, edge * WIDTH, removal=removal) <= said + 1e-13
