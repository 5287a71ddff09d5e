"""Accountants: fold a history of steps into (ε, δ).

A history maps each mechanism to the number of steps taken with it; steps may differ in every parameter, and their order
does not matter. Each accountant is a value that carries the adjacency it answers for.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lrdp import limits
from lrdp.accounting import conversion
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.pairs import DominatingPair, log_excess, renyi_divergence
from lrdp.accounting.privacy_loss import LARGEST_EPSILON, LossDistribution, compose, connect_the_dots
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import Unsupported
from lrdp.figures import AtMost

History = Mapping[Mechanism, int]
"""How many steps were taken of each mechanism."""


def checked_history(history: History) -> dict[Mechanism, int]:
    """The history in plain numbers; refused if anything in it is not a mechanism with a number of steps.

    >>> from lrdp.accounting import Gaussian
    >>> checked_history({Gaussian(noise_multiplier=2.0): np.int16(300)})
    {Gaussian(noise_multiplier=2.0): 300}
    """
    return {
        limits.derived_from("mechanism", mechanism, Mechanism): limits.whole("steps", steps, 1, "steps are counted")
        for mechanism, steps in limits.derived_from("history", history, Mapping).items()  # type: ignore[type-abstract]
    }


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

    def __post_init__(self) -> None:
        limits.keep(
            self,
            epsilon=limits.bound("epsilon", self.epsilon),
            delta=limits.between("delta", self.delta, 0.0, 1.0, "it is a probability"),
            order=None if self.order is None else limits.above_one("order", self.order, "Rényi orders are"),
            at_edge=limits.made_by("at_edge", self.at_edge, bool),
        )


@dataclass(frozen=True, kw_only=True)
class Accountant(ABC):
    """What calibration, planning and commands need: an accountant's answers, and the neighbours it answers for."""

    name: ClassVar[str]
    adjacency: Adjacency

    def __post_init__(self) -> None:
        limits.made_by("adjacency", self.adjacency, Adjacency)

    @abstractmethod
    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The smallest ε known for this history at ``delta``."""

    @abstractmethod
    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The smallest δ known for this history at ``epsilon``."""


@dataclass(frozen=True, kw_only=True)
class RenyiAccountant(Accountant):
    """Exact Rényi divergences, summed over the steps and converted at the best order.

    >>> from lrdp.accounting import Adjacency, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    >>> accountant.epsilon({step: 100}, delta=1e-5).epsilon < accountant.epsilon({step: 200}, delta=1e-5).epsilon
    True

    Guarantees: never below the true divergence of the mechanism's dominating pair, and at most one part in 10⁶ above,
    unless there is next to no noise (docs/accounting.md): then the unsampled Gaussian's divergence stands in.
    """

    name: ClassVar[str] = "rdp"
    search: ClassVar[conversion.OrderSearch] = conversion.FINE_SEARCH

    def divergence(self, history: History, orders: FloatArray) -> FloatArray:
        """The Rényi divergence of the whole history at each order."""
        return self._divergence(checked_history(history))(conversion.checked_orders(orders))

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The smallest ε over the orders searched."""
        steps, delta = checked_history(history), _checked_delta(delta)
        if not steps:
            return PrivacySpent(epsilon=0.0, delta=delta)
        divergence = self._divergence(steps)
        best = self.search.smallest(lambda orders: conversion.epsilon_at(divergence(orders), orders, delta))
        return PrivacySpent(epsilon=best.value, delta=delta, order=best.order, at_edge=best.at_edge)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The smallest δ over the orders searched."""
        steps, epsilon = checked_history(history), _checked_epsilon(epsilon)
        if not steps:
            return PrivacySpent(epsilon=epsilon, delta=0.0)
        divergence = self._divergence(steps)
        best = self.search.smallest(lambda orders: conversion.delta_at(divergence(orders), orders, epsilon))
        return PrivacySpent(epsilon=epsilon, delta=best.value, order=best.order, at_edge=best.at_edge)

    def _divergence(self, history: History) -> Callable[[FloatArray], FloatArray]:
        steps = np.array(list(history.values()), dtype=np.float64)
        pairs = [mechanism.dominating_pair(self.adjacency) for mechanism in history]
        return lambda orders: steps @ renyi_divergence(self._log_excess(pairs, orders), orders)

    def _log_excess(self, pairs: Sequence[DominatingPair], orders: FloatArray) -> FloatArray:
        return log_excess(pairs, orders)


@dataclass(frozen=True, kw_only=True)
class TaylorAccountant(RenyiAccountant):
    """The paper's Taylor bound in place of the exact divergence: never below it.

    ``terms`` is the paper's m. The series is asymptotic: more terms help only while m ≲ σ² ln(1/q)/4.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> usual = Adjacency.ADD_REMOVE
    >>> exact, paper = (each(adjacency=usual).epsilon({step: 9}, 1e-5) for each in (RenyiAccountant, TaylorAccountant))
    >>> exact.epsilon <= paper.epsilon
    True
    """

    name: ClassVar[str] = "taylor"
    search: ClassVar[conversion.OrderSearch] = conversion.OrderSearch(
        usual=(1.5, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 36, 40, 48),
        higher=(56, 64, 80, 96, 128, 192, 256),
    )
    terms: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, terms=limits.whole("taylor order", self.terms, 3, "the theorem is stated for m ≥ 3"))

    def _log_excess(self, pairs: Sequence[DominatingPair], orders: FloatArray) -> FloatArray:
        return np.array([pair.log_excess_taylor(orders, self.terms) for pair in pairs])


