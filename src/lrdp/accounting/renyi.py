"""Exact Rényi moments of a Gaussian mixture against its base, for many mechanisms and all orders at once.

Everything here returns ``log(A - 1)`` with ``A = E_Q[(P/Q)^order]``, the *log excess*, because A itself rounds to 1
for small sampling probabilities: one row per mechanism, one column per order. Every term summed is non-negative, so
nothing cancels; the result is rounded up once, by the caller (:func:`lrdp.accounting.pairs.renyi_divergence`).

The pair is P = (1-q) N(0, s²) + q N(1, s²) against Q = N(0, s²) with s = ``deviation`` and q = ``probability``: the
right-hand side of [eq:Renyi_ub] with s = σ/2. With u = expm1(z/s - 1/(2s²)) and z ~ N(0,1), P/Q - 1 = q·u.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import gammaln

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.int64]
Rows = IndexArray | slice
Divergence = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
QuadratureNodes = Callable[[FloatArray, float], tuple[FloatArray, FloatArray]]

_TAIL = 9.5  # standard deviations kept on either side: exp(-9.5²/2) is below 1e-19 of any term that matters
_STEP = 0.4  # trapezoid step over min(s, 1): error exp(-2π²/0.4) < 1e-21, the strip of analyticity being πs wide
_SERIES_BELOW = 0.001  # |x|·max(|power|, 1) below which (1+x)^power - 1 - power·x is summed as its series
_SERIES_INDEX = np.arange(1.0, 6.0)  # up to the fifth power of x, each term at most 0.0014 of the one before
_CHUNK = 1 << 20  # cells held at once
_NODES_PER_WIDTH = 20
_LEGENDRE = leggauss(_NODES_PER_WIDTH)
_LEAST_DEVIATION = 0.02  # σ below 0.04: one step alone costs ε in the hundreds
_MOST_NODES = 1 << 16  # order over s² up to which integrals are taken: beyond it, the divergence is above 32,000
_LOG_LARGEST = 600.0  # where exp() is left for log space, far from overflow
_LARGEST_EXPONENT = 690.0  # q·exp() of it is beyond exp(600) for every q above 1e-39, and fits a double


def log_excess_sampled(probability: FloatArray, deviation: FloatArray, orders: FloatArray) -> FloatArray:
    """log(A - 1) of each subsampled pair for every order above 1."""
    return _unless_bare(_sampled, probability, deviation, orders)


def log_excess_replaced(probability: FloatArray, deviation: FloatArray, orders: FloatArray) -> FloatArray:
    """log(A - 1) of each replace-one pair.

    Its losses above 0 are those of the subsampled pair, mirrored below 0, and the rest sits at 0. So A - 1 is the
    integral over u > 0 of the subsampled integrand at the powers ``order`` and ``1 - order``.
    """
    return _unless_bare(_replaced, probability, deviation, orders)


def _unless_bare(kernel: Divergence, probability: FloatArray, deviation: FloatArray, orders: FloatArray) -> FloatArray:
    """The kernel's rows; where every record is drawn, those of the unsampled Gaussian, order/(2s²), instead.

    It bounds every sampled pair too, and stands in for it where there is next to no noise: what sampling then hides
    is not worth millions of nodes.
    """
    bare = (probability == 1.0) | (deviation < _LEAST_DEVIATION)
    if not bare.any():
        return kernel(probability, deviation, orders)
    result = _bare(deviation, orders)
    if not bare.all():
        result[~bare] = kernel(probability[~bare], deviation[~bare], orders)
    return result


def _bare(deviation: FloatArray, orders: FloatArray) -> FloatArray:
    return log_expm1(orders * (orders - 1) / (2 * deviation[:, None] ** 2))


def _sampled(probability: FloatArray, deviation: FloatArray, orders: FloatArray) -> FloatArray:
    result = np.empty((len(probability), len(orders)))
    is_whole = orders == np.floor(orders)
    if is_whole.any():
        result[:, is_whole] = _binomial_sum(probability, deviation, tuple(orders[is_whole].astype(int).tolist()))
    return _by_integrals(
        result,
        np.where(is_whole, 0.0, orders),
        lambda rows, group: _integrate(probability[rows], deviation[rows], orders[group], _trapezoid),
        deviation,
    )


def _replaced(probability: FloatArray, deviation: FloatArray, orders: FloatArray) -> FloatArray:
    def integral(rows: Rows, group: IndexArray) -> FloatArray:
        forward = _integrate(probability[rows], deviation[rows], orders[group], _panels)
        backward = _integrate(probability[rows], deviation[rows], 1 - orders[group], _panels)
        return np.asarray(np.logaddexp(forward, backward))

    return _by_integrals(np.empty((len(probability), len(orders))), orders, integral, deviation)


def _by_integrals(
    result: FloatArray, orders: FloatArray, integral: Callable[[Rows, IndexArray], FloatArray], deviation: FloatArray
) -> FloatArray:
    """Fill in the orders above 1; the unsampled Gaussian's where an integral would need millions of nodes."""
    for group in _groups(orders):
        is_near = orders[group].max() <= _MOST_NODES * np.minimum(deviation, 1.0) ** 2
        if is_near.all():
            result[:, group] = integral(slice(None), group)
            continue
        result[:, group] = _bare(deviation, orders[group])
        if is_near.any():
            near = np.flatnonzero(is_near)
            result[np.ix_(near, group)] = integral(near, group)
    return result


