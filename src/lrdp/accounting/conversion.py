"""From Rényi divergences to (ε, δ) and back, at the best order.

Formal guarantees: the conversion of arXiv 2004.00010v4, Proposition 12, holds at *every* order, so searching for a good
order can only lose tightness, never soundness — for a composition fixed in advance. Under adaptive participation the
order must not follow the data: see :mod:`lrdp.accounting.filters`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from lrdp import limits
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import InvalidInput

ORDERS: FloatArray = np.array(
    [
        *(
            1.05,
            1.1,
            1.15,
            1.2,
            1.3,
            1.4,
            1.5,
            1.75,
            2,
            2.5,
            3,
            3.5,
            4,
            4.5,
            5,
            5.5,
            6,
            7,
            8,
            9,
            10,
            11,
            12,
            13,
            14,
            15,
        ),
        *(16, 18, 20, 22, 24, 26, 28, 30, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 88, 96, 112, 128, 160, 192, 256),
        *(320, 384, 512, 768, 1024),
    ]
)
"""The fixed orders of tables and filters: integers where they are cheap, dense where the optimum usually lies."""

_LOWEST, _HIGHEST = 1 + 2.0**-14, 2.0**16


@dataclass(frozen=True)
class AtOrder:
    """A converted value and the order that gave it."""

    value: float
    order: float
    at_edge: bool  # the best order is the smallest or largest tried: a wider grid might do better


def checked_orders(orders: FloatArray) -> FloatArray:
    """Orders in doubles; refused unless they are a row of numbers above 1."""
    row = orders.tolist() if type(orders) is np.ndarray else orders
    if type(row) not in (list, tuple):
        raise InvalidInput(f"orders must be a row of numbers, got {limits.brief(orders)}.")
    return np.array([checked_order(order) for order in row], dtype=np.float64)


def checked_order(order: float) -> float:
    """One order as a float."""
    number = limits.above_one("order", order, "Rényi divergences that convert to (ε, δ) have orders above 1")
    return limits.between(
        "order", number, _LOWEST, _HIGHEST, "beyond these, doubles or memory do not resolve the divergence"
    )


def epsilon_at(divergence: FloatArray, orders: FloatArray, delta: float | FloatArray) -> FloatArray:
    """ε at each order: ρ + ln((a-1)/a) - (ln δ + ln a)/(a-1), at least 0; what is not a number is +∞."""
    epsilon = divergence + np.log1p(-1 / orders) - (np.log(delta) + np.log(orders)) / (orders - 1)
    return np.where(np.isnan(epsilon), np.inf, np.maximum(epsilon, 0.0))


def delta_at(divergence: FloatArray, orders: FloatArray, epsilon: float) -> FloatArray:
    """δ at each order, the same inequality solved for δ; at most 1."""
    log_delta = (orders - 1) * (divergence - epsilon + np.log1p(-1 / orders)) - np.log(orders)
    return np.where(np.isnan(log_delta), 1.0, np.exp(np.minimum(log_delta, 0.0)))


@dataclass(frozen=True)
class OrderSearch:
    """Where to look for the best order: the usual ones, more if the best lies at an end, then ever finer."""

    usual: tuple[float, ...]
    lower: tuple[float, ...] = ()
    higher: tuple[float, ...] = ()
    refinements: int = 0

    def smallest(self, objective: Callable[[FloatArray], FloatArray]) -> AtOrder:
        """The smallest value of ``objective`` found, and its order."""
        orders = np.array(self.usual, dtype=np.float64)
        values = objective(orders)
        index = int(np.argmin(values))
        extension = np.array({0: self.lower, len(orders) - 1: self.higher}.get(index, ()))
        if len(extension):
            orders, values = _merged(orders, values, extension, objective(extension))
        passed = []
        for _ in range(self.refinements):
            index = int(np.argmin(values))
            before, after = max(index - 1, 0), min(index + 1, len(orders) - 1)
            if not values[before : after + 1].max() > values[index] * _FLAT:
                break
            between = _between(orders[before], orders[after])
            if before < index < after:
                # It may lie right next to a new one, and flatness is judged at equal distances: it waits apart.
                passed.append(AtOrder(value=float(values[index]), order=float(orders[index]), at_edge=False))
                orders, values = np.delete(orders, index), np.delete(values, index)
            orders, values = _merged(orders, values, between, objective(between))
        return min([best_on_grid(values, orders), *passed], key=lambda found: found.value)


_SIXTEENTHS = np.arange(1, 16) / 16
_FLAT = 1 + 1e-3  # where both neighbours of the best are this close, a finer search gains an eighth of it at most

FINE_SEARCH = OrderSearch(
    usual=(2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64),
    lower=(1.05, 1.1, 1.2, 1.35, 1.6),
    higher=(90, 128, 180, 256, 360, 512, 720, 1024),
    refinements=3,
)


def best_on_grid(values: FloatArray, orders: FloatArray) -> AtOrder:
    """The smallest of the values computed at fixed orders."""
    best = int(np.argmin(values))
    return AtOrder(value=float(values[best]), order=float(orders[best]), at_edge=best in (0, len(orders) - 1))


def _between(low: float, high: float) -> FloatArray:
    orders = 1 + (low - 1) * ((high - 1) / (low - 1)) ** _SIXTEENTHS
    # High up, whole orders are dense enough, and a sum is cheaper than an integral.
    if high > 256:
        orders = np.unique(np.round(orders))
    return orders[(orders > low) & (orders < high)]


def _merged(
    orders: FloatArray, values: FloatArray, more_orders: FloatArray, more_values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    orders, values = np.concatenate([orders, more_orders]), np.concatenate([values, more_values])
    sorting = np.argsort(orders)
    return orders[sorting], values[sorting]
