"""Gauss-Legendre quadrature in mpmath on panels that are laid where the integrand matters.

Convergence on one panel is geometric: if the integrand is analytic inside the Bernstein ellipse whose semi-axes add up
to rho half-widths, a rule of N nodes errs by O(rho^(-2 N)). `graded_panels` keeps every panel at least half its own
width away from the nearest branch point, which makes rho at least 1 + sqrt(2).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import lru_cache

import numpy
from mpmath import mp, mpf
from numpy.typing import NDArray

Panel = tuple[float, float]
Grid = NDArray[numpy.float64]

RHO = 1 + math.sqrt(2)
SAFETY_DIGITS = 12


def node_count(digits: int) -> int:
    """Nodes N with rho^(-2 N) <= 10^(-digits - 4); the 4 digits cover the growth of a Gaussian off the real axis."""
    return math.ceil((digits + 4) * math.log(10) / (2 * math.log(RHO)))


@lru_cache(maxsize=64)
def gauss_legendre(count: int, precision: int) -> tuple[tuple[mpf, mpf], ...]:
    """Nodes x_i and weights 2 / ((1 - x_i^2) P'(x_i)^2) of the `count`-node rule on [-1, 1], at `precision` bits."""
    with mp.workprec(precision + 20):
        upper = [_legendre_root(count, index) for index in range(1, count // 2 + 1)]
        middle = [_legendre_root(count, count // 2 + 1)] if count % 2 else []
        lower = [(-node, weight) for node, weight in reversed(upper)]
        return tuple(upper + middle + lower)


def _legendre_root(count: int, index: int) -> tuple[mpf, mpf]:
    """The index-th root of P_count, counted from +1 downwards, with its weight; Newton from Tricomi's start."""
    node = mp.cos(mp.pi * (index - mpf(1) / 4) / (count + mpf(1) / 2))
    if 2 * index == count + 1:
        node = mpf(0)
    for _ in range(4 + mp.prec.bit_length()):
        value, slope = _legendre(count, node)
        step = value / slope
        node -= step
        if abs(step) < mpf(2) ** (-mp.prec // 2 - 5):
            break
    _, slope = _legendre(count, node)
    return node, 2 / ((1 - node**2) * slope**2)


def _legendre(count: int, node: mpf) -> tuple[mpf, mpf]:
    """P_count and its derivative by the three-term recurrence."""
    before, now = mpf(1), node
    for degree in range(2, count + 1):
        before, now = now, ((2 * degree - 1) * node * now - (degree - 1) * before) / degree
    return now, count * (node * now - before) / (node**2 - 1)


def integrate(function: Callable[[mpf], mpf], panels: list[Panel], count: int) -> mpf:
    """Sum of the Gauss-Legendre rule with `count` nodes over all panels, at the current working precision."""
    rule = gauss_legendre(count, mp.prec)
    total = mpf(0)
    for left, right in panels:
        half, middle = (mpf(right) - mpf(left)) / 2, (mpf(right) + mpf(left)) / 2
        total += half * mp.fsum(weight * function(middle + half * node) for node, weight in rule)
    return total


def active_intervals(log_size: Callable[[Grid], Grid], window: Panel, step: float, digits: int) -> list[Panel]:
    """The parts of `window` where exp(log_size) is within 10^(-digits - SAFETY_DIGITS) of its greatest value.

    `log_size` need only be right to a factor that is small beside 10^SAFETY_DIGITS, and may not have peaks narrower
    than `step`. The tails that are left out fall at least like a Gaussian of unit width, so what they hold is below the
    threshold as well. The left end of the window may be active (a half line starts there); an active right end means
    that the window was chosen too small, and is an error.
    """
    left, right = window
    grid = numpy.linspace(left, right, math.ceil((right - left) / step) + 2)
    size = log_size(grid)
    active = size > size.max() - (digits + SAFETY_DIGITS) * math.log(10)
    if active[-1]:
        raise ValueError(f"the window {window} cuts off mass on the right: widen it.")
    edges = numpy.flatnonzero(numpy.diff(numpy.concatenate(([False], active, [False])).astype(numpy.int8)))
    starts, ends = numpy.maximum(edges[0::2] - 1, 0), numpy.minimum(edges[1::2], grid.size - 1)
    return _merged([(float(grid[start]), float(grid[end])) for start, end in zip(starts, ends, strict=True)])


def _merged(intervals: list[Panel]) -> list[Panel]:
    """The same set with touching or overlapping intervals joined."""
    joined: list[Panel] = []
    for left, right in intervals:
        if joined and left <= joined[-1][1]:
            joined[-1] = (joined[-1][0], right)
        else:
            joined.append((left, right))
    return joined


def graded_panels(interval: Panel, widest: Callable[[float], float], branch_point: complex) -> list[Panel]:
    """Cuts `interval` in two until every panel is narrow enough.

    A panel is accepted when its half-width is below both its distance to the branch point (or its conjugate) and
    `widest(d)`, where d is the distance along the real axis from the panel to the branch point.
    """
    left, right = interval
    along = max(left - branch_point.real, branch_point.real - right, 0.0)
    if (right - left) / 2 <= min(math.hypot(along, branch_point.imag), widest(along)):
        return [interval]
    middle = (left + right) / 2
    halves = ((left, middle), (middle, right))
    return [panel for half in halves for panel in graded_panels(half, widest, branch_point)]


def even_cuts(interval: Panel, width: float) -> list[Panel]:
    """`interval` in the fewest equal parts that are no wider than `width`."""
    left, right = interval
    count = max(1, math.ceil((right - left) / width))
    ends = [left + (right - left) * index / count for index in range(count)] + [right]
    return list(itertools.pairwise(ends))
