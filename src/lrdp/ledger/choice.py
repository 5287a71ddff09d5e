"""The filter that was chosen when the budget was opened, as the ledger's first entry keeps it.

The choice must not follow the data, so it is made once, before the first charge, and never changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lrdp import limits
from lrdp.accounting import SPREAD as SPREAD_ORDERS
from lrdp.accounting import (
    Adjacency,
    Budget,
    Filter,
    FilterAnswer,
    History,
    Mechanism,
    PldAccountant,
    RenyiAccountant,
    RenyiFilter,
    ReservedSlots,
    checked_history,
    checked_weights,
    most_rounds,
)
from lrdp.errors import InvalidInput
from lrdp.ledger.texts import decode_float, decode_history, encode_float, encode_history, within

Charge = tuple[Mechanism, int]
_LONGEST_ORDERS: Final = 1 << 16


@dataclass(frozen=True, kw_only=True)
class FilterChoice(ABC):
    """Which filter decides whether a charge fits a budget on top of a history."""

    @property
    @abstractmethod
    def accountant(self) -> str:
        """Who computes its figures."""

    @abstractmethod
    def encode(self) -> str:
        """As one word of the first entry."""

    @abstractmethod
    def filter(self, budget: Budget, adjacency: Adjacency, history: History) -> Filter:
        """The filter after a history: every figure of a ledger, a statement and a fleet is read from it."""

    @abstractmethod
    def for_runs(self) -> OrdersChoice:
        """The filter that measures one run's share."""

    def admit(self, budget: Budget, adjacency: Adjacency, history: History, charge: Charge) -> FilterAnswer:
        """The state after the charge, or the refusal and the state before it."""
        return self.filter(budget, adjacency, history).charge(*charge)[1]

    def state(self, budget: Budget, adjacency: Adjacency, history: History) -> FilterAnswer:
        """The state now."""
        return self.filter(budget, adjacency, history).answer()


@dataclass(frozen=True, kw_only=True)
class OrdersChoice(FilterChoice):
    """Rényi orders fixed in advance, with their shares of δ."""

    weights: Mapping[float, float]

    def __post_init__(self) -> None:
        limits.keep(self, weights=checked_weights(self.weights))

    @classmethod
    def committed(cls, budget: Budget, adjacency: Adjacency, plan: History) -> OrdersChoice:
        """The one order that is best for a public plan: no overhead on it, little left for any other."""
        return cls(weights=dict(RenyiFilter.committed(budget, adjacency, plan).weights))

    @classmethod
    def hedged(cls, budget: Budget, adjacency: Adjacency, costliest: Mechanism) -> OrdersChoice:
        """Half of δ for the order that is best if all steps are the costliest, half spread for quieter ones."""
        steps = most_rounds(costliest, 1, budget, RenyiAccountant(adjacency=adjacency))
        best = next(iter(RenyiFilter.committed(budget, adjacency, {costliest: max(steps, 1)}).weights))
        return cls(weights=_halves({best: 1.0}, SPREAD.weights))

    @property
    def accountant(self) -> str:
        return RenyiAccountant.name

    def encode(self) -> str:
        pairs = [f"{encode_float(order)}={encode_float(weight)}" for order, weight in sorted(self.weights.items())]
        return " ".join(["orders", *pairs])

    @classmethod
    def decode(cls, text: str) -> OrdersChoice:
        """The words after the name."""
        pairs = (pair.split("=", 2) for pair in within(text, _LONGEST_ORDERS).split(" "))
        return cls(weights={decode_float(order): decode_float(weight) for order, weight in pairs})

    def for_runs(self) -> OrdersChoice:
        return OrdersChoice(weights=_halves(self.weights, SPREAD.weights))

    def filter(self, budget: Budget, adjacency: Adjacency, history: History) -> RenyiFilter:
        return RenyiFilter(budget=budget, adjacency=adjacency, weights=self.weights, history=history)


SPREAD: Final = OrdersChoice(weights=SPREAD_ORDERS)


@dataclass(frozen=True, kw_only=True)
class SlotsChoice(FilterChoice):
    """A public multiset of steps, paid for as a whole when the budget was opened."""

    slots: History

    def __post_init__(self) -> None:
        limits.keep(self, slots=checked_history(self.slots))
        if not self.slots:
            raise InvalidInput("slots must hold at least one step, got none: nothing would be reserved.")

    @property
    def accountant(self) -> str:
        return PldAccountant.name

    def encode(self) -> str:
        return f"slots {encode_history(self.slots)}"

    @classmethod
    def decode(cls, text: str) -> SlotsChoice:
        """The words after the name."""
        return cls(slots=decode_history(text))

    def for_runs(self) -> OrdersChoice:
        return SPREAD

    def filter(self, budget: Budget, adjacency: Adjacency, history: History) -> ReservedSlots:
        return ReservedSlots(budget=budget, adjacency=adjacency, slots=self.slots, used=history)


def _halves(one: Mapping[float, float], other: Mapping[float, float]) -> dict[float, float]:
    """Half of δ for each of two sets of orders."""
    return {order: (one.get(order, 0.0) + other.get(order, 0.0)) / 2 for order in {**one, **other}}


def decode_choice(text: str) -> FilterChoice:
    """The choice that an ``encode`` wrote."""
    name, _, rest = text.partition(" ")
    decoders: dict[str, Callable[[str], FilterChoice]] = {"orders": OrdersChoice.decode, "slots": SlotsChoice.decode}
    if name not in decoders:
        raise InvalidInput(f"a filter is one of {', '.join(decoders)}, got {name[:20]!r}.")
    try:
        return decoders[name](rest)
    except ValueError as problem:
        raise InvalidInput(f"the filter {limits.brief(text)} cannot be read: {problem}") from None
