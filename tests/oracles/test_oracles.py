"""The oracles are held to closed forms, to a second method, and to themselves at twice the precision."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import dp_accounting
import numpy
import pytest
from dp_accounting import rdp
from mpmath import mp, mpf
from numpy.polynomial.legendre import leggauss
from scipy import integrate as scipy_integrate
from scipy.special import ndtr

from . import quadrature
from .brute_force import (
    Mixture,
    Neighbours,
    Relation,
    composed_hockey_stick,
    fixed_size_batches,
    hockey_stick,
    poisson_batches,
    truncated_poisson_batches,
    with_replacement_batches,
    worst_case_neighbours,
)
from .renyi_mpmath import (
    points,
    replace_one,
    replace_one_by_excess,
    reverse_subsampled_gaussian,
    subsampled_gaussian,
    subsampled_gaussian_by_quadrature,
)
from .taylor_mpmath import taylor_bound

Oracle = Callable[..., mpf]

AWKWARD_POINTS = [
    (1e-7, 50.0, 1.05),
    (1e-7, 0.15, 1.05),
    (1e-7, 0.15, 1023.5),
    (3.7e-5, 0.41, 2.3),
    (0.0256, 5.57, 17.9),
    (0.0908, 0.77, 1.61),
    (0.31, 0.15, 3.3),
    (0.9, 0.15, 1023.5),
    (0.9, 50.0, 1023.5),
    (0.9, 1.3, 71.25),
]


def relative_gap(value: mpf, truth: mpf) -> float:
    """|value / truth - 1|, free of the ambient precision."""
    with mp.workdps(100):
        return float(abs(mpf(value) / mpf(truth) - 1))


# --- quadrature ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 17, 40])
def test_the_gauss_legendre_rule_is_numpys_rule(count: int) -> None:
    rule = quadrature.gauss_legendre(count, 200)
    nodes, weights = leggauss(count)
    assert sorted(float(node) for node, _ in rule) == pytest.approx(nodes, abs=1e-15)
    assert [float(weight) for _, weight in sorted(rule)] == pytest.approx(weights, abs=1e-14)


def _monomial_miss(degree: int, count: int) -> mpf:
    """By how much the rule of `count` nodes misses int_0^1 x^degree dx."""

    def monomial(x: mpf) -> mpf:
        return x**degree

    return abs(quadrature.integrate(monomial, [(0.0, 1.0)], count) - mpf(1) / (degree + 1))


def test_the_gauss_legendre_rule_is_exact_to_its_degree_and_no_further() -> None:
    with mp.workdps(60):
        misses = [_monomial_miss(degree, 17) for degree in (32, 33, 34)]
        assert max(misses[:2]) < mpf(10) ** -55
        assert misses[2] > mpf(10) ** -25


def test_a_window_that_cuts_off_mass_is_refused() -> None:
    with pytest.raises(ValueError, match="widen it"):
        quadrature.active_intervals(lambda z: -(z**2) / 2, (-5.0, 5.0), 0.25, 25)


# --- Renyi divergences -----------------------------------------------------------------------------------------------


@pytest.mark.one_in(4)
@pytest.mark.parametrize("oracle", [subsampled_gaussian, reverse_subsampled_gaussian, replace_one])
@pytest.mark.parametrize("point", AWKWARD_POINTS)
def test_the_divergence_is_stable_under_doubled_precision(oracle: Oracle, point: tuple[float, float, float]) -> None:
    assert relative_gap(oracle(*point), oracle(*point, 50)) < 1e-25


def test_the_divergence_is_stable_under_doubled_precision_across_the_design() -> None:
    for q, sigma, order in points(1045)[45::25]:
        point = (q, sigma / 2, order)
        assert relative_gap(subsampled_gaussian(*point), subsampled_gaussian(*point, 50)) < 1e-25


@pytest.mark.parametrize("q", [1e-7, 0.013, 0.9])
@pytest.mark.parametrize("deviation", [0.15, 0.83, 50.0])
@pytest.mark.parametrize("order", [2, 3, 41, 1024])
def test_the_quadrature_agrees_with_the_binomial_sum_at_integer_orders(q: float, deviation: float, order: int) -> None:
    gap = relative_gap(subsampled_gaussian_by_quadrature(q, deviation, order), subsampled_gaussian(q, deviation, order))
    assert gap < 1e-25


def definition_by_tanh_sinh(q: float, deviation: float, order: float) -> mpf:
    """D_order(P||Q) from its definition, int P^a Q^(1-a) dx, with mpmath's own tanh-sinh quadrature."""
    with mp.workdps(40):
        sampling, scale, power = mpf(q), mpf(deviation), mpf(order)

        def integrand(x: mpf) -> mpf:
            first = sampling * mp.npdf(x, 1, scale) + (1 - sampling) * mp.npdf(x, 0, scale)
            return first**power * mp.npdf(x, 0, scale) ** (1 - power)

        ends = [scale * step for step in range(-18, 19, 4)]
        total = mp.quad(integrand, sorted({*ends, *(power + end for end in ends)}))
        return mp.log(total) / (power - 1)


