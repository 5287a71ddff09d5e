"""Exact Rényi moments of a Gaussian mixture against its base, for all orders at once.

Everything here returns ``log(A - 1)`` with ``A = E_Q[(P/Q)^order]``, the *log excess*, because A itself rounds to 1
for small sampling probabilities. Every term summed is non-negative, so nothing cancels; the result is rounded up once,
by the caller (:func:`lrdp.accounting.pairs.renyi_divergence`).

The pair is P = (1-q) N(0, s²) + q N(1, s²) against Q = N(0, s²) with s = ``deviation`` and q = ``probability``: the
right-hand side of [eq:Renyi_ub] with s = σ/2. With u = expm1(z/s - 1/(2s²)) and z ~ N(0,1), P/Q - 1 = q·u.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import leggauss
from numpy.typing import NDArray
from scipy.special import gammaln

FloatArray = NDArray[np.float64]

_TAIL = 9.5  # standard deviations kept on either side: exp(-9.5²/2) is below 1e-19 of any term that matters
_STEP = 0.4  # trapezoid step over min(s, 1): error exp(-2π²/0.4) < 1e-21, the strip of analyticity being πs wide
_SERIES_BELOW = 0.005  # |power · x| below which (1+x)^power - 1 - power·x is summed as its binomial series
_SERIES_TERMS = 8  # each term is at most 0.007 of the one before
_CHUNK = 1 << 20  # matrix cells held at once
_LEGENDRE = leggauss(20)
_LOG_LARGEST = 600.0  # where exp() is left for log space, far from overflow


def log_excess_sampled(probability: float, deviation: float, orders: FloatArray) -> FloatArray:
    """log(A - 1) of the subsampled pair for every order above 1."""
    if probability == 1.0:
        return log_expm1(orders * (orders - 1) / (2 * deviation**2))
    result = np.empty_like(orders)
    is_whole = orders == np.floor(orders)
    if is_whole.any():
        result[is_whole] = _binomial_sum(probability, deviation, tuple(orders[is_whole].astype(int).tolist()))
    for group in _groups(np.where(is_whole, 0.0, orders)):
        nodes, log_weights = _trapezoid(deviation, float(orders[group].max()))
        result[group] = _integrate(probability, deviation, orders[group], nodes, log_weights)
    return result


def log_excess_replaced(probability: float, deviation: float, orders: FloatArray) -> FloatArray:
    """log(A - 1) of the replace-one pair: losses above 0 as in the subsampled pair, mirrored below 0, the rest at 0.

    So A - 1 is the integral over u > 0 of the subsampled integrand at the powers ``order`` and ``1 - order``.
    """
    result = np.empty_like(orders)
    for group in _groups(orders):
        nodes, log_weights = _panels(deviation, float(orders[group].max()))
        forward = _integrate(probability, deviation, orders[group], nodes, log_weights)
        backward = _integrate(probability, deviation, 1 - orders[group], nodes, log_weights)
        result[group] = np.logaddexp(forward, backward)
    return result


def log_expm1(x: FloatArray) -> FloatArray:
    """log(exp(x) - 1) for x > 0 of any size."""
    large = x > 30.0
    return np.where(large, x + np.log1p(-np.exp(-np.maximum(x, 30.0))), np.log(np.expm1(np.minimum(x, 30.0))))


def _binomial_sum(probability: float, deviation: float, orders: tuple[int, ...]) -> FloatArray:
    """A - 1 = Σ_{k=2..order} C(order,k) (1-q)^{order-k} q^k expm1(k(k-1)/(2s²)), all orders in one ragged row."""
    k, rest, log_binomial, starts, sizes = _binomial_table(orders)
    terms = log_binomial + k * np.log(probability) + rest * np.log1p(-probability)
    terms += log_expm1(k * (k - 1) / (2 * deviation**2))
    peaks = np.maximum.reduceat(terms, starts)
    total: FloatArray = peaks + np.log(np.add.reduceat(np.exp(terms - np.repeat(peaks, sizes)), starts))
    return total


@lru_cache(maxsize=64)
def _binomial_table(orders: tuple[int, ...]) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.int64], list[int]]:
    sizes = [order - 1 for order in orders]
    k = np.concatenate([np.arange(2.0, order + 1) for order in orders])
    order = np.repeat(np.array(orders, dtype=np.float64), sizes)
    log_binomial = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return k, order - k, log_binomial, starts, sizes


def _groups(orders: FloatArray) -> list[NDArray[np.int64]]:
    """Indices of the orders above 1, in groups of like size: high orders need far more nodes than low ones."""
    scale = np.where(orders > 1, np.floor(np.log(np.maximum(orders, 1.5)) / np.log(8)), -1.0)
    return [np.flatnonzero(scale == value) for value in np.unique(scale[scale >= 0])]


def _trapezoid(deviation: float, highest: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and log weights under N(0,1) on the whole line, from the bulk to the peak near z = order/s."""
    step = _STEP * min(deviation, 1.0)
    nodes = np.arange(-_TAIL, highest / deviation + _TAIL + step, step)
    return nodes, np.log(step / np.sqrt(2 * np.pi)) - nodes**2 / 2


