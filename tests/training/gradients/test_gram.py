"""Lengths from Gram matrices: never below the truth, whatever cancels, vanishes or is left out of the sum."""

from itertools import combinations

import pytest
import torch

from lrdp.training.gradients.gram import lengths

DOUBLE = torch.float64
SHAPES = [(1, 3, 2), (2, 64, 64), (2, 4096, 1), (7, 300, 5), (33, 16, 16)]


def grams(left, right):
    return left @ left.mT, right @ right.mT


def measured(left, right):
    return lengths([grams(left, right)], (left.shape[2], right.shape[2]))


def true_squares(left, right):
    return torch.einsum("rtl,rtk->rlk", left.to(DOUBLE), right.to(DOUBLE)).square().sum((1, 2))


def cancelling(terms, wide, narrow, seed, rows=64):
    """Terms of which each undoes the others but for a last trace."""
    generator = torch.Generator().manual_seed(seed)
    left = torch.randn(rows, 1, wide, generator=generator).repeat(1, terms, 1)
    right = torch.randn(rows, 1, narrow, generator=generator) * torch.randn(rows, terms, 1, generator=generator)
    right -= right.mean(1, keepdim=True)
    left += 1e-5 * torch.randn(left.shape, generator=generator)
    return left, right


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(3))
def test_terms_that_cancel_are_not_measured_below_their_sum(shape, seed):
    terms, wide, narrow = shape
    left, right = cancelling(terms, wide, narrow, seed)
    assert bool((measured(left, right)[0] >= true_squares(left, right)).all())


def test_without_the_allowance_cancelling_terms_would_be_measured_below_their_sum():
    left, right = cancelling(2, 4096, 1, 0)
    first, second = grams(left, right)
    bare = (first * second).sum((1, 2), dtype=DOUBLE).clamp(min=0.0)
    assert bool((bare < true_squares(left, right)).any())


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize(("small", "large"), [(1e-23, 1e18), (1e-30, 1e15), (1e-40, 1e18), (1e-19, 1e-19)])
def test_what_vanishes_in_one_matrix_and_counts_in_the_product_is_not_lost(small, large, flush):
    generator = torch.Generator().manual_seed(3)
    left, right = (torch.randn(16, 3, width, generator=generator) * size for width, size in ((9, small), (4, large)))
    truth = true_squares(left, right)
    torch.set_flush_denormal(flush)
    try:
        squares, _ = measured(left, right)
    finally:
        torch.set_flush_denormal(False)
    assert bool((squares >= truth).all())


@pytest.mark.parametrize("seed", range(3))
def test_no_part_of_the_sum_reaches_further_than_is_said(seed):
    left, right = cancelling(5, 30, 4, seed)
    _, reaches = measured(left, right)
    for count in range(1, 6):
        for part in combinations(range(5), count):
            assert bool((true_squares(left[:, part], right[:, part]) <= reaches).all()), part


def test_ordinary_terms_are_measured_closely():
    generator = torch.Generator().manual_seed(5)
    left, right = (torch.randn(8, 16, width, generator=generator) for width in (40, 30))
    squares, truth = measured(left, right)[0], true_squares(left, right)
    assert bool((squares <= truth * 1.001).all())