@pytest.mark.parametrize(("q", "deviation", "order"), [(0.0256, 5.57, 17.9), (0.31, 0.9, 2.3), (0.7, 1.7, 1.05)])
def test_the_divergence_agrees_with_its_definition_by_tanh_sinh(q: float, deviation: float, order: float) -> None:
    assert relative_gap(subsampled_gaussian(q, deviation, order), definition_by_tanh_sinh(q, deviation, order)) < 1e-24


def two_erfc_series(q: float, deviation: float, order: float) -> mpf:
    """D_order(P||Q) by the two alternating series of arXiv 1908.10530v1, section 3.3, with Levin's transformation."""
    with mp.workdps(80):
        sampling, scale, power = mpf(q), mpf(deviation), mpf(order)
        split = mpf(1) / 2 + scale**2 * mp.log(1 / sampling - 1)

        def half(tilt: mpf, sign: int) -> mpf:
            tail = mp.erfc(sign * (tilt - split) / (mp.sqrt(2) * scale)) / 2
            return mp.exp(tilt * (tilt - 1) / (2 * scale**2)) * tail

        def term(k: mpf) -> mpf:
            below = (1 - sampling) ** (power - k) * sampling**k * half(mpf(k), 1)
            above = (1 - sampling) ** k * sampling ** (power - k) * half(power - k, -1)
            return mp.binomial(power, k) * (below + above)

        head = math.ceil(order) + 2
        total = mp.fsum(term(mpf(k)) for k in range(head)) + mp.nsum(term, [head, mp.inf], method="levin")
        return mp.log(total) / (power - 1)


@pytest.mark.parametrize(("q", "deviation", "order"), [(0.0256, 2.17, 7.9), (0.013, 0.77, 1.61), (0.41, 0.3, 2.5)])
def test_the_divergence_agrees_with_the_two_erfc_series(q: float, deviation: float, order: float) -> None:
    assert relative_gap(subsampled_gaussian(q, deviation, order), two_erfc_series(q, deviation, order)) < 1e-20


@pytest.mark.parametrize("oracle", [subsampled_gaussian, reverse_subsampled_gaussian, replace_one])
@pytest.mark.parametrize(("deviation", "order"), [(0.9, 1.05), (0.9, 6.0), (1.9, 33.3), (50.0, 1023.5)])
def test_the_divergence_tends_to_the_plain_gaussians_when_everything_is_sampled(
    oracle: Oracle, deviation: float, order: float
) -> None:
    assert relative_gap(oracle(1 - 2.0**-52, deviation, order), mpf(order) / (2 * mpf(deviation) ** 2)) < 1e-9


