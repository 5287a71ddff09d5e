"""Accountants: fold a history of steps into (ε, δ).

A history maps each mechanism to the number of steps taken with it; steps may differ in every parameter, and their order
does not matter. Each accountant is a value that carries the adjacency it answers for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from lrdp.accounting import conversion, limits
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.pairs import DominatingPair, log_excess, renyi_divergence
from lrdp.accounting.privacy_loss import LARGEST_EPSILON, LossDistribution, compose, connect_the_dots
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost

History = Mapping[Mechanism, int]


@dataclass(frozen=True, kw_only=True)
class PrivacySpent:
    """A guarantee: neighbours are (epsilon, delta)-indistinguishable.

    ``order`` is the Rényi order that gave it, None where there is none. ``at_edge`` says that this order is the
    smallest or largest tried: the guarantee holds, but a wider search might tighten it.
    """

    epsilon: float
    delta: float
    order: float | None = None
    at_edge: bool = False


class Accountant(Protocol):
    """What calibration, planning and commands need of an accountant."""

    name: ClassVar[str]

    @property
    def adjacency(self) -> Adjacency:
        """The neighbours it answers for."""

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The smallest ε known for this history at ``delta``."""

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The smallest δ known for this history at ``epsilon``."""


@dataclass(frozen=True, kw_only=True)
class RenyiAccountant:
    """Exact Rényi divergences, summed over the steps and converted at the best order.

    Guarantees: never below the true divergence of the mechanism's dominating pair, and at most one part in 10⁶ above.
    """

    name: ClassVar[str] = "rdp"
    search: ClassVar[conversion.OrderSearch] = conversion.FINE_SEARCH
    adjacency: Adjacency

    def divergence(self, history: History, orders: FloatArray) -> FloatArray:
        """The Rényi divergence of the whole history at each order."""
        return self._divergence(history)(orders)

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The smallest ε over the orders searched."""
        _check_delta(delta)
        if not history:
            return PrivacySpent(epsilon=0.0, delta=delta)
        divergence = self._divergence(history)
        best = self.search.smallest(lambda orders: conversion.epsilon_at(divergence(orders), orders, delta))
        return PrivacySpent(epsilon=best.value, delta=delta, order=best.order, at_edge=best.at_edge)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The smallest δ over the orders searched."""
        _check_epsilon(epsilon)
        if not history:
            return PrivacySpent(epsilon=epsilon, delta=0.0)
        divergence = self._divergence(history)
        best = self.search.smallest(lambda orders: conversion.delta_at(divergence(orders), orders, epsilon))
        return PrivacySpent(epsilon=epsilon, delta=best.value, order=best.order, at_edge=best.at_edge)

    def _divergence(self, history: History) -> Callable[[FloatArray], FloatArray]:
        steps = np.array([_check_steps(count) for count in history.values()], dtype=np.float64)
        pairs = [mechanism.dominating_pair(self.adjacency) for mechanism in history]
        return lambda orders: steps @ renyi_divergence(self._log_excess(pairs, orders), orders)

    def _log_excess(self, pairs: Sequence[DominatingPair], orders: FloatArray) -> FloatArray:
        return log_excess(pairs, orders)


@dataclass(frozen=True, kw_only=True)
class TaylorAccountant(RenyiAccountant):
    """The paper's Taylor bound in place of the exact divergence: never below it.

    ``terms`` is the paper's m. The series is asymptotic: more terms help only while m ≲ σ² ln(1/q)/4.
    """

    name: ClassVar[str] = "taylor"
    search: ClassVar[conversion.OrderSearch] = conversion.OrderSearch(
        usual=(1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48),
        higher=(56, 64, 80, 96, 128, 192, 256),
    )
    terms: int = 4

    def __post_init__(self) -> None:
        limits.whole("taylor order", self.terms, 3, "the theorem is stated for m ≥ 3")

    def _log_excess(self, pairs: Sequence[DominatingPair], orders: FloatArray) -> FloatArray:
        return np.array([pair.log_excess_taylor(orders, self.terms) for pair in pairs])


@dataclass(frozen=True, kw_only=True)
class PldAccountant:
    """Privacy-loss distributions of removal and of addition, composed apart; the worse of the two counts.

    Guarantees: discretised so as to dominate; everything cut off is charged to δ.
    """

    name: ClassVar[str] = "pld"
    adjacency: Adjacency

    bins_per_spread: ClassVar[tuple[int, int]] = (50, 250)  # rounding adds 1e-4 to 4e-6 of the loss's own variance
    aimed_atoms: ClassVar[int] = 1 << 16  # of the composed distribution; fewer steps are resolved more finely
    largest_loss: ClassVar[float] = 600.0  # of one step; beyond, exp() would overflow
    most_bins: ClassVar[int] = 1 << 16  # of one step
    tail_share: ClassVar[float] = 1e-4  # of δ, given to what the discretisation cuts off

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The larger ε of the two directions."""
        _check_delta(delta)
        if not history:
            return PrivacySpent(epsilon=0.0, delta=delta)
        directions = self._directions(history, delta * self.tail_share)
        epsilon = max(direction.epsilon(delta) for direction in directions)
        if not math.isfinite(epsilon):
            lost = max(direction.infinity for direction in directions)
            why = f"delta is below {AtMost(lost):.1e}" if lost >= delta else f"epsilon is above {LARGEST_EPSILON}"
            raise InvalidInput(
                f"the pld accountant does not resolve delta={delta} after {sum(history.values())} steps, because "
                f"{why}: use the rdp accountant or a larger delta."
            )
        return PrivacySpent(epsilon=epsilon, delta=delta)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The larger δ of the two directions."""
        _check_epsilon(epsilon)
        if not history:
            return PrivacySpent(epsilon=epsilon, delta=0.0)
        directions = self._directions(history, 1e-15)
        return PrivacySpent(epsilon=epsilon, delta=max(direction.delta(epsilon) for direction in directions))

    def _directions(self, history: History, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """Removal and addition."""
        steps = sum(_check_steps(count) for count in history.values())
        pairs = [(mechanism.dominating_pair(self.adjacency), count) for mechanism, count in history.items()]
        ranges = [pair.loss_range(tail / steps) for pair, _ in pairs]
        widest = max(high - low for low, high in ranges)
        if not widest < self.largest_loss:
            raise InvalidInput(
                f"one step may lose up to {AtMost(widest):.3g}, above the limit of {self.largest_loss} that the pld "
                f"accountant resolves: add noise or use the rdp accountant."
            )
        width = self._width(pairs, widest, steps)
        removal, addition = [], []
        for (pair, count), (low, high) in zip(pairs, ranges, strict=True):
            bins = pair.bins(width, math.floor(low / width), math.ceil(high / width))
            removal.append((connect_the_dots(bins), count))
            addition.append((connect_the_dots(bins.mirrored()), count))
        return compose(removal, tail), compose(addition, tail)

    def _width(self, pairs: list[tuple[DominatingPair, int]], widest: float, steps: int) -> float:
        """Narrow against the typical loss of a step, so that rounding disappears in the noise; bounded in memory."""
        spread = math.sqrt(sum(count * pair.loss_spread() ** 2 for pair, count in pairs) / steps)
        least, most = self.bins_per_spread
        aimed = self.aimed_atoms / (16 * math.sqrt(steps))
        return max(spread / min(max(least, aimed), most), widest / self.most_bins)


def _check_steps(steps: int) -> int:
    return limits.whole("steps", steps, 1, "a history holds steps that were taken")


def _check_delta(delta: float) -> None:
    limits.open_unit("delta", delta, "it bounds the probability that the guarantee fails")


def _check_epsilon(epsilon: float) -> None:
    limits.positive("epsilon", epsilon, "it bounds the privacy loss")
