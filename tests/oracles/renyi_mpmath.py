"""Renyi divergences of the subsampled Gaussian pair, in mpmath, to `digits` significant digits of D itself.

The pair is P = q N(1, s^2) + (1 - q) N(0, s^2) against Q = N(0, s^2). With z ~ N(0, 1) and u = exp(z/s - 1/(2 s^2)) - 1
the likelihood ratio P/Q is 1 + q u, E[u] = 0, and

    exp((a-1) D_a(P||Q)) - 1 = E[excess(a, q u)],        exp((a-1) D_a(Q||P)) - 1 = E[excess(1-a, q u)],
    excess(power, w) = (1 + w)^power - 1 - power w  >=  0.

Working with the excess keeps D relative even where D is 1e-20: it is the working precision that absorbs the
cancellation. Integrands are analytic but for the branch points 1 + q u = 0, at z = s log((1-q)/q) + 1/(2s) +- i pi s.
Between the real axis and the branch points |1 + q u| is at most its value at Re z, so no integrand is larger off the
real axis than on it times a Gaussian's exp(y^2/2) (and, for negative powers, by what `_panels` allows for).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy
from mpmath import mp, mpf

from .quadrature import SAFETY_DIGITS, Grid, Panel, active_intervals, even_cuts, graded_panels, integrate, node_count

Pair = tuple[float, float]
LogSize = Callable[[Grid], Grid]

DIGITS = 25
WIDEST_HALF_PANEL = 4.0


@lru_cache(maxsize=65536)
def subsampled_gaussian(q: float, deviation: float, order: float, digits: int = DIGITS) -> mpf:
    """D_order(P||Q): the finite binomial sum for integer orders, quadrature for the others."""
    with mp.workdps(_working_digits(q, deviation, order, digits)):
        whole = float(order).is_integer()
        excess = _binomial_excess(q, deviation, int(order)) if whole else _excess(q, deviation, order, digits)
        return mp.log1p(excess) / (mpf(order) - 1)


@lru_cache(maxsize=65536)
def reverse_subsampled_gaussian(q: float, deviation: float, order: float, digits: int = DIGITS) -> mpf:
    """D_order(Q||P), by quadrature at every order."""
    with mp.workdps(_working_digits(q, deviation, order, digits)):
        return mp.log1p(_excess(q, deviation, 1 - mpf(order), digits)) / (mpf(order) - 1)


def subsampled_gaussian_by_quadrature(q: float, deviation: float, order: float, digits: int = DIGITS) -> mpf:
    """D_order(P||Q) by quadrature at every order: the second opinion on the binomial sum."""
    with mp.workdps(_working_digits(q, deviation, order, digits)):
        return mp.log1p(_excess(q, deviation, order, digits)) / (mpf(order) - 1)


@lru_cache(maxsize=65536)
def replace_one(q: float, deviation: float, order: float, digits: int = DIGITS) -> mpf:
    """D_order of the replace-one profile: exp((a-1)D) = 1 + a(a-1) int_0^inf (e^((a-1)e) + e^(-a e)) delta(e) de.

    delta(e) = q [Phi(1/(2s) - e0 s) - exp(e0) Phi(-1/(2s) - e0 s)] with e0 = log1p(expm1(e)/q). The variable of
    integration is z = s e0 + 1/(2s), in which the Gaussian profile is Phi(1/s - z) - exp(e0) Phi(-z), and in which
    exp(e) = 1 + q u =: t and de = q exp(e0) / (s t) dz.
    """
    with mp.workdps(_working_digits(q, deviation, order, digits)):
        sampling, scale, exact_order = mpf(q), mpf(deviation), mpf(order)
        start = 1 / (2 * scale)

        def integrand(distance: mpf) -> mpf:
            z, odds = start + distance, mp.exp(distance / scale)
            ratio = 1 + sampling * (odds - 1)
            profile = sampling * (mp.ncdf(1 / scale - z) - odds * mp.ncdf(-z))
            return (ratio ** (exact_order - 1) + ratio**-exact_order) * profile * sampling * odds / (scale * ratio)

        panels = _moved(_profile_panels(q, deviation, order, digits), 1 / (2 * deviation))
        # Without the six extra digits the worst of 200 points was right to 25 digits and no more.
        integral = integrate(integrand, panels, node_count(digits + 6))
        return mp.log1p(exact_order * (exact_order - 1) * integral) / (exact_order - 1)


def replace_one_by_excess(q: float, deviation: float, order: float, digits: int = DIGITS) -> mpf:
    """The same as `replace_one` without its profile: exp((a-1)D) - 1 = E[excess(a, q u) + excess(1-a, q u); u > 0].

    It follows from int_1^inf G''(v) (r - v)^+ dv = G(r) - G(1) - G'(1)(r - 1) for r > 1, with G(v) = (1 + q(v-1))^a and
    G(v) = (1 + q(v-1))^(1-a), after the order of integration is exchanged.
    """
    with mp.workdps(_working_digits(q, deviation, order, digits)):
        upper = _excess(q, deviation, order, digits, upper_half=True)
        lower = _excess(q, deviation, 1 - mpf(order), digits, upper_half=True)
        return mp.log1p(upper + lower) / (mpf(order) - 1)


def points(count: int) -> list[tuple[float, float, float]]:
    """`count` triples (q, sigma, order), sigma = 2 s: the 45 corners, then a Kronecker sequence in logarithms.

    q is in 1e-7..0.9, sigma in 0.3..100 and order in 1.05..1024, each log-uniform. Integer and fractional orders
    alternate. Successive points are multiples (mod 1) of the inverse powers of the root of x^4 = x + 1, which fill the
    cube evenly for every count.
    """
    corners = list(itertools.product((1e-7, 1e-3, 0.9), (0.3, 2.0, 100.0), (1.05, 2.0, 2.5, 1023.5, 1024.0)))
    root = 1.2207440846057596
    design = [_design_point(index, [(0.5 + index / root**axis) % 1.0 for axis in (1, 2, 3)]) for index in range(count)]
    return (corners + design)[:count]


def _design_point(index: int, place: list[float]) -> tuple[float, float, float]:
    """The point at `place` in the unit cube; every second one gets an integer order."""
    box = ((1e-7, 0.9), (0.3, 100.0), (1.05, 1024.0))
    q, sigma, order = (low * (high / low) ** share for (low, high), share in zip(box, place, strict=True))
    return q, sigma, float(max(2, round(order))) if index % 2 else order


def _working_digits(q: float, deviation: float, order: float, digits: int) -> int:
    """Digits to carry: the excess is about a(a-1) q^2 min(1, 1/s^2) beside terms of order 1; exponents reach (a/s)^2.

    Rounded up to a multiple of ten, so that few different Gauss-Legendre rules have to be computed.
    """
    cancelled = -2 * math.log10(q) + 2 * max(0.0, math.log10(deviation)) + max(0.0, -math.log10(order - 1))
    exponents = 2 * max(0.0, math.log10(order / deviation))
    return 10 * math.ceil((digits + cancelled + exponents + 8) / 10)


def _binomial_excess(q: float, deviation: float, order: int) -> mpf:
    """sum_(k=2..a) C(a,k) (1-q)^(a-k) q^k (g^(k(k-1)/2) - 1) with g = exp(1/s^2); every term is positive."""
    sampling = mpf(q)
    odds = sampling / (1 - sampling)
    growth = mp.exp(1 / mpf(deviation) ** 2)
    chance, tilt, growth_power = (1 - sampling) ** order * odds * order, mpf(1), mpf(1)
    total = mpf(0)
    for picked in range(2, order + 1):
        chance = chance * odds * (order - picked + 1) / picked
        growth_power *= growth
        tilt *= growth_power
        total += chance * (tilt - 1)
    return total


def _excess(q: float, deviation: float, power: float | mpf, digits: int, *, upper_half: bool = False) -> mpf:
    """E[(1 + q u)^power - 1 - power q u] by Gauss-Legendre panels, or its part on u > 0, where z > 1/(2s)."""
    sampling, scale, exponent = mpf(q), mpf(deviation), mpf(power)
    start = 1 / (2 * scale) if upper_half else mpf(0)
    slope, shift = 1 / scale, start / scale - 1 / (2 * scale**2)
    unsampled, linear = 1 - sampling, exponent * sampling
    exp, log = mp.exp, mp.log

    def integrand(distance: mpf) -> mpf:
        odds = exp(distance * slope + shift)
        excess = exp(exponent * log(unsampled + sampling * odds)) - 1 - linear * (odds - 1)
        return excess * exp(-((start + distance) ** 2) / 2)

    panels = _excess_panels(q, deviation, float(power), digits, start=float(start) if upper_half else -math.inf)
    shifted = _moved(panels, float(start))
    return integrate(integrand, shifted, node_count(digits)) / mp.sqrt(2 * mp.pi)


def _excess_panels(q: float, deviation: float, power: float, digits: int, start: float) -> list[Panel]:
    """Panels that hold all but 10^(-digits) of the excess; log-sizes in doubles, right to a few powers of ten."""

    def log_size(z: Grid) -> Grid:
        log_odds = z / deviation - 1 / (2 * deviation**2)
        log_ratio = numpy.logaddexp(math.log1p(-q), math.log(q) + log_odds)
        small_gap = numpy.log(numpy.abs(numpy.expm1(numpy.minimum(log_odds, 1.0))) + 1e-2)
        odds_gap = numpy.where(log_odds > 1, log_odds, small_gap)
        log_linear = math.log(abs(power) * q) + odds_gap
        small = 2 * log_linear + math.log(abs((power - 1) / power))
        large = numpy.maximum(numpy.maximum(power * log_ratio, 0.0), log_linear)
        return numpy.where(log_linear < -2, small, large) - z**2 / 2

    reach = _reach(digits)
    kink = _branch_point(q, deviation).real
    leftmost = -reach - min(max(-power, 0.0) / deviation, abs(kink) + deviation * (2 + math.log(1 + abs(power))))
    window = (max(start, leftmost), max(power, 1.0, start * deviation) / deviation + reach)
    return _panels(log_size, window, (q, deviation), power, digits)


def _profile_panels(q: float, deviation: float, order: float, digits: int) -> list[Panel]:
    """Panels for the profile's integral on z > 1/(2s), from log Phi(1/s - z) <= -(z - 1/s)^2 / 2 for z > 1/s."""

    def log_size(z: Grid) -> Grid:
        log_odds = z / deviation - 1 / (2 * deviation**2)
        log_ratio = numpy.logaddexp(math.log1p(-q), math.log(q) + log_odds)
        log_tail = -(numpy.maximum(z - 1 / deviation, 0.0) ** 2) / 2
        return numpy.maximum((order - 2) * log_ratio, -(order + 1) * log_ratio) + log_odds + log_tail

    window = (1 / (2 * deviation), max(order, 1.0) / deviation + _reach(digits))
    return _panels(log_size, window, (q, deviation), -order, digits)