@pytest.mark.parametrize("oracle", [subsampled_gaussian, reverse_subsampled_gaussian])
@pytest.mark.parametrize("order", [1.05, 2.0, 37.7])
def test_the_divergence_tends_to_its_second_moment_when_almost_nothing_is_sampled(oracle: Oracle, order: float) -> None:
    leading = mpf(order) * mpf(1e-12) ** 2 * mp.expm1(1 / mpf(2.3) ** 2) / 2
    assert relative_gap(oracle(1e-12, 2.3, order), leading) < 1e-9


@pytest.mark.parametrize("point", AWKWARD_POINTS)
def test_the_reverse_is_never_above_the_forward_nor_replace_one_below_it(point: tuple[float, float, float]) -> None:
    with mp.workdps(60):
        forward, slack = subsampled_gaussian(*point), 1 + mpf(10) ** -25
        assert reverse_subsampled_gaussian(*point) <= forward * slack
        assert forward <= replace_one(*point) * slack


@pytest.mark.parametrize("point", AWKWARD_POINTS)
def test_replace_one_from_its_profile_agrees_with_two_half_line_moments(point: tuple[float, float, float]) -> None:
    assert relative_gap(replace_one(*point), replace_one_by_excess(*point)) < 1e-25


def dp_accounting_divergences(q: float, deviation: float, orders: list[float]) -> list[float]:
    """What dp_accounting charges for one Poisson-subsampled Gaussian, at each order."""
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(deviation)))
    return [float(value) for value in accountant._rdp]


@pytest.mark.parametrize(("q", "deviation"), [(0.01, 1.1), (0.1, 0.8), (0.0256, 2.9)])
def test_the_divergence_agrees_with_dp_accounting_at_integer_orders(q: float, deviation: float) -> None:
    orders = [2.0, 3.0, 8.0, 20.0, 150.0]
    ours = [float(subsampled_gaussian(q, deviation, order)) for order in orders]
    assert dp_accounting_divergences(q, deviation, orders) == pytest.approx(ours, rel=1e-8)


@pytest.mark.parametrize(("q", "deviation"), [(0.01, 1.1), (0.1, 0.8), (0.0256, 2.9)])
def test_the_divergence_is_just_below_dp_accountings_at_fractional_orders(q: float, deviation: float) -> None:
    # dp_accounting 0.6 adds the absolute values of its alternating series: 9% too much at order 1.7, 7e-4 at 3.5.
    for order, excess in [(1.7, 0.11), (3.5, 1e-3), (20.25, 1e-6)]:
        (theirs,) = dp_accounting_divergences(q, deviation, [order])
        ours = float(subsampled_gaussian(q, deviation, order))
        assert ours * (1 - 1e-9) <= theirs <= ours * (1 + excess)


def test_the_design_holds_its_corners_and_stays_inside_its_box() -> None:
    design = points(2000)
    assert design == points(2000)
    assert len(set(design)) == 2000
    assert {(1e-7, 0.3, 1023.5), (1e-7, 100.0, 1.05), (0.9, 0.3, 1024.0), (0.9, 100.0, 2.0)} <= set(design)
    assert all(1e-7 <= q <= 0.9 and 0.3 <= sigma <= 100 and 1.05 <= order <= 1024 for q, sigma, order in design)
    assert 900 < sum(order.is_integer() for _, _, order in design) < 1100


# --- the paper's Taylor bound ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "terms"), [(2, 3), (4, 5), (5, 6), (5, 16), (31, 32)])
def test_the_taylor_bound_is_exact_for_integer_orders_below_its_terms(order: int, terms: int) -> None:
    assert relative_gap(taylor_bound(0.017, 3.1, order, terms), subsampled_gaussian(0.017, 1.55, order, 50)) < 1e-45


