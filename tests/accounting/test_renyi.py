"""The exact Rényi divergence against mpmath: never below it, at most 1e-6 above, never NaN, at 10,240 points.

All corners and a twenty-first of the others are tried always, the rest by the slow tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from lrdp.accounting import RenyiAccountant
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair, ReplaceOnePair
from oracles.renyi_mpmath import points, replace_one, reverse_subsampled_gaussian, subsampled_gaussian

from .given import ADD_REMOVE, Bare

Point = tuple[float, float, float]

DESIGN = points(10_240)
CORNERS, SPREAD = DESIGN[:45], DESIGN[45::33]
BLOCKS, FEWER_BLOCKS = 21, 5
"""Odd numbers: integer and fractional orders alternate in the design, and so they do in every block, each of which has
points of the whole range."""
TIGHTNESS = 1e-6


def divergence(pair: DominatingPair, order: float) -> float:
    return float(RenyiAccountant(adjacency=ADD_REMOVE).divergence({Bare(pair=pair): 1}, np.array([order]))[0])


def sampled_divergence(point: Point) -> float:
    q, sigma, order = point
    return divergence(GaussianMixturePair(weights=(q,), deviation=sigma / 2), order)


def replaced_divergence(point: Point) -> float:
    q, sigma, order = point
    return divergence(ReplaceOnePair(probability=q, deviation=sigma / 2), order)


def sampled_truth(point: Point) -> mpf:
    q, sigma, order = point
    return subsampled_gaussian(q, sigma / 2, order)


def replaced_truth(point: Point) -> mpf:
    q, sigma, order = point
    return replace_one(q, sigma / 2, order)


def faults(ours: Callable[[Point], float], truth: Callable[[Point], mpf], design: list[Point]) -> list[Point]:
    """The points at which ours is not a number, or below the truth, or more than 1e-6 above it.

    Ours has 16 digits: a truth of 25 is on the right side of it.
    """
    with mp.workdps(70):
        return [at for at in design if not (least := truth(at)) <= mpf(ours(at)) <= least * (1 + mpf(TIGHTNESS))]


def test_the_design_has_ten_thousand_points() -> None:
    assert len(set(DESIGN)) >= 10_000


@pytest.mark.one_in(BLOCKS)
@pytest.mark.parametrize("block", range(BLOCKS))
def test_the_exact_divergence_is_never_below_the_truth_and_hardly_above(block: int) -> None:
    assert faults(sampled_divergence, sampled_truth, DESIGN[45:][block::BLOCKS]) == []


def test_the_exact_divergence_is_never_below_the_truth_and_hardly_above_at_the_corners() -> None:
    assert faults(sampled_divergence, sampled_truth, CORNERS) == []


@pytest.mark.one_in(FEWER_BLOCKS)
@pytest.mark.parametrize("block", range(FEWER_BLOCKS))
def test_the_replace_one_divergence_is_never_below_the_truth_and_hardly_above(block: int) -> None:
    assert faults(replaced_divergence, replaced_truth, SPREAD[block::FEWER_BLOCKS]) == []


def test_the_replace_one_divergence_is_never_below_the_truth_and_hardly_above_at_the_corners() -> None:
    assert faults(replaced_divergence, replaced_truth, CORNERS) == []


@pytest.mark.parametrize("factor", [1 - 1e-8, 1 + 2e-6, float("nan"), float("inf")])
def test_the_check_would_reject_a_curve_that_is_a_little_too_small_or_too_large(factor: float) -> None:
    design = DESIGN[:60]
    assert faults(lambda point: sampled_divergence(point) * factor, sampled_truth, design) == design


@pytest.mark.parametrize("order", [1.0001, 1.003, 1.02, 1.05, 1.1, 1.2, 1.6])
@pytest.mark.parametrize(("q", "sigma"), [(3.7e-4, 0.9), (0.0256, 4.427), (0.0908, 9.7), (0.61, 31.0), (0.61, 1.7)])
def test_orders_close_to_one_are_as_exact_as_the_others(q: float, sigma: float, order: float) -> None:
    assert faults(sampled_divergence, sampled_truth, [(q, sigma, order)]) == []
    assert faults(replaced_divergence, replaced_truth, [(q, sigma, order)]) == []


def test_the_reverse_divergence_is_below_the_one_charged() -> None:
    for q, sigma, order in CORNERS + SPREAD[::4]:
        assert reverse_subsampled_gaussian(q, sigma / 2, order) <= sampled_divergence((q, sigma, order))


def test_the_replace_one_divergence_is_above_the_add_remove_one() -> None:
    for point in CORNERS + SPREAD[::4]:
        assert replaced_divergence(point) >= sampled_divergence(point) * (1 - 1e-12)


@pytest.mark.parametrize("order", [1.05, 2.0, 17.3, 1024.0])
@pytest.mark.parametrize("deviation", [0.17, 1.3, 41.0])
def test_the_whole_data_set_in_every_step_costs_what_the_gaussian_mechanism_costs(
    deviation: float, order: float
) -> None:
    truth = order / (2 * deviation**2)
    assert truth <= divergence(GaussianMixturePair(weights=(1.0,), deviation=deviation), order) <= truth * (1 + 2e-9)


@pytest.mark.parametrize("kind", ["sampled", "replaced"])
def test_mechanisms_evaluated_together_are_evaluated_as_alone(kind: str) -> None:
    pair_of: Any = {
        "sampled": lambda q, sigma: GaussianMixturePair(weights=(q,), deviation=sigma / 2),
        "replaced": lambda q, sigma: ReplaceOnePair(probability=q, deviation=sigma / 2),
    }[kind]
    orders = np.array([1.05, 1.7, 2.0, 9.5, 33.0, 200.5])
    apart = [(1e-7, 0.6), (0.9, 80.0), (0.0256, 4.427), (0.31, 0.7), (1e-3, 29.0), (0.0908, 1.1)]
    accountant = RenyiAccountant(adjacency=ADD_REMOVE)
    alone = [accountant.divergence({Bare(pair=pair_of(*where)): 7}, orders) for where in apart]
    together = accountant.divergence({Bare(pair=pair_of(*where)): 7 for where in apart}, orders)
    assert together == pytest.approx(np.sum(alone, axis=0), rel=1e-12)
