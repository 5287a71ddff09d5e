"""The paper's Taylor bound against its printed formula at hundreds of digits, and against what it bounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from mpmath import mp, mpf

from lrdp.accounting import (
    Gaussian,
    Mechanism,
    PoissonGaussian,
    RenyiAccountant,
    TaylorAccountant,
    TruncatedPoissonGaussian,
)
from lrdp.accounting.pairs import GaussianMixturePair
from lrdp.errors import InvalidInput, Unsupported
from oracles.renyi_mpmath import subsampled_gaussian
from oracles.taylor_mpmath import taylor_bound

from .given import ADD_REMOVE, REPLACE_ONE, Bare, fixed_size, sampled

TERMS = [3, 4, 5, 8, 12]
PROBABILITIES = [1e-6, 1.3e-3, 0.0256, 0.29, 0.87]
NOISES = [0.51, 1.9, 7.3, 20.0, 47.0, 100.0]
ORDERS = [1.07, 1.5, 2.0, 2.5, 3.0, 4.0, 7.0, 8.4, 11.0, 16.0, 32.0, 64.5, 160.0]


def bounds(q: float, sigma: float, orders: list[float], terms: int) -> list[float]:
    history: dict[Mechanism, int] = {Bare(pair=GaussianMixturePair(weights=(q,), deviation=sigma / 2)): 1}
    return TaylorAccountant(adjacency=ADD_REMOVE, terms=terms).divergence(history, np.array(orders)).tolist()


@pytest.mark.one_in(4)
@pytest.mark.parametrize("sigma", NOISES)
@pytest.mark.parametrize("terms", TERMS)
def test_the_bound_is_never_below_what_it_bounds_and_equals_it_at_whole_orders_below_m(
    terms: int, sigma: float
) -> None:
    for q in PROBABILITIES:
        for order, bound in zip(ORDERS, bounds(q, sigma, ORDERS, terms), strict=True):
            exact = subsampled_gaussian(q, sigma / 2, order)
            assert math.isfinite(bound)
            assert mpf(bound) >= exact
            if order.is_integer() and order < terms:
                assert bound == pytest.approx(float(exact), rel=1e-6)


@pytest.mark.parametrize("sigma", [20.0, 100.0])
def test_the_bound_is_never_below_at_high_orders_and_much_noise_where_doubles_fail(sigma: float) -> None:
    for order, bound in zip([512.0, 1024.0], bounds(0.0256, sigma, [512.0, 1024.0], 4), strict=True):
        assert mpf(bound) >= subsampled_gaussian(0.0256, sigma / 2, order)


@pytest.mark.parametrize("terms", TERMS)
def test_the_bound_is_the_printed_formula(terms: int) -> None:
    orders = [1.07, 2.5, 4.0, 8.4, 16.0, 41.5]
    for q, sigma in itertools.product([1.3e-3, 0.0908, 0.6], [0.51, 4.427, 47.0]):
        printed = [float(taylor_bound(q, sigma, order, terms)) for order in orders]
        assert bounds(q, sigma, orders, terms) == pytest.approx(printed, rel=1e-8)


def test_the_bound_is_far_too_large_at_little_noise_and_worse_with_more_terms() -> None:
    exact = float(subsampled_gaussian(0.01, 0.5, 1.25))
    assert bounds(0.01, 1.0, [1.25], 3)[0] / exact == pytest.approx(99.2, rel=1e-2)
    assert bounds(0.01, 1.0, [1.25], 10)[0] / exact == pytest.approx(2.69e5, rel=1e-2)


def moment_in_doubles(sigma: float, k: int) -> float:
    """M_(sigma,k) [eq:M_def] as it is printed, in float64."""
    terms = [(-1) ** (k - n) * math.comb(k, n) * math.exp(2 * n * (n - 1) / sigma**2) for n in range(2, k + 1)]
    return sum(terms) + (-1) ** (k - 1) * (k - 1)


def moment(sigma: float, k: int) -> float:
    """The same with 300 digits."""
    with mp.workdps(300):
        terms = [(-1) ** (k - n) * math.comb(k, n) * mp.exp(2 * n * (n - 1) / mpf(sigma) ** 2) for n in range(2, k + 1)]
        return float(mp.fsum(terms) + (-1) ** (k - 1) * (k - 1))


def test_doubles_would_make_the_bound_too_small() -> None:
    # Why the coefficients are computed in multiple precision: in float64 the printed formula is exact at first, …
    assert moment_in_doubles(4.0, 4) == pytest.approx(moment(4.0, 4), rel=1e-12)
    # … then too small, which is the unsound side, and at last an even moment comes out negative.
    assert moment_in_doubles(20.0, 16) < (1 - 1e-4) * moment(20.0, 16)
    assert moment_in_doubles(100.0, 10) < 0.2 * moment(100.0, 10)
    assert moment_in_doubles(20.0, 24) < 0 < moment(20.0, 24)
    assert moment_in_doubles(100.0, 12) < 0 < moment(100.0, 12)


@pytest.mark.parametrize("terms", [3, 4, 5])
def test_epsilon_by_the_bound_is_never_below_the_exact_one(terms: int) -> None:
    for mechanism, steps in [(fixed_size(4.427), 10_000), (fixed_size(1.16, n=6734, batch=32), 3165)]:
        by_bound = TaylorAccountant(adjacency=ADD_REMOVE, terms=terms).epsilon({mechanism: steps}, 1e-5).epsilon
        assert by_bound >= RenyiAccountant(adjacency=ADD_REMOVE).epsilon({mechanism: steps}, 1e-5).epsilon


def test_mechanisms_with_one_sampling_probability_have_the_bound_too() -> None:
    orders = np.array([1.5, 3.0, 12.5])
    kinds = [
        PoissonGaussian(dataset_size=5000, batch_size=90, noise_multiplier=2.1),
        TruncatedPoissonGaussian(dataset_size=5000, batch_size=90, cap=101, noise_multiplier=2.1),
    ]
    for mechanism in kinds:
        bound = TaylorAccountant(adjacency=ADD_REMOVE).divergence({mechanism: 1}, orders)
        assert (bound >= RenyiAccountant(adjacency=ADD_REMOVE).divergence({mechanism: 1}, orders)).all()


@pytest.mark.parametrize("terms", [2, 0, -1, 3.5, float("nan"), None])
def test_fewer_than_three_terms_are_refused(terms: Any) -> None:
    with pytest.raises(InvalidInput, match=f"{terms}.*m ≥ 3"):
        TaylorAccountant(adjacency=ADD_REMOVE, terms=terms)


def test_replace_one_has_no_taylor_bound_and_is_refused() -> None:
    with pytest.raises(Unsupported, match="add-remove only"):
        TaylorAccountant(adjacency=REPLACE_ONE).epsilon({fixed_size(4.427): 10}, 1e-5)


def test_sampling_with_replacement_has_no_taylor_bound_and_is_refused() -> None:
    with pytest.raises(Unsupported, match="with replacement"):
        TaylorAccountant(adjacency=ADD_REMOVE).epsilon({sampled(4.427)[1]: 10}, 1e-5)


def test_the_whole_data_set_has_no_taylor_bound_and_the_exact_one_is_named() -> None:
    with pytest.raises(Unsupported, match=r"needs a sampling probability below 1.*use the rdp accountant"):
        TaylorAccountant(adjacency=ADD_REMOVE).epsilon({Gaussian(noise_multiplier=4.1): 3}, 1e-5)
