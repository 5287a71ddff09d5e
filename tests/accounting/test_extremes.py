"""At the ends of every range: a finite sound number, infinity, or an error of ours; never anything else.

Soundness is read off closed forms in fifty digits: what T steps cost is at least what one of them does, and T steps of
the plain Gaussian are one with deviation s/√T.
"""

from __future__ import annotations

import itertools
import math
import random
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    SteadyAccountant,
    TruncatedPoissonGaussian,
)
from lrdp.accounting.pairs import GaussianMixturePair, ReplaceOnePair, log_excess, renyi_divergence
from lrdp.errors import LrdpError
from oracles.renyi_mpmath import replace_one, subsampled_gaussian

from .given import ADD_REMOVE, REPLACE_ONE

KINDS = (FixedSizeGaussian, FixedSizeWithReplacementGaussian, PoissonGaussian, TruncatedPoissonGaussian, Gaussian)
SIZES = [
    (1, 10**12),
    (100, 10**14),
    (3, 10**9),
    (100, 10**7),
    (100, 10**5),
    (30, 1000),
    (1, 2),
    (990, 1000),
    (999_999, 10**6),
]
NOISES = (1e-2, 0.03, 0.05, 0.1, 0.3, 1.0, 5.0, 100.0, 1e3)
STEPS = (1, 2, 1000, 10**5, 10**7, 10**9)
DELTAS = (1e-15, 1e-12, 1e-9, 1e-6, 1e-3, 0.5)
Case = tuple[Mechanism, Adjacency, int, float]


def made(kind: type[Mechanism], size: tuple[int, int], noise: float) -> Mechanism:
    if kind is Gaussian:
        return Gaussian(noise_multiplier=noise)
    sizes = {"batch_size": size[0], "dataset_size": size[1]} | ({"cap": size[0] + 5} if kind is KINDS[3] else {})
    return kind(noise_multiplier=noise, **sizes)


def cases(steps: tuple[int, ...]) -> list[Case]:
    grid = itertools.product(KINDS, SIZES, NOISES, Adjacency, steps, DELTAS)
    return [(made(kind, size, noise), adjacency, count, delta) for kind, size, noise, adjacency, count, delta in grid]


def pair_of(step: Any, adjacency: Adjacency) -> tuple[mpf, mpf]:
    """(q, s) of a pair that the step's own dominates: at q = 1 the plain Gaussian's."""
    sigma = mpf(step.noise_multiplier)
    if isinstance(step, Gaussian):
        return mpf(1), sigma / (2 if adjacency is REPLACE_ONE else 1)
    is_free = isinstance(step, PoissonGaussian | TruncatedPoissonGaussian)
    q = mpf(step.batch_size) / step.dataset_size
    if isinstance(step, FixedSizeWithReplacementGaussian):
        q = 1 - (1 - mpf(1) / step.dataset_size) ** step.batch_size  # drawn at least once
    return q, sigma if is_free else sigma / 2


def one_step_delta(step: Mechanism, adjacency: Adjacency, steps: int, epsilon: float) -> mpf:
    """At most the true δ(ε) of so many steps."""
    q, s = pair_of(step, adjacency)
    s = s / mp.sqrt(steps) if q == 1 else s
    inner = mp.log1p(mp.expm1(mpf(epsilon)) / q)
    return q * (mp.ncdf(1 / (2 * s) - inner * s) - mp.exp(inner) * mp.ncdf(-1 / (2 * s) - inner * s))


def check(accountant: RenyiAccountant | PldAccountant | SteadyAccountant, case: Case) -> bool:
    """Whether there was a number; it is sound, and nothing but our own errors was raised."""
    step, adjacency, steps, delta = case
    try:
        epsilon = accountant.epsilon({step: steps}, delta).epsilon
    except LrdpError:
        return False
    assert epsilon >= 0
    if epsilon < math.inf:
        with mp.workdps(50):
            assert one_step_delta(step, adjacency, steps, epsilon) <= mpf(delta) * (1 + mpf(10) ** -9), case
    return True


def sample(steps: tuple[int, ...], count: int, seed: int) -> list[Case]:
    return random.Random(seed).sample(cases(steps), count)