@dataclass(frozen=True, kw_only=True)
class PldAccountant(Accountant):
    """Privacy-loss distributions of removal and of addition, composed separately; the worse of the two counts.

    ``rows`` is how many rows of one person are added, removed or replaced together.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> one, three = (PldAccountant(adjacency=Adjacency.ADD_REMOVE, rows=rows) for rows in (1, 3))
    >>> [f"{each.epsilon({step: 1000}, delta=1e-5).epsilon:.2f}" for each in (one, three)]
    ['1.53', '5.35']

    Guarantees: discretised so as to dominate; everything cut off is charged to δ.
    """

    name: ClassVar[str] = "pld"
    rows: int = 1

    bins_per_spread: ClassVar[tuple[int, int]] = (50, 250)  # rounding adds 1e-4 to 4e-6 of the loss's own variance
    aimed_atoms: ClassVar[int] = 1 << 16  # of the composed distribution; fewer steps are resolved more finely
    largest_loss: ClassVar[float] = 600.0  # of one step; beyond it, exp() would overflow
    most_bins: ClassVar[int] = 1 << 16  # of one step
    tail_share: ClassVar[float] = 1e-4  # of δ, given to what the discretisation cuts off

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, rows=limits.whole("rows", self.rows, 1, "a person without rows is not in the data"))

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The larger ε of the two directions."""
        steps, delta = checked_history(history), _checked_delta(delta)
        if not steps:
            return PrivacySpent(epsilon=0.0, delta=delta)
        directions = self.directions(steps, delta * self.tail_share)
        epsilon = max(direction.epsilon(delta) for direction in directions)
        if not math.isfinite(epsilon):
            lost = max(direction.infinity for direction in directions)
            why = f"delta is below {AtMost(lost):.1e}" if lost >= delta else f"epsilon is above {LARGEST_EPSILON}"
            raise Unsupported(
                f"the pld accountant does not resolve delta={delta} after {sum(steps.values())} steps, because "
                f"{why}: use the rdp accountant or a larger delta."
            )
        return PrivacySpent(epsilon=epsilon, delta=delta)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The larger δ of the two directions."""
        steps, epsilon = checked_history(history), _checked_epsilon(epsilon)
        if not steps:
            return PrivacySpent(epsilon=epsilon, delta=0.0)
        directions = self.directions(steps, 1e-15)
        return PrivacySpent(epsilon=epsilon, delta=max(direction.delta(epsilon) for direction in directions))

    def directions(self, history: History, tail: float) -> tuple[LossDistribution, LossDistribution]:
        """The loss distributions of removal and addition; what is cut off, at most ``tail`` of each, counts as lost."""
        history = checked_history(history)
        steps = sum(history.values())
        pairs = [(mechanism.group_pair(self.adjacency, self.rows), count) for mechanism, count in history.items()]
        ranges = [pair.loss_range(tail / steps) for pair, _ in pairs]
        widest = max(high - low for low, high in ranges)
        if not widest < self.largest_loss:
            raise Unsupported(
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


@dataclass(frozen=True, kw_only=True)
class SteadyAccountant(Accountant):
    """The pld accountant's ε; where it resolves none, the rdp accountant's; where that has none either, infinity.

    >>> from lrdp.accounting import Gaussian
    >>> loud = Gaussian(noise_multiplier=1e-3)
    >>> f"{SteadyAccountant(adjacency=Adjacency.ADD_REMOVE).epsilon({loud: 1}, 1e-5).epsilon:.0f}"
    '525226'

    Guarantees: an answer to every history, each of them sound. For figures that are needed during training: what
    has already been charged must not be lost in an error.
    """

    name: ClassVar[str] = "pld"

    def epsilon(self, history: History, delta: float) -> PrivacySpent:
        """The first ε that is known, or infinity."""
        steps, delta = checked_history(history), _checked_delta(delta)
        return self._first(lambda each: each.epsilon(steps, delta)) or PrivacySpent(epsilon=math.inf, delta=delta)

    def delta(self, history: History, epsilon: float) -> PrivacySpent:
        """The first δ that is known, or 1."""
        steps, epsilon = checked_history(history), _checked_epsilon(epsilon)
        return self._first(lambda each: each.delta(steps, epsilon)) or PrivacySpent(epsilon=epsilon, delta=1.0)

    def _first(self, asked: Callable[[Accountant], PrivacySpent]) -> PrivacySpent | None:
        for each in (PldAccountant(adjacency=self.adjacency), RenyiAccountant(adjacency=self.adjacency)):
            with suppress(Unsupported):
                return asked(each)
        return None


def _checked_delta(delta: float) -> float:
    return limits.open_unit("delta", delta, "it bounds the probability that the guarantee fails")


def _checked_epsilon(epsilon: float) -> float:
    return limits.positive("epsilon", epsilon, "it bounds the privacy loss")
