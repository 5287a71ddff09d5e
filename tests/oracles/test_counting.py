"""Counted batches are the listed ones, steps taken together from below stay below, and moments are those of mpmath."""

from __future__ import annotations

import itertools

import numpy
import pytest

from .brute_force import Mixture, composed_hockey_stick, truncated_poisson_batches
from .cut_batches import (
    Masses,
    counted_batches,
    hockey_sticks_from_below,
    in_pieces,
    renyi_divergence,
    taken_together,
)
from .renyi_mpmath import reverse_subsampled_gaussian, subsampled_gaussian


@pytest.mark.parametrize("cap", [1, 2, 4, 7, 9])
@pytest.mark.parametrize("groups", [{-1.0: 6, 1.0: 1}, {0.0: 4, 1.0: 1}, {-1.0: 3, 0.0: 2, 0.5: 1, 1.0: 1}])
def test_counted_batches_are_the_listed_ones(groups: dict[float, int], cap: int) -> None:
    gradients = tuple(itertools.chain.from_iterable([value] * count for value, count in groups.items()))
    listed = truncated_poisson_batches(gradients, 0.31, cap, 0.9)
    counted = counted_batches(groups, 0.31, cap, 0.9)
    assert counted.means == listed.means
    assert counted.weights == pytest.approx(listed.weights, rel=1e-13)


def pair(noise: float) -> tuple[Mixture, Mixture]:
    return tuple(counted_batches({-1.0: 6, 1.0: each}, 0.2, 2, noise) for each in (1, 0))  # type: ignore[return-value]


@pytest.mark.parametrize(("noise", "gap"), [(0.8, 2e-4), (2.3, 5e-5)])
@pytest.mark.parametrize("epsilon", [0.04, 0.9])
def test_two_steps_from_below_are_below_and_by_little(noise: float, gap: float, epsilon: float) -> None:
    for way in (pair(noise), pair(noise)[::-1]):
        one = in_pieces(*way)
        (found,) = hockey_sticks_from_below(taken_together(one, one), (epsilon,))
        truth = composed_hockey_stick(*way, epsilon, 2)
        assert truth - gap <= found <= truth + 1e-8


def test_steps_taken_together_lose_no_mass_and_a_step_that_tells_nothing_adds_nothing() -> None:
    one = in_pieces(*pair(0.8))
    two = taken_together(one, one)
    assert [float(each.sum()) for each in two] == pytest.approx([1.0, 1.0], abs=1e-12)
    blind = Masses(numpy.array([0.3, 0.7]), numpy.array([0.3, 0.7]))
    alone = hockey_sticks_from_below(one, (0.31,))
    assert hockey_sticks_from_below(taken_together(one, blind), (0.31,)) == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("order", [1.25, 2.0, 3.7, 21.0])
@pytest.mark.parametrize(("q", "deviation"), [(0.07, 0.33), (0.2, 0.8), (0.4, 6.0)])
def test_moments_are_those_of_multiple_precision(q: float, deviation: float, order: float) -> None:
    sampled = Mixture(means=(0.0, 1.0), weights=(1 - q, q), deviation=deviation)
    plain = Mixture(means=(0.0,), weights=(1.0,), deviation=deviation)
    for found, truth in (
        (renyi_divergence(sampled, plain, order), subsampled_gaussian(q, deviation, order)),
        (renyi_divergence(plain, sampled, order), reverse_subsampled_gaussian(q, deviation, order)),
    ):
        assert found == pytest.approx(float(truth), rel=1e-10, abs=1e-13 / (order - 1))