def test_the_exact_accountant_answers_soundly_at_the_ends_of_every_range() -> None:
    answered = sum(check(RenyiAccountant(adjacency=case[1]), case) for case in sample(STEPS, 60, seed=1))
    assert answered > 30


def test_loss_distributions_answer_soundly_or_say_why_not() -> None:
    answered = sum(check(PldAccountant(adjacency=case[1]), case) for case in sample(STEPS[:4], 60, seed=2))
    assert answered > 15


def test_the_steady_accountant_always_answers() -> None:
    assert all(check(SteadyAccountant(adjacency=case[1]), case) for case in sample(STEPS[:4], 40, seed=3))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_accountant_answers_soundly_at_the_ends_of_every_range_and_for_a_billion_steps() -> None:
    for case in sample(STEPS, 2500, seed=4):
        check(RenyiAccountant(adjacency=case[1]), case)
    for case in sample(STEPS, 700, seed=5):
        check(PldAccountant(adjacency=case[1]), case)


@pytest.mark.parametrize("noise", [1e-2, 0.05, 1.0, 100.0])
@pytest.mark.parametrize(("batch", "size"), [(1, 10**12), (100, 10**14), (1, 10**9)])
@pytest.mark.parametrize("delta", [1e-3, 0.5])
def test_sampling_rarer_than_delta_costs_next_to_nothing_and_is_no_error(
    noise: float, batch: int, size: int, delta: float
) -> None:
    """Once an IndexError: no loss was in reach, and the atom at zero had no place."""
    step = FixedSizeGaussian(dataset_size=size, batch_size=batch, noise_multiplier=noise)
    for adjacency in Adjacency:
        case = step, adjacency, 10, delta
        assert check(PldAccountant(adjacency=adjacency), case)
        assert PldAccountant(adjacency=adjacency).epsilon({step: 10}, delta).epsilon < 0.01


# --- how exact the exact divergence is -------------------------------------------------------------------------------

LOW_ORDERS = (1 + 2.0**-14, 1.0045, 1.05, 1.3, 2.0, 3.7)
DEVIATIONS = (0.02, 0.024, 0.026, 0.03, 0.033, 0.037, 0.05, 0.2, 1.0, 50.0)


def excess_over_truth(q: float, s: float, order: float, adjacency: Adjacency) -> float:
    pair = GaussianMixturePair((q,), s) if adjacency is ADD_REMOVE else ReplaceOnePair(q, s)
    truth = subsampled_gaussian(q, s, order, 15) if adjacency is ADD_REMOVE else replace_one(q, s, order, 15)
    return float(
        mpf(float(renyi_divergence(log_excess([pair], np.array([order])), np.array([order]))[0, 0])) / truth - 1
    )


@pytest.mark.parametrize("adjacency", Adjacency)
def test_the_divergence_is_never_below_and_a_millionth_above_also_at_low_orders_and_little_noise(
    adjacency: Adjacency,
) -> None:
    points = list(itertools.product((1e-12, 1e-6, 0.01, 0.9), DEVIATIONS, LOW_ORDERS))
    for q, s, order in [*random.Random(6).sample(points, 16), (1e-12, 0.03, 1.0045), (1e-6, 0.03, 1.0045)]:
        assert 0 <= excess_over_truth(q, s, order, adjacency) < 1e-6, (q, s, order)


def test_with_next_to_no_noise_the_plain_gaussian_stands_in_and_is_a_bound() -> None:
    for q, order in itertools.product((1e-6, 0.3), (1.05, 2.0, 3.7)):
        assert excess_over_truth(q, 0.0199, order, ADD_REMOVE) >= 0


def test_little_noise_at_high_orders_takes_no_more_memory_than_there_is() -> None:
    """Once 33 million nodes for each of five orders: the plain Gaussian bounds what nobody can afford."""
    orders = np.array([80.0, 512.5, 1024.0])
    step = FixedSizeGaussian(dataset_size=1000, batch_size=30, noise_multiplier=0.05)
    found = RenyiAccountant(adjacency=REPLACE_ONE).divergence({step: 1}, orders)
    least = RenyiAccountant(adjacency=ADD_REMOVE).divergence({step: 1}, np.floor(orders))
    assert (found >= least).all()
    assert (found <= orders / (2 * 0.025**2) * (1 + 1e-8)).all()
