"""The paper's Taylor bound [thm:Renyi_bound] with its remainder [app:Renyi_bound], by the formulas as they are printed.

M_(sigma,k) is an alternating sum that loses hundreds of digits, so the whole bound is evaluated at 400 digits and again
at twice as many, until two rounds agree.
"""

from __future__ import annotations

import math
from functools import lru_cache

from mpmath import mp, mpf

FIRST_DIGITS = 400
LAST_DIGITS = 12800
AGREED_DIGITS = 60


class PrecisionTooLowError(ArithmeticError):
    """An even moment came out negative: cancellation ate every digit."""


@lru_cache(maxsize=4096)
def taylor_bound(q: float, sigma: float, order: float, terms: int) -> mpf:
    """Upper bound on D_order(q N(1, sigma^2/4) + (1-q) N(0, sigma^2/4) || N(0, sigma^2/4)), right to 60 digits.

    [thm:Renyi_bound]: 1/(a-1) log[1 + sum_(k=2..m-1) q^k/k! (prod_(j=0..k-1) (a-j)) M_(sigma,k) + R_(a,sigma,m)(q)]
    with m = `terms` >= 3. For integer a < m the product in R has a zero factor, so R = 0 and the bound is exact.
    """
    if terms < 3:
        raise ValueError(f"terms must be at least 3, got {terms}: [thm:Renyi_bound] is stated for m >= 3.")
    digits, before = FIRST_DIGITS, None
    while digits <= LAST_DIGITS:
        with mp.workdps(digits):
            now = _attempt(q, sigma, order, terms)
            if before is not None and now is not None and abs(now - before) <= abs(now) * mpf(10) ** -AGREED_DIGITS:
                return now
        digits, before = 2 * digits, now
    raise PrecisionTooLowError(f"no agreement by {LAST_DIGITS} digits: q={q}, sigma={sigma}, order={order}, m={terms}.")


def _attempt(q: float, sigma: float, order: float, terms: int) -> mpf | None:
    """The bound at the current working precision, or None where that precision is visibly too low."""
    try:
        moments = _Moments(sigma)
        sampling, exact_order = mpf(q), mpf(order)
        series = mp.fsum(
            sampling**k / mp.factorial(k) * mp.fprod(exact_order - j for j in range(k)) * moments.moment(k)
            for k in range(2, terms)
        )
        return mp.log(1 + series + _remainder(sampling, exact_order, terms, moments)) / (exact_order - 1)
    except PrecisionTooLowError:
        return None


class _Moments:
    """M_(sigma,k) [eq:M_def] and B~_(sigma,j) for one sigma, at the working precision in force."""

    def __init__(self, sigma: float) -> None:
        self._sigma = mpf(sigma)
        self._exponentials: list[mpf] = []
        self._moments: dict[int, mpf] = {}

    def moment(self, k: int) -> mpf:
        """M_(sigma,k), computed once."""
        if k not in self._moments:
            self._moments[k] = self._computed(k)
        return self._moments[k]

    def _computed(self, k: int) -> mpf:
        """M_(sigma,k) = sum_(l=2..k) (-1)^(k-l) C(k,l) exp(2 l (l-1) / sigma^2) + (-1)^(k-1) (k-1)."""
        while len(self._exponentials) <= k:
            index = len(self._exponentials)
            self._exponentials.append(mp.exp(2 * index * (index - 1) / self._sigma**2))
        terms = ((-1) ** (k - index) * math.comb(k, index) * self._exponentials[index] for index in range(2, k + 1))
        value = mp.fsum(terms) + (-1) ** (k - 1) * (k - 1)
        if value <= 0 and k % 2 == 0:
            raise PrecisionTooLowError(f"M of index {k} came out as {mp.nstr(value, 5)}.")
        return value

    def absolute_moment(self, j: int) -> mpf:
        """B~_(sigma,j): M_(sigma,j) for even j, sqrt(M_(sigma,j-1) M_(sigma,j+1)) for odd j."""
        if j % 2 == 0:
            return self.moment(j)
        return mp.sqrt(self.moment(j - 1)) * mp.sqrt(self.moment(j + 1))


def _remainder(q: mpf, order: mpf, m: int, moments: _Moments) -> mpf:
    """The bound on |R_(a,sigma,m)(q)|, both cases [app:Renyi_bound]."""
    product = mp.fprod(abs(order - j) for j in range(m))
    if product == 0:
        return mpf(0)
    if order <= m:
        return q**m / mp.factorial(m) * (1 - q) ** (order - m) * product * moments.absolute_moment(m)
    above = int(mp.ceil(order)) - m
    bracket = mp.fsum(
        q**index
        * mp.factorial(above)
        / (mp.factorial(above - index) * mp.factorial(m + index))
        * moments.absolute_moment(index + m)
        for index in range(above + 1)
    )
    return q**m * product * (bracket + moments.absolute_moment(m) / mp.factorial(m))
