"""The newer pairs at thousands of points drawn by lot: never below the truth, and near it where it is attained.

The full batch has a closed form (arXiv 1805.06530v2, Theorem 8), here in 40 digits; groups in fixed-size and Poisson
batches attain their pair, whose weights are exact fractions here; and all groups are compared with every batch listed.
Truncated Poisson for one record has its points in test_every_size.py. Patients that are drawn as units are records to
the accountant, and have no pair of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
from mpmath import mp, mpf

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FullBatchGaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    TruncatedPoissonGaussian,
)
from oracles.brute_force import Mixture, fixed_size_batches, hockey_sticks, truncated_poisson_batches

from .given import ADD_REMOVE, REPLACE_ONE

Chance = np.random.Generator
ORACLE_ERROR = 1e-13
TAIL = 1e-15


def few_and_many(few: int, many: int) -> pytest.MarkDecorator:
    """A sample for every day, and enough settings for two thousand points and more."""
    return pytest.mark.parametrize("count", [few, pytest.param(many, marks=[pytest.mark.slow, pytest.mark.no_cover])])


def between(chance: Chance, low: float, high: float) -> float:
    """By lot, every octave as likely."""
    return float(np.exp(chance.uniform(math.log(low), math.log(high))))


# ---------------------------------------- the full batch
class Whole(NamedTuple):
    """Steps of the whole data set, and by how much a record moves their sum."""

    step: FullBatchGaussian
    steps: int
    adjacency: Adjacency

    @property
    def shift(self) -> float:
        """All steps together are one Gaussian that is moved by so many deviations."""
        moves = 2 if self.adjacency is REPLACE_ONE else 1
        return moves * math.sqrt(self.steps) / self.step.noise_multiplier


def whole_data_sets(count: int) -> Iterator[Whole]:
    chance = np.random.default_rng(47)
    for _ in range(count):
        steps, shift = int(between(chance, 1, 900)), between(chance, 0.05, 5.0)
        adjacency = ADD_REMOVE if chance.random() < 0.5 else REPLACE_ONE
        moves = 2 if adjacency is REPLACE_ONE else 1
        noise = moves * math.sqrt(steps) / shift
        yield Whole(FullBatchGaussian(dataset_size=311, noise_multiplier=noise), steps, adjacency)


def gaussian_profile(shift: float, epsilon: float) -> mpf:
    with mp.workdps(40):
        move, loss = mpf(shift), mpf(epsilon)
        return mp.ncdf(move / 2 - loss / move) - mp.exp(loss) * mp.ncdf(-move / 2 - loss / move)


@few_and_many(9, 120)
def test_whole_data_sets_never_cost_less_than_one_gaussian_and_hardly_more(count: int) -> None:
    points = 0
    for whole in whole_data_sets(count):
        both = PldAccountant(adjacency=whole.adjacency).directions({whole.step: whole.steps}, 1e-12)
        for epsilon in whole.shift * np.array([-1.0, -0.2, 0.0, 0.4, 1.0, 1.9, 3.0, 4.2, 5.0]):
            truth = gaussian_profile(whole.shift, float(epsilon))
            said = [distribution.delta(float(epsilon)) for distribution in both]
            assert min(said) >= truth, whole
            assert max(said) <= truth * mpf("1.005") + mpf("1e-11"), whole
            points += len(said)
    assert points == 18 * count


@few_and_many(9, 200)
def test_their_renyi_divergence_is_the_gaussians(count: int) -> None:
    orders = np.array([1.05, 1.5, 2.0, 3.7, 8.0, 21.0, 33.3, 64.0, 180.0, 400.0, 1024.0])
    for whole in whole_data_sets(count):
        said = RenyiAccountant(adjacency=whole.adjacency).divergence({whole.step: whole.steps}, orders)
        truth = [mpf(order) * mpf(whole.shift) ** 2 / 2 for order in orders.tolist()]
        # What the shift above lost by rounding is far below what is rounded up.
        assert all(mpf(one) >= true * (1 - mpf("1e-14")) for one, true in zip(said.tolist(), truth, strict=True))
        assert all(mpf(one) <= true * (1 + mpf("1e-6")) for one, true in zip(said.tolist(), truth, strict=True))


# ---------------------------------------- groups whose pair is attained
class Group(NamedTuple):
    """A step, how many rows the person has, and the two mixtures that an attacker sees in the worst case."""

    step: Mechanism
    rows: int
    present: Mixture
    absent: Mixture


def drawn_rows(count: int, size: int, batch: int) -> list[Fraction]:
    """The chances that so many of the person's rows are in a batch of fixed size: hypergeometric."""
    ways = math.comb(size, batch)
    return [
        Fraction(math.comb(count, j) * math.comb(size - count, batch - j), ways) for j in range(min(count, batch) + 1)
    ]


def in_fixed_batches(chance: Chance) -> Group:
    """All rows +1 and all others -1: each that enters moves the sum by two."""
    size, rows = int(between(chance, 30, 60_000)), int(chance.integers(1, 9))
    batch, noise = int(between(chance, 1, min(size - rows, 2000))), between(chance, 0.7, 9.0)
    step = FixedSizeGaussian(dataset_size=size, batch_size=batch, noise_multiplier=noise)
    return attained(step, rows, drawn_rows(rows, size, batch), 2.0)