@pytest.mark.parametrize("q", [1e-4, 0.0256, 0.7])
@pytest.mark.parametrize("sigma", [0.9, 4.3, 20.0])
@pytest.mark.parametrize(("order", "terms"), [(1.25, 3), (1.25, 10), (3.0, 3), (4.5, 4), (16.0, 5), (41.7, 3)])
def test_the_taylor_bound_is_never_below_the_divergence(q: float, sigma: float, order: float, terms: int) -> None:
    assert taylor_bound(q, sigma, order, terms) >= subsampled_gaussian(q, sigma / 2, order, 50)


def test_the_taylor_bound_is_its_printed_formula_at_an_order_below_its_terms() -> None:
    with mp.workdps(80):
        q, growth = mpf(0.01), [mp.exp(2 * k * (k - 1) / mpf(4) ** 2) for k in range(5)]
        second = growth[2] - 1
        fourth = growth[4] - 4 * growth[3] + 6 * growth[2] - 3
        product = mpf(1.25) * mpf(0.25) * mpf(0.75)
        remainder = q**3 / 6 * (1 - q) ** mpf(-1.75) * product * mp.sqrt(second * fourth)
        bound = mp.log(1 + q**2 / 2 * mpf(1.25) * mpf(0.25) * second + remainder) / mpf(0.25)
    assert relative_gap(taylor_bound(0.01, 4.0, 1.25, 3), bound) < 1e-60


def test_the_taylor_bound_is_its_printed_formula_at_an_order_above_its_terms() -> None:
    with mp.workdps(80):
        q, growth = mpf(0.01), [mp.exp(2 * k * (k - 1) / mpf(4) ** 2) for k in range(5)]
        second = growth[2] - 1
        fourth = growth[4] - 4 * growth[3] + 6 * growth[2] - 3
        third = mp.sqrt(second * fourth)
        product = mpf(3.5) * mpf(2.5) * mpf(1.5)
        remainder = q**3 * product * (third / 6 + q * fourth / 24 + third / 6)
        bound = mp.log(1 + q**2 / 2 * mpf(3.5) * mpf(2.5) * second + remainder) / mpf(2.5)
    assert relative_gap(taylor_bound(0.01, 4.0, 3.5, 3), bound) < 1e-60


def test_the_taylor_bound_is_a_hundred_times_too_large_at_little_noise() -> None:
    exact = subsampled_gaussian(0.01, 0.5, 1.25)
    assert float(taylor_bound(0.01, 1.0, 1.25, 3) / exact) == pytest.approx(99.23, abs=0.01)
    assert float(taylor_bound(0.01, 1.0, 1.25, 10) / exact) == pytest.approx(2.69e5, rel=1e-3)


# --- brute force -----------------------------------------------------------------------------------------------------

NOISE = 1.3
BATCHES: dict[str, Callable[[tuple[float, ...]], Mixture]] = {
    "fixed size": lambda gradients: fixed_size_batches(gradients, 3, NOISE),
    "with replacement": lambda gradients: with_replacement_batches(gradients, 3, NOISE),
    "Poisson": lambda gradients: poisson_batches(gradients, 0.35, NOISE),
    "truncated Poisson": lambda gradients: truncated_poisson_batches(gradients, 0.35, 2, NOISE),
}


def gaussian_profile(epsilon: float, shift: float, deviation: float) -> float:
    """Phi(m/2 - e/m) - e^e Phi(-m/2 - e/m) with m = shift/deviation (arXiv 1805.06530, theorem 8)."""
    ratio = shift / deviation
    return float(ndtr(ratio / 2 - epsilon / ratio) - math.exp(epsilon) * ndtr(-ratio / 2 - epsilon / ratio))


def normal(mean: float, deviation: float) -> Mixture:
    """One component."""
    return Mixture(means=(mean,), weights=(1.0,), deviation=deviation)


def binomial_shifts(draws: int, chance: float, deviation: float) -> Mixture:
    """sum_k Bin(k; draws, chance) N(k, deviation^2)."""
    weights = tuple(math.comb(draws, k) * chance**k * (1 - chance) ** (draws - k) for k in range(draws + 1))
    return Mixture(means=tuple(map(float, range(draws + 1))), weights=weights, deviation=deviation)