def _panels(log_size: LogSize, window: Panel, pair: Pair, power: float, digits: int) -> list[Panel]:
    """The active part of `window` in panels that suit an integrand with the factor (1 + q u)^power."""
    deviation = pair[1]
    branch_point = _branch_point(*pair)

    def widest(along: float) -> float:
        """A negative power grows like exp(|power| sech^2(d/(2s)) y^2 / (8 s^2)) off the axis: narrow panels for it."""
        if power > 0:
            return WIDEST_HALF_PANEL
        narrowed = 8 * deviation * math.cosh(min(along / (2 * deviation), 300.0)) / math.sqrt(1 - power)
        return min(WIDEST_HALF_PANEL, narrowed)

    intervals = active_intervals(log_size, window, 0.25 if power > 0 else 0.05, digits)
    parts = [part for interval in intervals for part in even_cuts(interval, 2 * WIDEST_HALF_PANEL)]
    return [panel for part in parts for panel in graded_panels(part, widest, branch_point)]


def _moved(panels: list[Panel], start: float) -> list[Panel]:
    """Panels for the distance from `start`: an integral from 1/(2s) must begin right there, not at the next double."""
    return [(left - start, right - start) for left, right in panels]


def _branch_point(q: float, deviation: float) -> complex:
    """Where 1 + q u = 0 nearest to the real axis."""
    return complex(deviation * (math.log1p(-q) - math.log(q)) + 1 / (2 * deviation), math.pi * deviation)


def _reach(digits: int) -> float:
    """A standard normal density at this distance is below 10^(-digits - SAFETY_DIGITS - 20) of its top."""
    return math.sqrt(2 * math.log(10) * (digits + SAFETY_DIGITS + 20))
