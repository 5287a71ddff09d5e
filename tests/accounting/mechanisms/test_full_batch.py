"""The full batch costs what the plain Gaussian mechanism costs: an oracle in closed form, and no factor 2."""

from __future__ import annotations

import math

import pytest
from scipy.optimize import brentq
from scipy.special import ndtr

from lrdp.accounting import (
    MECHANISMS,
    Adjacency,
    Budget,
    FixedSizeGaussian,
    FullBatchGaussian,
    Gaussian,
    PldAccountant,
    PublicSizes,
    RenyiAccountant,
    costliest_of,
    least_noise,
)
from lrdp.errors import InvalidInput
from lrdp.ledger.texts import decode_mechanism, encode_mechanism

STEP = FullBatchGaussian(dataset_size=304, noise_multiplier=9.7)
USUAL, REPLACE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE


def true_epsilon(noise: float, steps: int, delta: float) -> float:
    """T steps of σ are one of σ/√T, whose profile is known (arXiv 1805.06530v2, Theorem 8)."""
    shift = math.sqrt(steps) / noise

    def excess(epsilon: float) -> float:
        above = float(ndtr(shift / 2 - epsilon / shift))
        return above - math.exp(epsilon) * float(ndtr(-shift / 2 - epsilon / shift)) - delta

    return float(brentq(excess, 0.0, 200.0))


@pytest.mark.parametrize(("noise", "steps"), [(9.7, 1), (9.7, 30), (31.0, 417), (2.3, 11)])
@pytest.mark.parametrize(("adjacency", "moves"), [(USUAL, 1), (REPLACE, 2)])
def test_its_cost_is_that_of_one_gaussian_and_never_below(
    noise: float, steps: int, adjacency: Adjacency, moves: int
) -> None:
    step = STEP.with_noise(noise)
    truth = true_epsilon(noise / moves, steps, 1e-5)
    tight = PldAccountant(adjacency=adjacency).epsilon({step: steps}, 1e-5).epsilon
    assert truth <= tight <= truth * 1.002
    assert tight <= RenyiAccountant(adjacency=adjacency).epsilon({step: steps}, 1e-5).epsilon <= truth * 1.2


def test_the_bound_on_the_number_of_records_changes_no_cost() -> None:
    pairs = {
        FullBatchGaussian(dataset_size=size, noise_multiplier=9.7).dominating_pair(USUAL) for size in (2, 304, 10**6)
    }
    assert len(pairs) == 1
    assert STEP.rows == STEP.normaliser == 304
    assert STEP.noise_on_mean == 9.7 / 304


def test_nearly_everybody_drawn_at_a_fixed_size_costs_twice_the_noise() -> None:
    """The price of displacing one other, which the full batch does not pay."""
    budget, accountant = Budget(epsilon=2.0, delta=1e-5), RenyiAccountant(adjacency=USUAL)
    nearly = FixedSizeGaussian(dataset_size=304, batch_size=303, noise_multiplier=1.0)
    noise = [least_noise(step, 30, budget, accountant).mechanism.noise_multiplier for step in (STEP, nearly)]
    assert noise[1] / noise[0] == pytest.approx(2.0, rel=0.01)


def test_a_policy_admits_more_noise_and_no_other_bound_on_the_size() -> None:
    assert STEP.looser_in(STEP.with_noise(10.0)) is None
    assert STEP.looser_in(STEP.with_noise(9.0)) == "noise_multiplier"
    assert STEP.looser_in(STEP.varied(dataset_size=303)) == STEP.looser_in(STEP.varied(dataset_size=305))
    assert STEP.looser_in(STEP.varied(dataset_size=303)) == "dataset_size"
    assert STEP.looser_in(Gaussian(noise_multiplier=9.7)) == "name"


def test_beside_other_kinds_the_plain_gaussian_with_half_the_noise_stands_for_it() -> None:
    other = FixedSizeGaussian(dataset_size=304, batch_size=30, noise_multiplier=12.0)
    assert costliest_of([STEP, other]) == Gaussian(noise_multiplier=4.85)
    assert costliest_of([STEP, STEP]) == STEP


def test_ledgers_write_it_with_its_bound_and_still_read_the_gaussian_without_one() -> None:
    assert MECHANISMS["full-batch"] is FullBatchGaussian
    assert encode_mechanism(STEP) == "full-batch dataset_size=304 noise_multiplier=0x1.3666666666666p+3"
    assert decode_mechanism(encode_mechanism(STEP)) == STEP
    assert decode_mechanism("gaussian noise_multiplier=0x1.2000000000000p+1") == Gaussian(noise_multiplier=2.25)


def test_there_is_one_step_and_it_leaves_nobody_out() -> None:
    sizes = PublicSizes(dataset_size=304, rows=32)
    assert list(FullBatchGaussian.batch_sizes(sizes)) == [304]
    assert FullBatchGaussian.drawing(304, sizes) == STEP.with_noise(1.0)
    with pytest.raises(InvalidInput, match="leave nobody out"):
        FullBatchGaussian.drawing(303, sizes)