def worst(batches: Callable[[tuple[float, ...]], Mixture], relation: Relation, epsilon: float, n: int = 6) -> float:
    """The largest divergence over all neighbours of one relation, in both directions."""
    chosen = [pair for pair in worst_case_neighbours(n) if pair.relation is relation]
    pairs = [(batches(pair.first), batches(pair.second)) for pair in chosen]
    return max(hockey_stick(*ends, epsilon) for pair in pairs for ends in (pair, pair[::-1]))


@pytest.mark.parametrize("deviation", [0.3, 1.0, 5.0])
@pytest.mark.parametrize("epsilon", [-3.0, -0.5, 0.0, 0.5, 2.0])
def test_the_hockey_stick_of_two_gaussians_is_the_analytic_one(deviation: float, epsilon: float) -> None:
    first, second = normal(1.0, deviation), normal(0.0, deviation)
    assert hockey_stick(first, second, epsilon) == pytest.approx(gaussian_profile(epsilon, 1, deviation), abs=1e-14)
    composed = composed_hockey_stick(first, second, epsilon, 2)
    assert composed == pytest.approx(gaussian_profile(epsilon, math.sqrt(2), deviation), abs=1e-14)


def test_the_hockey_stick_of_a_mixture_with_itself_is_nothing() -> None:
    mixture = fixed_size_batches((-1.0, 0.25, 0.5, 1.0), 2, NOISE)
    assert hockey_stick(mixture, mixture, 0.0) < 1e-14
    assert hockey_stick(mixture, mixture, -0.7) == pytest.approx(-math.expm1(-0.7), abs=1e-14)


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("pair", worst_case_neighbours(5)[::11], ids=lambda pair: f"{pair.first} {pair.second}")
def test_the_hockey_stick_agrees_with_adaptive_quadrature(
    batches: Callable[[tuple[float, ...]], Mixture], pair: Neighbours
) -> None:
    first, second = batches(pair.first), batches(pair.second)

    def integrand(x: float) -> float:
        here = numpy.array(x)
        return max(0.0, float(numpy.exp(first.log_density(here)) - math.exp(0.1) * numpy.exp(second.log_density(here))))

    edges = numpy.linspace(-5 - 10 * NOISE, 5 + 10 * NOISE, 65)
    parts = [scipy_integrate.quad(integrand, *ends, limit=400)[0] for ends in itertools.pairwise(edges)]
    truth = math.fsum(parts) / (NOISE * math.sqrt(2 * math.pi))
    assert hockey_stick(first, second, 0.1) == pytest.approx(truth, abs=1e-8)


@pytest.mark.parametrize("batches", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_two_steps_agree_with_a_product_grid(batches: Callable[[tuple[float, ...]], Mixture], epsilon: float) -> None:
    pair = worst_case_neighbours(5)[3]
    first, second = batches(pair.first), batches(pair.second)
    grid = numpy.linspace(-6 - 8 * NOISE, 6 + 8 * NOISE, 1501)
    cell = (grid[1] - grid[0]) / (NOISE * math.sqrt(2 * math.pi))
    one, other = numpy.exp(first.log_density(grid)), numpy.exp(second.log_density(grid))
    surplus = numpy.maximum(numpy.outer(one, one) - math.exp(epsilon) * numpy.outer(other, other), 0.0)
    assert composed_hockey_stick(first, second, epsilon, 2) == pytest.approx(surplus.sum() * cell**2, abs=3e-5)


def test_more_than_two_steps_are_refused() -> None:
    with pytest.raises(ValueError, match="steps must be 1 or 2"):
        composed_hockey_stick(normal(1.0, 1.0), normal(0.0, 1.0), 0.0, 3)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_fixed_size_batches_attain_the_pair_and_never_exceed_it(epsilon: float) -> None:
    pair = (binomial_shifts(1, 3 / 6, NOISE / 2), normal(0.0, NOISE / 2))
    bound = max(hockey_stick(*pair, epsilon), hockey_stick(*pair[::-1], epsilon))
    assert worst(BATCHES["fixed size"], Relation.ADD_REMOVE, epsilon) == pytest.approx(bound, abs=1e-13)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_fixed_size_batches_attain_the_replace_one_profile_and_never_exceed_it(epsilon: float) -> None:
    inner = math.log1p(math.expm1(epsilon) / 0.5)
    profile = 0.5 * gaussian_profile(inner, 2.0, NOISE)
    assert worst(BATCHES["fixed size"], Relation.REPLACE_ONE, epsilon) == pytest.approx(profile, abs=1e-13)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.5])