def log_expm1(x: FloatArray) -> FloatArray:
    """log(exp(x) - 1) for x > 0 of any size."""
    large = x > 30.0
    return np.where(large, x + np.log1p(-np.exp(-np.maximum(x, 30.0))), np.log(np.expm1(np.minimum(x, 30.0))))


def _binomial_sum(probability: FloatArray, deviation: FloatArray, orders: tuple[int, ...]) -> FloatArray:
    """A - 1 = Σ_{k=2..order} C(order,k) (1-q)^{order-k} q^k expm1(k(k-1)/(2s²)), all orders in one ragged row."""
    k, rest, log_binomial, starts, sizes = _binomial_table(orders)
    result = np.empty((len(probability), len(orders)))
    for rows in _chunks(len(probability), len(k)):
        q, s = probability[rows, None], deviation[rows, None]
        highest = np.arange(2.0, max(orders) + 1)
        growth = log_expm1(highest * (highest - 1) / (2 * s**2))
        terms = log_binomial + k * np.log(q) + rest * np.log1p(-q) + growth[:, k.astype(np.int64) - 2]
        peaks = np.maximum.reduceat(terms, starts, axis=1)
        sums = np.add.reduceat(np.exp(terms - np.repeat(peaks, sizes, axis=1)), starts, axis=1)
        result[rows] = peaks + np.log(sums)
    return result


@lru_cache(maxsize=64)
def _binomial_table(orders: tuple[int, ...]) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.int64], list[int]]:
    sizes = [order - 1 for order in orders]
    k = np.concatenate([np.arange(2.0, order + 1) for order in orders])
    order = np.repeat(np.array(orders, dtype=np.float64), sizes)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return k, order - k, log_binomial, starts, sizes


def _groups(orders: FloatArray) -> Iterator[NDArray[np.int64]]:
    """Indices of the orders above 1, in groups of like size: high orders need far more nodes than low ones."""
    lower = 1.0
    while lower < orders.max(initial=0.0):
        group = np.flatnonzero((orders > lower) & (orders <= 8 * lower))
        if len(group):
            yield group
        lower *= 8


