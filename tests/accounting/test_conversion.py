"""From Rényi divergences to (ε, δ) and back: the formula, its inverse, its soundness, and the search for the order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.optimize import minimize_scalar
from scipy.special import ndtr

from lrdp.accounting import Gaussian, Mechanism, RenyiAccountant
from lrdp.accounting.conversion import ORDERS, delta_at, epsilon_at

from .given import ADD_REMOVE, deltas, histories

divergences = st.floats(min_value=0.0, max_value=50.0)
orders = st.floats(min_value=1.05, max_value=1024.0)


def one(value: float) -> np.ndarray:
    return np.array([value])


@given(divergence=divergences, order=orders, delta=deltas)
def test_epsilon_is_the_formula_of_proposition_12(divergence: float, order: float, delta: float) -> None:
    with mp.workdps(50):
        rho, a, d = mpf(divergence), mpf(order), mpf(delta)
        truth = max(mpf(0), rho + mp.log((a - 1) / a) - (mp.log(d) + mp.log(a)) / (a - 1))
    assert epsilon_at(one(divergence), one(order), delta)[0] == pytest.approx(float(truth), rel=1e-12, abs=1e-12)


@given(divergence=divergences, order=orders, delta=deltas)
def test_delta_at_the_epsilon_of_a_delta_is_that_delta(divergence: float, order: float, delta: float) -> None:
    epsilon = epsilon_at(one(divergence), one(order), delta)[0]
    back = delta_at(one(divergence), one(order), epsilon)[0]
    assert back <= delta * (1 + 1e-9)
    if epsilon > 0:
        assert back == pytest.approx(delta, rel=1e-9)


def gaussian_delta(epsilon: float, rho: float) -> float:
    """The exact δ of a Gaussian mechanism with divergence rho·order, rho = 1/(2s²) (arXiv 1805.06530, theorem 8)."""
    ratio = math.sqrt(2 * rho)
    return float(ndtr(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * ndtr(-ratio / 2 - epsilon / ratio))


@given(rho=st.floats(min_value=1e-4, max_value=8.0), order=orders, delta=deltas)
def test_no_order_ever_promises_more_than_a_gaussian_keeps(rho: float, order: float, delta: float) -> None:
    epsilon = epsilon_at(one(rho * order), one(order), delta)[0]
    if epsilon < 600:
        assert gaussian_delta(epsilon, rho) <= delta * (1 + 1e-9)


def test_the_check_would_catch_a_conversion_without_the_order_in_the_logarithm() -> None:
    # ρ + ln((a-1)/a) - ln(δ)/(a-1) - 2 ln(a)/(a-1) counts ln a twice: about 1 ε too small here.
    rho, delta = 0.31, 1e-5
    wrong = min(
        rho * a + math.log1p(-1 / a) - (math.log(delta) + 3 * math.log(a)) / (a - 1) for a in np.linspace(1.5, 40, 400)
    )
    assert gaussian_delta(wrong, rho) > delta


def test_the_classical_conversion_would_be_looser() -> None:
    rho, delta = 0.31, 1e-5
    grid = np.linspace(1.5, 40, 400)
    classical = (rho * grid - math.log(delta) / (grid - 1)).min()
    assert epsilon_at(rho * grid, grid, delta).min() < classical - 0.4


@pytest.mark.parametrize("divergence", [float("nan"), float("inf")])
def test_a_divergence_that_is_no_number_promises_nothing(divergence: float) -> None:
    assert epsilon_at(one(divergence), one(3.7), 1e-5)[0] == math.inf
    assert delta_at(one(divergence), one(3.7), 1.1)[0] == 1.0


@given(divergence=divergences, order=orders, delta=deltas)
def test_epsilon_is_never_negative_and_delta_never_above_one(divergence: float, order: float, delta: float) -> None:
    assert epsilon_at(one(divergence), one(order), delta)[0] >= 0
    assert 0 <= delta_at(one(divergence), one(order), delta * 10)[0] <= 1


@given(history=histories(), delta=deltas)
def test_the_order_found_is_within_a_hair_as_good_as_any_on_the_grid(
    history: dict[Mechanism, int], delta: float
) -> None:
    accountant = RenyiAccountant(adjacency=ADD_REMOVE)
    found = accountant.epsilon(history, delta)
    on_grid = epsilon_at(accountant.divergence(history, ORDERS), ORDERS, delta).min()
    assert found.epsilon <= on_grid * (1 + 2e-4) + 1e-12


@pytest.mark.parametrize("rho", [1e-3, 0.02, 0.31, 2.9])
def test_the_order_found_is_within_a_thousandth_of_the_best_real_order(rho: float) -> None:
    def at(log_order: float) -> float:
        order = 1 + math.exp(log_order)
        return float(epsilon_at(one(rho * order), one(order), 1e-5)[0])

    best = minimize_scalar(at, bounds=(math.log(0.06), math.log(1000)), method="bounded", options={"xatol": 1e-9})
    noise = 1 / math.sqrt(2 * rho)
    found = RenyiAccountant(adjacency=ADD_REMOVE).epsilon({Gaussian(noise_multiplier=noise): 1}, 1e-5)
    assert best.fun * (1 - 1e-9) <= found.epsilon <= best.fun * (1 + 1e-3)


@given(history=histories(), delta=deltas)
def test_the_epsilon_reported_is_the_one_at_the_order_reported(history: dict[Mechanism, int], delta: float) -> None:
    accountant = RenyiAccountant(adjacency=ADD_REMOVE)
    found = accountant.epsilon(history, delta)
    order = np.array([found.order])
    assert epsilon_at(accountant.divergence(history, order), order, delta)[0] == pytest.approx(found.epsilon, rel=1e-9)


def test_an_order_at_the_end_of_the_search_is_said_to_be_there() -> None:
    accountant = RenyiAccountant(adjacency=ADD_REMOVE)
    assert accountant.epsilon({Gaussian(noise_multiplier=900.0): 1}, 1e-5).at_edge
    assert accountant.epsilon({Gaussian(noise_multiplier=0.05): 40}, 0.1).at_edge
    assert not accountant.epsilon({Gaussian(noise_multiplier=4.0): 1}, 1e-5).at_edge
