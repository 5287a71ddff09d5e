"""The rules by which a filter stops: fixed before the first step, because a choice that follows the data is unsound.

* :class:`RenyiOrders`: orders with weights that sum to at most 1 share δ. One order of weight 1 is the committed order,
  which has no overhead for steps as planned.
* :class:`ReservedSlots`: a public multiset of steps is paid for in advance with a privacy-loss distribution, and used
  up in any order. Steps that were taken beyond it nevertheless are measured at orders that are fixed here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from lrdp import limits
from lrdp.accounting.accountants import (
    Accountant,
    History,
    PldAccountant,
    PrivacySpent,
    RenyiAccountant,
    SteadyAccountant,
    checked_history,
)
from lrdp.accounting.calibration import Budget, most_rounds
from lrdp.accounting.conversion import best_on_grid, checked_order, epsilon_at
from lrdp.accounting.groups import GroupAccountant, for_group
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.renyi import FloatArray
from lrdp.accounting.risk import TradeOff, trade_off
from lrdp.errors import InvalidInput, Unsupported

SPREAD: Final = dict.fromkeys((2.5, 4.0, 6.0, 9.0, 14.0, 22.0, 40.0, 80.0), 0.125)
"""Orders that fit any plan somewhat: at order 9 an eighth of δ costs 0.26 of ε."""


def checked_weights(weights: Mapping[float, float]) -> dict[float, float]:
    """Orders and their shares of δ in plain numbers; refused unless the shares sum to at most 1."""
    shares = {
        checked_order(order): limits.positive("weight", weight, "an order without a share of delta admits nothing")
        for order, weight in limits.derived_from("weights", weights, Mapping).items()  # type: ignore[type-abstract]
    }
    if not shares:
        raise InvalidInput("weights must name at least one order, got none: a filter commits to orders in advance.")
    total = math.fsum(shares.values())
    if not total <= 1.0:
        raise InvalidInput(
            f"weights must sum to at most 1, got {total!r}: orders that each use all of delta exceed it together."
        )
    return shares


def readings(divergence: FloatArray, weights: Mapping[float, float], delta: float) -> FloatArray:
    """ε at each order's own share of δ, from the divergences at these orders: the last axis is theirs.

    The least along it is what :class:`RenyiOrders` guarantees, whoever keeps the books.

    >>> readings(np.array([0.5, 0.8]), {4.0: 0.5, 9.0: 0.5}, delta=1e-5).round(2).tolist()
    [3.82, 1.93]
    """
    orders, shares = np.array(list(weights), dtype=np.float64), np.array(list(weights.values()), dtype=np.float64)
    return epsilon_at(divergence, orders, shares * delta)


@dataclass(frozen=True, kw_only=True)
class FilterRule(ABC):
    """What was fixed in advance; with a budget and a history it is a :class:`lrdp.accounting.Filter`."""

    accountant: ClassVar[type[Accountant]]
    """Who says what the same steps would cost had they been fixed in advance: one that always answers."""
    may_grow: ClassVar[bool] = False
    """Whether ε may be raised later, even by somebody who has seen the answers (docs/accounting.md, Theorem 7)."""

    def guaranteed(self, budget: Budget, adjacency: Adjacency, history: History) -> PrivacySpent:
        """What holds for the history, whatever the server adapted to."""
        return self._guaranteed(*_checked(budget, adjacency, history))

    def admits(self, budget: Budget, adjacency: Adjacency, history: History) -> bool:
        """Whether a history that was admitted up to its last charge is admitted with it; False on a NaN."""
        return self._admits(*_checked(budget, adjacency, history))

    @abstractmethod
    def _guaranteed(self, budget: Budget, adjacency: Adjacency, history: History) -> PrivacySpent: ...

    @abstractmethod
    def _admits(self, budget: Budget, adjacency: Adjacency, history: History) -> bool: ...

    def guaranteed_to_group(self, budget: Budget, adjacency: Adjacency, history: History, rows: int) -> PrivacySpent:
        """What holds for a person with at most ``rows`` rows, whatever the server adapted to."""
        one, count = self.guaranteed(budget, adjacency, history), _checked_rows(rows)
        return one if count == 1 else for_group(one, count)

    def trade_off(self, budget: Budget, adjacency: Adjacency, history: History) -> TradeOff:
        """How well any test tells whether a record was there, whatever the server adapted to: from the guarantee."""
        return TradeOff.of_points([self.guaranteed(budget, adjacency, history)])

    def has_place(self, mechanism: Mechanism) -> bool:
        """Whether a step of this kind could ever be admitted, however much budget is left."""
        return bool(limits.derived_from("mechanism", mechanism, Mechanism))

    @abstractmethod
    def for_shares(self) -> RenyiOrders:
        """The rule that measures one payer's share of the budget."""