def _chunks(rows: int, cells_per_row: int) -> Iterator[slice]:
    """Rows in runs that hold a bounded number of cells."""
    run = max(1, _CHUNK // cells_per_row)
    return (slice(first, first + run) for first in range(0, rows, run))


def _trapezoid(deviation: FloatArray, highest: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and log weights under N(0,1) on the whole line, from the bulk to the peak near z = order/s."""
    step = _STEP * np.minimum(deviation, 1.0)[:, None]
    count = int(np.max((highest / deviation[:, None] + 2 * _TAIL) / step)) + 2
    nodes = -_TAIL + step * np.arange(count)
    return nodes, np.log(step / np.sqrt(2 * np.pi)) - nodes**2 / 2


def _panels(deviation: FloatArray, highest: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and log weights under N(0,1) on the half line u > 0, that is z > 1/(2s): Gauss-Legendre in panels."""
    points, weights = _LEGENDRE
    width = np.minimum(deviation, 1.0)[:, None]
    count = int(np.max(((highest + 1) / deviation[:, None] + _TAIL) / width)) + 1
    offsets = (np.arange(count)[:, None] + (points + 1) / 2).ravel()
    nodes = 1 / (2 * deviation[:, None]) + width * offsets
    return nodes, np.log(np.tile(weights, count) * width / 2) - nodes**2 / 2 - np.log(2 * np.pi) / 2


def _integrate(probability: FloatArray, deviation: FloatArray, powers: FloatArray, rule: QuadratureNodes) -> FloatArray:
    """log ∫ [(1+x)^power - 1 - power·x] under N(0,1), x = q·u; powers above 1 or below 0."""
    if len(probability) == 1:
        return _integrate_rows(probability, deviation, powers, rule)
    result = np.empty((len(probability), len(powers)))
    by_size = np.argsort(deviation)  # like deviations need like numbers of nodes
    least = float(deviation.min())
    most_nodes = int(_NODES_PER_WIDTH * (np.abs(powers).max() / least + 2 * _TAIL) / min(least, 1.0)) + 1
    for rows in _chunks(len(by_size), most_nodes * len(powers)):
        chosen = by_size[rows]
        result[chosen] = _integrate_rows(probability[chosen], deviation[chosen], powers, rule)
    return result


def _integrate_rows(
    probability: FloatArray, deviation: FloatArray, powers: FloatArray, rule: QuadratureNodes
) -> FloatArray:
    nodes, log_weights = rule(deviation, float(np.abs(powers).max()))
    q, s = probability[:, None], deviation[:, None]
    exponent = nodes / s - 1 / (2 * s**2)
    excess = q * np.expm1(np.minimum(exponent, _LARGEST_EXPONENT))
    log_ratio = np.where(exponent > _LARGEST_EXPONENT, np.log(q) + exponent, np.log1p(excess))
    gap = _log_gap(powers[:, None], log_ratio[:, None, :], excess[:, None, :])
    return _log_sum(gap + log_weights[:, None, :])


def _log_gap(power: FloatArray, log_ratio: FloatArray, excess: FloatArray) -> FloatArray:
    """log[(1+x)^power - 1 - power·x] ≥ -∞, without cancellation for small x and without overflow for large."""
    scaled = power * log_ratio
    linear = power * excess
    is_small = np.abs(excess) * np.maximum(np.abs(power), 1.0) < _SERIES_BELOW
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        gap = np.log(np.expm1(np.minimum(scaled, _LOG_LARGEST)) - linear)
        if is_small.any():
            gap = np.where(is_small, _log_series(power, excess), gap)
        if max(1.0, power.max()) * log_ratio.max() > _LOG_LARGEST:
            is_large = np.maximum(scaled, log_ratio) > _LOG_LARGEST
            gap = np.where(is_large, _log_dominant(power, scaled, log_ratio), gap)
    return gap


def _log_series(power: FloatArray, excess: FloatArray) -> FloatArray:
    """The log of Σ_{k≥2} C(power, k) x^k, by Horner's rule; read only where x and power·x are small."""
    coefficients = np.cumprod((power - _SERIES_INDEX + 1) / _SERIES_INDEX, axis=-1)
    total = coefficients[..., -1:]
    for k in range(coefficients.shape[-1] - 2, 0, -1):
        total = coefficients[..., k, None] + excess * total
    return np.asarray(np.log(total * excess**2))


def _log_dominant(power: FloatArray, scaled: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Beyond exp's range one term dominates: (1+x)^power where power > 1, |power|·x where power < 0."""
    rising = scaled + np.log1p((power - 1) * np.exp(-scaled) - power * np.exp(log_ratio - scaled))
    return np.where(power > 1, rising, np.log(np.abs(power)) + log_ratio)


def _log_sum(terms: FloatArray) -> FloatArray:
    peak = terms.max(axis=-1, keepdims=True)
    total: FloatArray = (peak + np.log(np.exp(terms - peak).sum(axis=-1, keepdims=True)))[..., 0]
    return total
