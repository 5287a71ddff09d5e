"""The paper's Taylor bound [thm:Renyi_bound] with its remainder [app:Renyi_bound], kept as its reproduction.

The coefficients M_{σ,k} [eq:M_def] cancel catastrophically in doubles (σ=20, k=16 already errs on the unsound side), so
they are computed in multiple precision until the a-priori error bound is far below the value. Everything after that
is a sum of a few terms in the same precision, rounded up when it leaves it.

Formal guarantees: ``log_excess_taylor`` is at least the exact log excess of :mod:`lrdp.accounting.renyi` for every
order and every number of terms m ≥ 3, and equal to it for whole orders below m, where the remainder vanishes.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import ceil, comb

import mpmath
import numpy as np

from lrdp.accounting.renyi import FloatArray

_GUARD_BITS = 80  # relative accuracy of every coefficient: 2^-80
_ROUND_UP = 1e-13  # covers the rounding of the sums above and of the logarithm to a double


def log_excess_taylor(probability: float, deviation: float, orders: FloatArray, terms: int) -> FloatArray:
    """log of the upper bound on A - 1 for each order; ``terms`` is the paper's m ≥ 3."""
    highest = max(ceil(float(orders.max())), terms) + 2
    coefficients, bits = _coefficients(deviation, highest)
    with mpmath.workprec(bits):
        bounds = [_excess(mpmath.mpf(probability), order, terms, coefficients) for order in orders.tolist()]
        logs = np.array([float(mpmath.log(bound)) for bound in bounds])
    rounded: FloatArray = logs + _ROUND_UP * (1 + np.abs(logs))
    return rounded


def _excess(q: mpmath.mpf, order: float, terms: int, coefficients: tuple[mpmath.mpf, ...]) -> mpmath.mpf:
    """Σ_{k=2..m-1} q^k/k! Π_{j<k}(order-j) M_k + |R|."""
    alpha = mpmath.mpf(order)
    main = mpmath.fsum(mpmath.binomial(alpha, k) * q**k * coefficients[k] for k in range(2, terms))
    falling = abs(mpmath.rf(alpha - terms + 1, terms))  # |Π_{j<m} (order - j)|: zero for whole orders below m
    if falling == 0:
        return main
    return main + q**terms * falling * _remainder(q, alpha, terms, coefficients)


def _remainder(q: mpmath.mpf, alpha: mpmath.mpf, terms: int, coefficients: tuple[mpmath.mpf, ...]) -> mpmath.mpf:
    first = _even_bound(terms, coefficients) / mpmath.factorial(terms)
    if alpha <= terms:
        return first * (1 - q) ** (alpha - terms)
    beyond = int(mpmath.ceil(alpha)) - terms
    # (b)!/((b-l)!(m+l)!) = C(b,l) l!/(m+l)!
    ladder = mpmath.fsum(
        q**step * comb(beyond, step) * _even_bound(step + terms, coefficients) / mpmath.rf(step + 1, terms)
        for step in range(beyond + 1)
    )
    return ladder + first


def _even_bound(index: int, coefficients: tuple[mpmath.mpf, ...]) -> mpmath.mpf:
    """The paper's B̃: the moment itself where even, the geometric mean of its neighbours where odd."""
    if index % 2 == 0:
        return coefficients[index]
    return mpmath.sqrt(coefficients[index - 1] * coefficients[index + 1])


@lru_cache(maxsize=256)
def _coefficients(deviation: float, highest: int) -> tuple[tuple[mpmath.mpf, ...], int]:
    """M_0 … M_highest and the working precision that makes each of them good to 2^-80.

    With e_l = exp(l(l-1)/(2s²)), e_0 = e_1 = 1, M_k is the k-th forward difference of e at 0, so one difference table
    gives all of them with subtractions alone.
    """
    bits = 128 + 2 * highest
    while True:
        with mpmath.workprec(bits):
            row = [mpmath.exp(mpmath.mpf(n * (n - 1)) / (2 * mpmath.mpf(deviation) ** 2)) for n in range(highest + 1)]
            coefficients = _forward_differences(row)
            # Each difference doubles the error of the largest entry it has seen.
            certain = all(
                mpmath.ldexp(row[k], k + 4 + _GUARD_BITS - bits) <= abs(coefficients[k]) for k in range(2, highest + 1)
            )
        if certain:
            return coefficients, bits
        bits *= 2


def _forward_differences(row: list[mpmath.mpf]) -> tuple[mpmath.mpf, ...]:
    leading = []
    while row:
        leading.append(row[0])
        row = [after - before for before, after in pairwise(row)]
    return tuple(leading)
