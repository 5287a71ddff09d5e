"""One person with several rows: what holds for all of them together.

Two ways, both proved, of which the smaller ε counts. By the *pair*: how many of the rows are in a batch has a known
law, and each moves the sum by as much as one record does (docs/accounting.md, Theorem 8). By the *formula*: k
applications of the definition, from whatever is known of one record.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import ClassVar, Final

import numpy as np

from lrdp import limits
from lrdp.accounting.accountants import (
    Accountant,
    History,
    PldAccountant,
    PrivacySpent,
    RenyiAccountant,
    checked_history,
)
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import Unsupported
from lrdp.figures import AtMost

_ENOUGH: Final = Decimal(2000)
"""e to this times any δ is above 1."""


@dataclass(frozen=True, kw_only=True)
class GroupAccountant(Accountant):
    """What a history costs a person with at most ``rows`` rows: the smaller of the pair's ε and the formula's.

    >>> from lrdp.accounting import Adjacency, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=6.0)
    >>> accountant = GroupAccountant(adjacency=Adjacency.ADD_REMOVE, rows=3)
    >>> [f"{way({step: 10_000}, 1e-5).epsilon:.2f}" for way in (accountant.epsilon, accountant.by_formula)]
    ['14.20', '18.86']

    Guarantees: an answer to every history that has a bound for one record; infinity where neither way resolves it.
    """

    name: ClassVar[str] = "group"
    rows: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, rows=limits.whole("rows", self.rows, 1, "a person without rows is not in the data"))

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The smaller ε of the two ways at ``delta``."""
        self._refuse_what_has_no_bound(history)
        found = [PrivacySpent(epsilon=math.inf, delta=delta)]
        with suppress(Unsupported):
            found.append(PldAccountant(adjacency=self.adjacency, rows=self.rows).epsilon(history, delta))
        with suppress(Unsupported):
            found.append(self.by_formula(history, delta))
        return min(found, key=lambda spent: spent.epsilon)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """By the pair, or 1."""
        self._refuse_what_has_no_bound(history)
        with suppress(Unsupported):
            return PldAccountant(adjacency=self.adjacency, rows=self.rows).delta(history, epsilon)
        return PrivacySpent(epsilon=epsilon, delta=1.0)

    def by_formula(self, history: History, delta: float) -> PrivacySpent:
        """kε₁ for the least ε₁ whose δ₁, from Rényi orders a > k, has k·e^{(k-1)ε₁}·δ₁ ≤ δ.

        With δ₁ = exp((a-1)(ρ - ε₁))·(1-1/a)^{a-1}/a that is (a-k)·ε₁ ≥ (a-1)(ρ + ln(1-1/a)) - ln a + ln k - ln δ.
        """
        single = RenyiAccountant(adjacency=self.adjacency)
        delta = limits.open_unit("delta", delta, "it bounds the probability that the guarantee fails")
        if not (steps := checked_history(history)):
            return PrivacySpent(epsilon=0.0, delta=delta)

        def needed(orders: FloatArray) -> FloatArray:
            logs = (orders - 1) * (single.divergence(steps, orders) + np.log1p(-1 / orders)) - np.log(orders)
            with np.errstate(divide="ignore", invalid="ignore"):
                least = np.maximum((logs + math.log(self.rows) - math.log(delta)) / (orders - self.rows), 0.0)
            return np.where((orders > self.rows) & ~np.isnan(least), self.rows * least, np.inf)

        best = single.search.smallest(needed)
        return PrivacySpent(epsilon=best.value * (1 + 1e-12), delta=delta, order=best.order)

    def _refuse_what_has_no_bound(self, history: History) -> None:
        for mechanism in checked_history(history):
            mechanism.dominating_pair(self.adjacency)


def for_group(spent: PrivacySpent, rows: int) -> PrivacySpent:
    """Rows that change together: (kε, k·e^{(k-1)ε}·δ), by k applications of the definition; δ at most 1.

    >>> together = for_group(PrivacySpent(epsilon=1.0, delta=1e-6), rows=2)
    >>> f"{together.epsilon} {together.delta:.2e}"
    '2.0 5.44e-06'
    """
    with localcontext(AtMost.context()):
        epsilon = Decimal(spent.epsilon)
        exponent = min((rows - 1) * epsilon, _ENOUGH) if rows > 1 else Decimal(0)
        grown = exponent.exp().next_plus() if exponent else Decimal(1)
        delta = min(rows * grown * Decimal(spent.delta), Decimal(1))
        return PrivacySpent(epsilon=float(AtMost.of(rows * epsilon)), delta=float(AtMost.of(delta)))
