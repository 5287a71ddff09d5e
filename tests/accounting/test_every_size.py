"""Truncated Poisson on every data set up to the stated size, every batch listed: none costs more than is said.

The bound at the stated size alone would not do. With little noise a smaller data set, where nobody is displaced, is the
worse one: the first control.
"""

from __future__ import annotations

import itertools
from functools import cache

import numpy as np
import pytest

from lrdp.accounting import Mechanism, PldAccountant, RenyiAccountant, TruncatedPoissonGaussian
from lrdp.accounting.mixed_pairs import MixedPair
from lrdp.accounting.pairs import GaussianMixturePair
from lrdp.accounting.privacy_loss import LossDistribution
from oracles.brute_force import Mixture, composed_hockey_stick, hockey_sticks, truncated_poisson_batches

from .given import ADD_REMOVE, Bare

EPSILONS = (1e-3, 0.04, 0.31, 1.1, 3.2)
NOISES = (0.33, 0.8, 1.9, 6.0)
SETTINGS = ((9, 1, 1), (6, 1, 1), (8, 2, 2), (8, 2, 3), (7, 3, 3), (7, 1, 3), (6, 4, 4), (5, 4, 4))
OTHERS = (-1.0, 0.0)


@cache
def ends(records: int, other: float, chance: float, cap: int, noise: float) -> tuple[Mixture, Mixture]:
    """With and without a record of +1 among others that all are ``other``."""
    background = (other,) * (records - 1)
    with_it = truncated_poisson_batches((*background, 1.0), chance, cap, noise)
    return with_it, truncated_poisson_batches(background, chance, cap, noise)


@cache
def said(mechanism: Mechanism, steps: int = 1) -> tuple[LossDistribution, LossDistribution]:
    return PldAccountant(adjacency=ADD_REMOVE).directions({mechanism: steps}, 1e-15)


def exceeded(said_of: Mechanism, setting: tuple[int, int, int], noise: float) -> tuple[int, int]:
    """How many points were compared, and at how many of them some data set up to the size is above what is said."""
    size, batch, cap = setting
    allowed = [[distribution.delta(epsilon) for epsilon in EPSILONS] for distribution in said(said_of)]
    found: list[bool] = []
    for records, other in itertools.product(range(2, size + 1), OTHERS):
        pair = ends(records, other, batch / size, cap, noise)
        for (first, second), bounds in zip((pair, pair[::-1]), allowed, strict=True):
            found += (hockey_sticks(first, second, EPSILONS) > np.array(bounds) + 1e-13).tolist()
    return len(found), sum(found)


def truncated(setting: tuple[int, int, int], noise: float) -> TruncatedPoissonGaussian:
    size, batch, cap = setting
    return TruncatedPoissonGaussian(dataset_size=size, batch_size=batch, cap=cap, noise_multiplier=noise)


def believing(
    mechanism: TruncatedPoissonGaussian, *, rows: slice = slice(None), swap: float = 1.0, enter: float = 1.0
) -> Mechanism:
    """A bound that forgets some sizes, or has the record displace others or enter freely so many times as likely."""
    pair = mechanism.dominating_pair(ADD_REMOVE)
    assert isinstance(pair, MixedPair)
    times = (enter, *(swap for _ in pair.pairs[1:]))
    scaled = (
        GaussianMixturePair((factor * each.weights[0],), each.deviation)  # type: ignore[attr-defined]
        for factor, each in zip(times, pair.pairs, strict=True)
    )
    return Bare(pair=MixedPair(weights=pair.weights[rows], pairs=tuple(scaled)))


def test_no_data_set_up_to_the_stated_size_costs_more_than_is_said_at_two_thousand_points() -> None:
    points = 0
    for setting, noise in itertools.product(SETTINGS, NOISES):
        compared, above = exceeded(truncated(setting, noise), setting, noise)
        points += compared
        assert above == 0, (setting, noise)
    assert points >= 2000


@pytest.mark.parametrize(("setting", "records"), [((5, 1, 1), 2), ((5, 1, 1), 5), ((5, 2, 2), 4)])
def test_nor_in_two_steps(setting: tuple[int, int, int], records: int) -> None:
    size, batch, cap = setting
    pair = ends(records, -1.0, batch / size, cap, 0.8)
    for (first, second), distribution in zip((pair, pair[::-1]), said(truncated(setting, 0.8), 2), strict=True):
        assert composed_hockey_stick(first, second, 0.31, 2) <= distribution.delta(0.31) + 1e-8


@pytest.mark.parametrize(("setting", "noise"), [((9, 1, 1), 0.33), ((7, 3, 3), 1.9)])
def test_the_check_would_catch_a_bound_for_the_stated_size_alone(setting: tuple[int, int, int], noise: float) -> None:
    believed = believing(truncated(setting, noise), rows=slice(1, 2))
    assert exceeded(believed, setting, noise)[1] > 0


@pytest.mark.parametrize("setting", [(5, 4, 4), (9, 1, 1)])
def test_the_check_would_catch_a_record_that_displaces_others_more_often_than_is_said(
    setting: tuple[int, int, int],
) -> None:
    assert exceeded(believing(truncated(setting, 6.0), swap=0.9), setting, 6.0)[1] > 0


def test_a_request_within_the_bounds_costs_no_more_than_the_step_that_states_them() -> None:
    # The same size and cap, a smaller batch: what it really does, on every size, against what the larger one is said.
    for batch, cap, noise in ((4, 4, 0.33), (4, 4, 1.9), (3, 3, 0.33), (2, 2, 0.8)):
        stated = truncated((7, batch, cap), noise)
        for smaller in range(1, batch):
            asked = truncated((7, smaller, cap), noise * 1.01)
            assert stated.looser_in(asked) is None
            assert exceeded(stated, (7, smaller, cap), noise * 1.01)[1] == 0


def test_swaps_told_apart_from_draws_save_what_the_changelog_says() -> None:
    client = TruncatedPoissonGaussian(dataset_size=5000, batch_size=128, cap=128, noise_multiplier=3.0)
    assert PldAccountant(adjacency=ADD_REMOVE).epsilon({client: 10_000}, 1e-5).epsilon == pytest.approx(6.673, abs=1e-3)
    assert RenyiAccountant(adjacency=ADD_REMOVE).epsilon({client: 10_000}, 1e-5).epsilon == pytest.approx(
        7.206, abs=1e-3
    )