@dataclass(frozen=True, kw_only=True)
class RenyiOrders(FilterRule):
    """Go on while, at *some* order a, the divergence so far allows ε with the share w_a·δ of δ.

    Guarantees: the steps admitted are (ε, δ)-private for any adaptive choice of mechanisms and of when to stop. With
    L the loss and R_a the divergence charged at order a, exp((a-1)(L - R_a)) is a supermartingale, so each order alone
    is a filter and an odometer at w_a·δ (arXiv 2008.11193v3, Theorem 4.3), and transcripts are split among orders by
    which one admitted their last step. Weights that sum to more than 1 would be unsound, and are refused.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.5)
    >>> budget = Budget(epsilon=6.0, delta=1e-5)
    >>> rule = RenyiOrders.committed(budget, Adjacency.ADD_REMOVE, {step: 10_000})
    >>> [rule.admits(budget, Adjacency.ADD_REMOVE, {step: steps}) for steps in (10_000, 20_000)]
    [True, False]
    """

    accountant: ClassVar[type[Accountant]] = RenyiAccountant
    may_grow: ClassVar[bool] = True
    weights: Mapping[float, float]

    def __post_init__(self) -> None:
        limits.keep(self, weights=checked_weights(self.weights))

    @classmethod
    def committed(cls, budget: Budget, adjacency: Adjacency, plan: History) -> RenyiOrders:
        """The one order that is best for a public plan: no overhead on it, little left for any other."""
        limits.made_by("budget", budget, Budget)
        order = RenyiAccountant(adjacency=adjacency).epsilon(plan, budget.delta).order
        if order is None:
            raise InvalidInput("plan must hold at least one step, got none: the order is chosen for it.", field="plan")
        return cls(weights={order: 1.0})

    @classmethod
    def hedged(cls, budget: Budget, adjacency: Adjacency, costliest: Mechanism) -> RenyiOrders:
        """Half of δ for the order that is best if all steps are the costliest, half spread for quieter ones."""
        steps = most_rounds(costliest, 1, budget, RenyiAccountant(adjacency=adjacency))
        best = cls.committed(budget, adjacency, {costliest: max(steps, 1)})
        return cls(weights=_halves(best.weights, SPREAD))

    def _guaranteed(self, budget: Budget, adjacency: Adjacency, history: History) -> PrivacySpent:
        """The reading of the best of the orders, each at its own share of δ."""
        if not history:
            return PrivacySpent(epsilon=0.0, delta=budget.delta)
        orders = np.array(list(self.weights))
        divergence = RenyiAccountant(adjacency=adjacency).divergence(history, orders)
        best = best_on_grid(readings(divergence, self.weights, budget.delta), orders)
        return PrivacySpent(epsilon=best.value, delta=budget.delta, order=best.order)

    def _admits(self, budget: Budget, adjacency: Adjacency, history: History) -> bool:
        """Whether that reading is within the budget."""
        return self._guaranteed(budget, adjacency, history).epsilon <= budget.epsilon

    def for_shares(self) -> RenyiOrders:
        """Half these orders, half the spread ones: one payer's steps may be of any kind."""
        return RenyiOrders(weights=_halves(self.weights, SPREAD))


