"""Filters: when must a client stop, if the steps to come may depend on the answers so far?

Asking an accountant for ε after every step and going on while it is below the budget is *not* sound then: the order
that gives ε would follow the data (tests/accounting/test_filters.py has the counterexample). Two rules are:

* :class:`RenyiFilter`: orders fixed in advance share δ by weights that sum to at most 1. One order of weight 1 is the
  committed order, without overhead on plan.
* :class:`ReservedSlots`: a public multiset of steps is paid for in advance with a privacy-loss distribution, and used
  up in any order.

Every answer carries ``guaranteed``, what holds under adaptivity, and ``spent``, what the same steps would cost had they
been fixed in advance. Filters are values: ``charge`` returns the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np

from lrdp.accounting import limits
from lrdp.accounting.accountants import History, PldAccountant, PrivacySpent, RenyiAccountant
from lrdp.accounting.calibration import Budget
from lrdp.accounting.conversion import best_on_grid, epsilon_at
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.errors import InvalidInput, OutOfReach
from lrdp.figures import AtMost


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Whether the steps may be taken, and the state after them (before them, if they may not)."""

    admitted: bool
    guaranteed: PrivacySpent
    spent: PrivacySpent


class Filter(Protocol):
    """A budget that stops in time, whatever the server asks."""

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[Self, Answer]:
        """Charge for ``steps`` and return the filter after them; the same filter if they do not fit."""

    def answer(self, *, admitted: bool = True) -> Answer:
        """The state now."""


@dataclass(frozen=True, kw_only=True)
class RenyiFilter:
    """Go on while, at *some* order a, the divergence so far allows ε with the share w_a·δ of δ.

    Guarantees: the steps admitted are (ε, δ)-private for any adaptive choice of mechanisms and of when to stop. With
    L the loss and R_a the divergence charged at order a, exp((a-1)(L - R_a)) is a supermartingale, so each order alone
    is a filter and an odometer at w_a·δ (arXiv 2008.11193v3, Theorem 4.3), and transcripts are split among orders by
    which one admitted their last step. Weights above 1 in sum would be the unsound rule, and are refused.
    """

    budget: Budget
    adjacency: Adjacency
    weights: Mapping[float, float]
    history: History = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.weights:
            raise InvalidInput("weights must name at least one order, got none: a filter commits to orders in advance.")
        for order, weight in self.weights.items():
            limits.above_one("order", order, "Rényi divergences that convert to (ε, δ) have orders above 1")
            limits.positive("weight", weight, "an order without a share of delta admits nothing")
        total = math.fsum(self.weights.values())
        if not total <= 1.0:
            raise InvalidInput(
                f"weights must sum to at most 1, got {total!r}: orders that use all of delta each, exceed it."
            )

    @classmethod
    def committed(cls, budget: Budget, adjacency: Adjacency, plan: History) -> RenyiFilter:
        """Commit to the order that is best for the public plan."""
        order = RenyiAccountant(adjacency=adjacency).epsilon(plan, budget.delta).order
        if order is None:
            raise InvalidInput("plan must hold at least one step, got none: the order is chosen for it.")
        return cls(budget=budget, adjacency=adjacency, weights={order: 1.0})

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[RenyiFilter, Answer]:
        """Charge for ``steps`` and return the filter after them; the same filter if they do not fit."""
        after = replace(self, history=_with(self.history, mechanism, steps))
        if after._guaranteed().epsilon <= self.budget.epsilon:
            return after, after.answer()
        return self, self.answer(admitted=False)

    def answer(self, *, admitted: bool = True) -> Answer:
        """The state now."""
        guaranteed = self._guaranteed()
        spent = RenyiAccountant(adjacency=self.adjacency).epsilon(self.history, self.budget.delta)
        # What holds under adaptivity holds without: the committed order may beat those that the search tried.
        spent = min(spent, guaranteed, key=lambda bound: bound.epsilon)
        return Answer(admitted=admitted, guaranteed=guaranteed, spent=spent)

    def _guaranteed(self) -> PrivacySpent:
        if not self.history:
            return PrivacySpent(epsilon=0.0, delta=self.budget.delta)
        orders = np.array(list(self.weights), dtype=np.float64)
        shares = np.array(list(self.weights.values())) * self.budget.delta
        divergence = RenyiAccountant(adjacency=self.adjacency).divergence(self.history, orders)
        best = best_on_grid(epsilon_at(divergence, orders, shares), orders)
        return PrivacySpent(epsilon=best.value, delta=self.budget.delta, order=best.order)


@dataclass(frozen=True, kw_only=True)
class ReservedSlots:
    """A public multiset of steps, paid for as a whole; each may be used once, in any adaptive order, or never.

    Guarantees: a client that answers at most the reserved steps is a concurrent composition of one-query mechanisms,
    which costs no more than composing them in a fixed order (arXiv 2207.08335v3, the theorem for f-DP).
    """

    budget: Budget
    adjacency: Adjacency
    slots: History
    reserved: PrivacySpent
    used: History = field(default_factory=dict)

    @classmethod
    def reserve(cls, budget: Budget, adjacency: Adjacency, slots: History) -> ReservedSlots:
        """Pay for all ``slots`` at once, or refuse."""
        if not slots:
            raise InvalidInput("slots must hold at least one step, got none: nothing would be reserved.")
        reserved = PldAccountant(adjacency=adjacency).epsilon(slots, budget.delta)
        if not reserved.epsilon <= budget.epsilon:
            raise OutOfReach(
                f"the slots cost epsilon={AtMost(reserved.epsilon)}, above the budget of {budget.epsilon} at "
                f"delta={budget.delta}: nothing was reserved; take fewer slots or more noise."
            )
        return cls(budget=budget, adjacency=adjacency, slots=dict(slots), reserved=reserved)

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[ReservedSlots, Answer]:
        """Use up ``steps`` slots and return the filter after them; the same filter if so many are not left."""
        used = _with(self.used, mechanism, steps)
        if used[mechanism] <= self.slots.get(mechanism, 0):
            after = replace(self, used=used)
            return after, after.answer()
        return self, self.answer(admitted=False)

    def answer(self, *, admitted: bool = True) -> Answer:
        """The state now."""
        spent = PldAccountant(adjacency=self.adjacency).epsilon(self.used, self.budget.delta)
        return Answer(admitted=admitted, guaranteed=self.reserved, spent=spent)


def _with(history: History, mechanism: Mechanism, steps: int) -> dict[Mechanism, int]:
    limits.whole("steps", steps, 1, "a charge is for steps to be taken")
    return {**history, mechanism: history.get(mechanism, 0) + steps}