def in_poisson_batches(chance: Chance) -> Group:
    """All rows +1 and all others 0: each that enters moves the sum by one."""
    size, rows = int(between(chance, 30, 60_000)), int(chance.integers(1, 9))
    batch, noise = int(between(chance, 1, size / 3)), between(chance, 0.7, 9.0)
    step = PoissonGaussian(dataset_size=size, batch_size=batch, noise_multiplier=noise)
    share = Fraction(step.probability)
    weights = [math.comb(rows, j) * share**j * (1 - share) ** (rows - j) for j in range(rows + 1)]
    return attained(step, rows, weights, 1.0)


def attained(step: Any, rows: int, chances: list[Fraction], moves: float) -> Group:
    held = {moves * j: float(each) for j, each in enumerate(chances) if float(each) > 0}
    present = Mixture(means=tuple(held), weights=tuple(held.values()), deviation=step.noise_multiplier)
    return Group(step, rows, present, Mixture(means=(0.0,), weights=(1.0,), deviation=step.noise_multiplier))


def shortfalls(group: Group, believed: Mechanism, epsilons: tuple[float, ...]) -> np.ndarray:
    """What is attained beyond what is said of ``believed``, in both directions."""
    both = PldAccountant(adjacency=ADD_REMOVE, rows=group.rows).directions({believed: 1}, TAIL)
    ends = (group.present, group.absent)
    return np.concatenate(
        [
            hockey_sticks(*way, epsilons) - np.array([distribution.delta(epsilon) for epsilon in epsilons])
            for way, distribution in zip((ends, ends[::-1]), both, strict=True)
        ]
    )


EPSILONS = (1e-4, 0.01, 0.09, 0.33, 0.8, 1.5, 2.7, 4.4, 7.1, 11.0)


@few_and_many(6, 110)
@pytest.mark.parametrize("made", [in_fixed_batches, in_poisson_batches])
def test_no_group_is_easier_to_find_than_is_said_and_the_worst_one_nearly_is(
    made: Callable[[Chance], Group], count: int
) -> None:
    chance, points, nearest = np.random.default_rng(53), 0, []
    for _ in range(count):
        group = made(chance)
        short = shortfalls(group, group.step, EPSILONS)
        assert short.max() <= ORACLE_ERROR, group
        points += short.size
        nearest.append(-short.min())
    assert points == 20 * count
    assert max(nearest) < 2e-3


@pytest.mark.parametrize("made", [in_fixed_batches, in_poisson_batches])
def test_control_one_percent_less_noise_than_was_said_is_found(made: Callable[[Chance], Group]) -> None:
    chance, found = np.random.default_rng(53), 0
    for _ in range(6):
        group = made(chance)
        believed: Any = group.step
        quieter = believed.with_noise(1.01 * believed.noise_multiplier)
        found += bool(shortfalls(group, quieter, EPSILONS).max() > 10 * ORACLE_ERROR)
    assert found >= 5


# ---------------------------------------- groups among whatever others, every batch listed
class Crowd(NamedTuple):
    """A step on a few records, how a batch of them comes about, and how many records and rows there are."""

    step: Mechanism
    batches: Callable[[tuple[float, ...]], Mixture]
    size: int
    rows: int


def fixed_crowd(chance: Chance) -> Crowd:
    size, rows = int(chance.integers(5, 10)), int(chance.integers(1, 4))
    batch, noise = int(chance.integers(1, size - rows + 1)), between(chance, 0.5, 6.0)
    step = FixedSizeGaussian(dataset_size=size, batch_size=batch, noise_multiplier=noise)
    return Crowd(step, partial(fixed_size_batches, batch_size=batch, deviation=noise), size, rows)


def cut_crowd(chance: Chance) -> Crowd:
    stated, rows = int(chance.integers(5, 9)), int(chance.integers(1, 4))
    batch, noise = int(chance.integers(1, 4)), between(chance, 0.5, 6.0)
    cap = batch + int(chance.integers(0, 3))
    step = TruncatedPoissonGaussian(dataset_size=stated, batch_size=batch, cap=cap, noise_multiplier=noise)
    size = int(chance.integers(rows + 1, stated + 1))  # it holds for all that have no more
    made = partial(truncated_poisson_batches, probability=step.probability, cap=cap, deviation=noise)
    return Crowd(step, made, size, rows)


def people(crowd: Crowd, chance: Chance) -> Iterator[Group]:
    """The worst that is known, others that hide nothing, and gradients by lot."""
    others = crowd.size - crowd.rows
    lots = [[-1.0] * others, [0.0] * others, *(chance.choice([-1.0, -0.5, 0.0, 0.5, 1.0], (2, others)).tolist())]
    for lot in lots:
        person = [1.0] * crowd.rows if lot in lots[:2] else chance.choice([-1.0, 0.5, 1.0], crowd.rows).tolist()
        yield Group(crowd.step, crowd.rows, crowd.batches((*lot, *person)), crowd.batches(tuple(lot)))


@few_and_many(5, 52)
@pytest.mark.parametrize("made", [fixed_crowd, cut_crowd])
def test_whoever_the_others_are_no_person_is_easier_to_find_than_is_said(
    made: Callable[[Chance], Crowd], count: int
) -> None:
    chance, points = np.random.default_rng(59), 0
    for _ in range(count):
        crowd = made(chance)
        for group in people(crowd, chance):
            short = shortfalls(group, crowd.step, EPSILONS[::2])
            assert short.max() <= ORACLE_ERROR, group
            points += short.size
    assert points == 40 * count
