"""Filters: when must a client stop, if the steps to come may depend on the answers so far?

Asking an accountant for ε after every step and going on while it is below the budget is *not* sound then: the order
that gives ε would follow the data (tests/accounting/test_filters.py has the counterexample). Two rules are:

* :class:`RenyiFilter`: orders fixed in advance share δ by weights that sum to at most 1. One order of weight 1 is the
  committed order, without overhead on plan.
* :class:`ReservedSlots`: a public multiset of steps is paid for in advance with a privacy-loss distribution, and used
  up in any order. Steps that were taken beyond it all the same are measured by orders that are fixed here.

Every answer carries ``guaranteed``, what holds under adaptivity, and ``spent``, what the same steps would cost had they
been fixed in advance. Filters are values: ``charge`` returns the next one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, Protocol, Self

import numpy as np

from lrdp import limits
from lrdp.accounting.accountants import History, PrivacySpent, RenyiAccountant, SteadyAccountant, checked_history
from lrdp.accounting.calibration import Budget
from lrdp.accounting.conversion import best_on_grid, checked_order, epsilon_at
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import InvalidInput, OutOfReach, Unsupported
from lrdp.figures import AtMost

SPREAD: Final = dict.fromkeys((2.5, 4.0, 6.0, 9.0, 14.0, 22.0, 40.0, 80.0), 0.125)
"""Orders that fit any plan somewhat: at order 9 an eighth of δ costs 0.26 of ε."""


@dataclass(frozen=True, kw_only=True)
class FilterAnswer:
    """Whether the steps may be taken, and the state after them (before them, if they may not)."""

    admitted: bool
    guaranteed: PrivacySpent
    spent: PrivacySpent

    def __post_init__(self) -> None:
        limits.made_by("admitted", self.admitted, bool)
        limits.made_by("guaranteed", self.guaranteed, PrivacySpent)
        limits.made_by("spent", self.spent, PrivacySpent)


class Filter(Protocol):
    """A budget that stops in time, whatever the server asks."""

    @property
    def guaranteed(self) -> PrivacySpent:
        """What holds for all that was charged, whatever the server adapted to."""

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[Self, FilterAnswer]:
        """Charge for ``steps`` and return the filter after them; the same filter if they do not fit."""

    def answer(self, *, admitted: bool = True) -> FilterAnswer:
        """The state now."""


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
            f"weights must sum to at most 1, got {total!r}: orders that use all of delta each, exceed it."
        )
    return shares


def readings(divergence: FloatArray, weights: Mapping[float, float], delta: float) -> FloatArray:
    """ε at each order's own share of δ, from the divergences at these orders: the last axis is theirs.

    The least along it is what a :class:`RenyiFilter` guarantees, whoever keeps the books.
    """
    orders, shares = np.array(list(weights), dtype=np.float64), np.array(list(weights.values()), dtype=np.float64)
    return epsilon_at(divergence, orders, shares * delta)


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
        limits.keep(
            self,
            budget=limits.made_by("budget", self.budget, Budget),
            adjacency=limits.made_by("adjacency", self.adjacency, Adjacency),
            weights=checked_weights(self.weights),
            history=checked_history(self.history),
        )

    @classmethod
    def committed(cls, budget: Budget, adjacency: Adjacency, plan: History) -> RenyiFilter:
        """Commit to the order that is best for the public plan."""
        limits.made_by("budget", budget, Budget)
        order = RenyiAccountant(adjacency=adjacency).epsilon(plan, budget.delta).order
        if order is None:
            raise InvalidInput("plan must hold at least one step, got none: the order is chosen for it.")
        return cls(budget=budget, adjacency=adjacency, weights={order: 1.0})

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[RenyiFilter, FilterAnswer]:
        """Charge for ``steps`` and return the filter after them; the same filter if they do not fit."""
        after = replace(self, history=_with(self.history, mechanism, steps))
        if after.guaranteed.epsilon <= self.budget.epsilon:
            return after, after.answer()
        return self, self.answer(admitted=False)

    def answer(self, *, admitted: bool = True) -> FilterAnswer:
        """The state now."""
        guaranteed = self.guaranteed
        spent = RenyiAccountant(adjacency=self.adjacency).epsilon(self.history, self.budget.delta)
        # What holds under adaptivity holds without: the committed order may beat those that the search tried.
        spent = min(spent, guaranteed, key=lambda bound: bound.epsilon)
        return FilterAnswer(admitted=admitted, guaranteed=guaranteed, spent=spent)

    @property
    def guaranteed(self) -> PrivacySpent:
        """What holds for the history, whatever the server adapted to."""
        if not self.history:
            return PrivacySpent(epsilon=0.0, delta=self.budget.delta)
        orders = np.array(list(self.weights))
        divergence = RenyiAccountant(adjacency=self.adjacency).divergence(self.history, orders)
        best = best_on_grid(readings(divergence, self.weights, self.budget.delta), orders)
        return PrivacySpent(epsilon=best.value, delta=self.budget.delta, order=best.order)


@dataclass(frozen=True, kw_only=True)
class ReservedSlots:
    """A public multiset of steps, paid for as a whole; each may be used once, in any adaptive order, or never.

    Guarantees: a client that answers at most the reserved steps is a concurrent composition of one-query mechanisms,
    which costs no more than composing them in a fixed order (arXiv 2207.08335v3, the theorem for f-DP). Where more was
    used (steps of a lost branch that were charged later), nothing more is admitted, and what holds is the reading of
    the orders in ``SPREAD`` over all that was used (docs/accounting.md, Theorem 6).
    """

    budget: Budget
    adjacency: Adjacency
    slots: History
    used: History = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits.keep(
            self,
            budget=limits.made_by("budget", self.budget, Budget),
            adjacency=limits.made_by("adjacency", self.adjacency, Adjacency),
            slots=checked_history(self.slots),
            used=checked_history(self.used),
        )
        if not self.slots:
            raise InvalidInput("slots must hold at least one step, got none: nothing would be reserved.")

    @classmethod
    def reserve(cls, budget: Budget, adjacency: Adjacency, slots: History) -> ReservedSlots:
        """Pay for all ``slots`` at once, or refuse."""
        made = cls(budget=budget, adjacency=adjacency, slots=slots)
        if not made.reserved.epsilon <= budget.epsilon:
            raise OutOfReach(
                f"the slots cost epsilon={AtMost(made.reserved.epsilon)}, above the budget of {budget.epsilon} at "
                f"delta={budget.delta}: nothing was reserved; take fewer slots or more noise."
            )
        return made

    @property
    def reserved(self) -> PrivacySpent:
        """What all slots together cost."""
        return _paid(self.adjacency, tuple(self.slots.items()), self.budget.delta)

    def left(self, mechanism: Mechanism) -> int:
        """How many steps of a kind :meth:`charge` would still admit."""
        limits.derived_from("mechanism", mechanism, Mechanism)
        return self.slots.get(mechanism, 0) - self.used.get(mechanism, 0) if self._is_open() else 0

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[ReservedSlots, FilterAnswer]:
        """Use up ``steps`` slots and return the filter after them; the same filter if so many are not left."""
        after = replace(self, used=_with(self.used, mechanism, steps))
        if after._is_open():
            return after, after.answer()
        return self, self.answer(admitted=False)

    def answer(self, *, admitted: bool = True) -> FilterAnswer:
        """The state now."""
        guaranteed = self.guaranteed
        spent = SteadyAccountant(adjacency=self.adjacency).epsilon(self.used, self.budget.delta)
        # What holds under adaptivity holds without: the slots may be resolved where what was used of them is not.
        spent = min(spent, guaranteed, key=lambda bound: bound.epsilon)
        return FilterAnswer(admitted=admitted, guaranteed=guaranteed, spent=spent)

    def _is_open(self) -> bool:
        return self._is_within() and self.reserved.epsilon <= self.budget.epsilon

    def _is_within(self) -> bool:
        return all(steps <= self.slots.get(mechanism, 0) for mechanism, steps in self.used.items())

    @property
    def guaranteed(self) -> PrivacySpent:
        """The cost of all slots; where more was used, at least the orders' reading of what was used."""
        if self._is_within():
            return self.reserved
        beyond = RenyiFilter(budget=self.budget, adjacency=self.adjacency, weights=SPREAD, history=self.used)
        with suppress(Unsupported):
            # Never below what was said before: a figure must not fall because more was used.
            return max(self.reserved, beyond.guaranteed, key=lambda bound: bound.epsilon)
        return PrivacySpent(epsilon=math.inf, delta=self.budget.delta)


@lru_cache(maxsize=256)
def _paid(adjacency: Adjacency, slots: tuple[tuple[Mechanism, int], ...], delta: float) -> PrivacySpent:
    """One composition serves every charge and every status of a ledger."""
    return SteadyAccountant(adjacency=adjacency).epsilon(dict(slots), delta)


def _with(history: History, mechanism: Mechanism, steps: int) -> dict[Mechanism, int]:
    limits.derived_from("mechanism", mechanism, Mechanism)
    steps = limits.whole("steps", steps, 1, "a charge is for steps to be taken")
    return {**history, mechanism: history.get(mechanism, 0) + steps}