def _panels(deviation: float, highest: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and log weights under N(0,1) on the half line u > 0, that is z > 1/(2s): Gauss-Legendre in panels."""
    points, weights = _LEGENDRE
    start = 1 / (2 * deviation)
    width = min(deviation, 1.0)
    count = int(np.ceil(((highest + 1) / deviation + _TAIL) / width))
    left = start + width * np.arange(count)
    nodes = (left[:, None] + width * (points + 1) / 2).ravel()
    log_weights = np.log(np.tile(weights * width / 2, count)) - nodes**2 / 2 - np.log(2 * np.pi) / 2
    return nodes, log_weights


def _integrate(
    probability: float, deviation: float, powers: FloatArray, nodes: FloatArray, log_weights: FloatArray
) -> FloatArray:
    """log ∫ [(1+x)^power - 1 - power·x] over the nodes, x = q·u; powers above 1 or below 0."""
    exponent = nodes / deviation - 1 / (2 * deviation**2)
    excess = probability * np.expm1(np.minimum(exponent, _LOG_LARGEST))
    log_ratio = np.where(exponent > _LOG_LARGEST, np.log(probability) + exponent, np.log1p(excess))
    rows = max(1, _CHUNK // len(nodes))
    chunks = [
        _log_sum(_log_gap(powers[i : i + rows, None], log_ratio, excess) + log_weights)
        for i in range(0, len(powers), rows)
    ]
    return np.concatenate(chunks)


def _log_gap(power: FloatArray, log_ratio: FloatArray, excess: FloatArray) -> FloatArray:
    """log[(1+x)^power - 1 - power·x] ≥ -∞, without cancellation for small x and without overflow for large."""
    scaled = power * log_ratio
    linear = power * excess
    is_small = np.abs(linear) < _SERIES_BELOW
    is_large = np.maximum(scaled, log_ratio) > _LOG_LARGEST
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        gap = np.log(np.expm1(np.minimum(scaled, _LOG_LARGEST)) - linear)
        if is_small.any():
            gap = np.where(is_small, _log_series(power, excess), gap)
        if is_large.any():
            gap = np.where(is_large, _log_dominant(power, scaled, log_ratio), gap)
    return gap


def _log_series(power: FloatArray, excess: FloatArray) -> FloatArray:
    """The log of Σ_{k≥2} C(power, k) x^k, by Horner's rule; read only where |power·x| is small."""
    x = np.clip(excess, -_SERIES_BELOW, _SERIES_BELOW)
    coefficients = [power * (power - 1) / 2]
    for k in range(3, _SERIES_TERMS):
        coefficients.append(coefficients[-1] * (power - k + 1) / k)
    total = coefficients[-1]
    for coefficient in coefficients[-2::-1]:
        total = coefficient + x * total
    return np.asarray(np.log(total) + 2 * np.log(np.abs(x)))


def _log_dominant(power: FloatArray, scaled: FloatArray, log_ratio: FloatArray) -> FloatArray:
    """Beyond exp's range one term dominates: (1+x)^power where power > 1, |power|·x where power < 0."""
    rising = scaled + np.log1p((power - 1) * np.exp(-scaled) - power * np.exp(log_ratio - scaled))
    return np.where(power > 1, rising, np.log(np.abs(power)) + log_ratio)


def _log_sum(terms: FloatArray) -> FloatArray:
    peak = terms.max(axis=1, keepdims=True)
    total: FloatArray = (peak + np.log(np.exp(terms - peak).sum(axis=1, keepdims=True)))[:, 0]
    return total