@dataclass(frozen=True, kw_only=True)
class ReservedSlots(FilterRule):
    """A public multiset of steps, paid for as a whole; each may be used once, in any adaptive order, or never.

    Guarantees: a client that answers at most the reserved steps is a concurrent composition of one-query mechanisms,
    which costs no more than composing them in a fixed order (arXiv 2207.08335v3, the theorem for f-DP). Where more was
    used (steps of a lost branch that were charged later), nothing more is admitted, and what holds is the reading of
    the orders in ``SPREAD`` over all that was used (docs/accounting.md, Theorem 6).

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.5)
    >>> rule, budget = ReservedSlots(slots={step: 300}), Budget(epsilon=6.0, delta=1e-5)
    >>> rule.left(budget, Adjacency.ADD_REMOVE, {step: 117}, step)
    183
    """

    accountant: ClassVar[type[Accountant]] = SteadyAccountant
    slots: History

    def __post_init__(self) -> None:
        limits.keep(self, slots=checked_history(self.slots))
        if not self.slots:
            raise InvalidInput("slots must hold at least one step, got none: nothing would be reserved.", field="slots")

    def has_place(self, mechanism: Mechanism) -> bool:
        """Whether slots were reserved for exactly this kind."""
        return super().has_place(mechanism) and mechanism in self.slots

    def guaranteed_to_group(self, budget: Budget, adjacency: Adjacency, history: History, rows: int) -> PrivacySpent:
        """The cost of all slots to all of the rows together: Theorem 5 holds for any neighbours that have a pair."""
        _, _, used = _checked(budget, adjacency, history)
        if _checked_rows(rows) > 1 and self._hold(used):
            together = _paid_by_group(adjacency, tuple(self.slots.items()), budget.delta, rows)
            if math.isfinite(together.epsilon):
                return together
        return super().guaranteed_to_group(budget, adjacency, history, rows)

    def trade_off(self, budget: Budget, adjacency: Adjacency, history: History) -> TradeOff:
        """The curve of all slots: Theorem 5 is about trade-offs, not about one ε; where more was used, one point."""
        by_point = super().trade_off(budget, adjacency, history)
        if not self._hold(checked_history(history)):
            return by_point
        return by_point.and_also(_curve_paid(adjacency, tuple(self.slots.items()), budget.delta))

    def cost(self, budget: Budget, adjacency: Adjacency) -> PrivacySpent:
        """What all slots together cost at the budget's δ."""
        limits.made_by("budget", budget, Budget)
        limits.made_by("adjacency", adjacency, Adjacency)
        return _paid(adjacency, tuple(self.slots.items()), budget.delta)

    def left(self, budget: Budget, adjacency: Adjacency, history: History, mechanism: Mechanism) -> int:
        """How many steps of a kind would still be admitted."""
        limits.derived_from("mechanism", mechanism, Mechanism)
        if not self.admits(budget, adjacency, history):
            return 0
        return self.slots.get(mechanism, 0) - checked_history(history).get(mechanism, 0)

    def _guaranteed(self, budget: Budget, adjacency: Adjacency, history: History) -> PrivacySpent:
        """The cost of all slots; where more was used, at least the orders' reading of what was used."""
        paid = self.cost(budget, adjacency)
        if self._hold(history):
            return paid
        with suppress(Unsupported):
            beyond = RenyiOrders(weights=SPREAD).guaranteed(budget, adjacency, history)
            # Never below what was said before: a figure must not fall because more was used.
            return max(paid, beyond, key=lambda bound: bound.epsilon)
        return PrivacySpent(epsilon=math.inf, delta=budget.delta)

    def _admits(self, budget: Budget, adjacency: Adjacency, history: History) -> bool:
        """Whether every step has a slot, and all slots are within the budget."""
        return self._hold(history) and self.cost(budget, adjacency).epsilon <= budget.epsilon

    def for_shares(self) -> RenyiOrders:
        """The spread orders: which slots one payer will use is not known."""
        return RenyiOrders(weights=SPREAD)

    def _hold(self, history: History) -> bool:
        return all(steps <= self.slots.get(mechanism, 0) for mechanism, steps in history.items())


def _checked(budget: Budget, adjacency: Adjacency, history: History) -> tuple[Budget, Adjacency, dict[Mechanism, int]]:
    """What a figure rests on, in plain values."""
    neighbours = limits.made_by("adjacency", adjacency, Adjacency)
    return limits.made_by("budget", budget, Budget), neighbours, checked_history(history)


def _checked_rows(rows: int) -> int:
    return limits.whole("rows", rows, 1, "a person without rows is not in the data")


def _halves(one: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """Half of δ for each of two sets of orders."""
    return {order: (one.get(order, 0.0) + other.get(order, 0.0)) / 2 for order in {**one, **other}}


@lru_cache(maxsize=256)
def _paid(adjacency: Adjacency, slots: tuple[tuple[Mechanism, int], ...], delta: float) -> PrivacySpent:
    """One composition serves every charge and every status of a ledger."""
    return SteadyAccountant(adjacency=adjacency).epsilon(dict(slots), delta)


@lru_cache(maxsize=64)
def _curve_paid(adjacency: Adjacency, slots: tuple[tuple[Mechanism, int], ...], delta: float) -> TradeOff:
    return trade_off(PldAccountant(adjacency=adjacency), dict(slots), delta)


@lru_cache(maxsize=64)
def _paid_by_group(
    adjacency: Adjacency, slots: tuple[tuple[Mechanism, int], ...], delta: float, rows: int
) -> PrivacySpent:
    return GroupAccountant(adjacency=adjacency, rows=rows).epsilon(dict(slots), delta)