def test_batches_with_replacement_attain_the_binomial_mixture_and_never_exceed_it(epsilon: float) -> None:
    bound = hockey_stick(binomial_shifts(3, 1 / 6, NOISE / 2), normal(0.0, NOISE / 2), epsilon)
    assert worst(BATCHES["with replacement"], Relation.ADD_REMOVE, epsilon) == pytest.approx(bound, abs=1e-13)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_poisson_batches_attain_their_pair_at_half_the_noise_of_fixed_size(epsilon: float) -> None:
    bound = hockey_stick(binomial_shifts(1, 0.35, NOISE), normal(0.0, NOISE), epsilon)
    assert worst(BATCHES["Poisson"], Relation.ADD_REMOVE, epsilon) == pytest.approx(bound, abs=1e-13)


def test_a_cap_that_never_binds_leaves_poisson_batches_alone() -> None:
    gradients = (-1.0, 0.25, 0.5, 1.0)
    capped, free = truncated_poisson_batches(gradients, 0.35, 4, NOISE), poisson_batches(gradients, 0.35, NOISE)
    assert capped.means == free.means
    assert capped.weights == pytest.approx(free.weights, abs=1e-15)


def test_a_cap_of_one_keeps_either_of_two_records_evenly() -> None:
    capped = truncated_poisson_batches((1.0, -1.0), 0.4, 1, NOISE)
    assert capped.means == (-1.0, 0.0, 1.0)
    assert capped.weights == pytest.approx((0.24 + 0.08, 0.36, 0.24 + 0.08), abs=1e-15)


def test_a_binding_cap_lets_add_remove_cost_more_than_zero_out() -> None:
    capped = BATCHES["truncated Poisson"]
    assert worst(capped, Relation.ADD_REMOVE, 0.3) > 1.2 * worst(capped, Relation.ZERO_OUT, 0.3)


def test_draws_with_replacement_are_counted_one_by_one() -> None:
    mixture = with_replacement_batches((1.0, -1.0, -1.0), 2, NOISE)
    assert mixture.means == (-2.0, 0.0, 2.0)
    assert mixture.weights == pytest.approx((4 / 9, 4 / 9, 1 / 9), abs=1e-15)


def test_neighbours_differ_in_one_record_and_cover_every_relation() -> None:
    pairs = worst_case_neighbours(6)
    assert {pair.relation for pair in pairs} == set(Relation)
    for pair in pairs:
        assert len(pair.first) == 6
        assert pair.first[:5] == pair.second[:5]
        assert len(pair.second) == (5 if pair.relation is Relation.ADD_REMOVE else 6)
    hardest = Neighbours(relation=Relation.ADD_REMOVE, first=(*[-1.0] * 5, 1.0), second=(-1.0,) * 5)
    assert hardest in pairs


def test_a_mixture_that_is_no_distribution_is_refused() -> None:
    with pytest.raises(ValueError, match="add up to 1"):
        Mixture(means=(0.0, 1.0), weights=(0.5, 0.6), deviation=1.0)
