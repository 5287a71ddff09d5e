"""Dominating pairs: the two distributions an attacker must tell apart in the worst case.

Every accountant reads a mechanism through its pair, in both directions (P, Q) for removal and (Q, P) for addition, so a
new mechanism needs one pair and no accountant needs to know which mechanisms exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy.special import ndtr, ndtri

from lrdp.accounting.privacy_loss import LossBins
from lrdp.accounting.renyi import FloatArray, log_excess_replaced, log_excess_sampled
from lrdp.accounting.taylor import log_excess_taylor
from lrdp.errors import Unsupported

_ROUND_UP = 1 + 1e-9  # above every error of the arithmetic below it, below every figure anyone reads
_TABLE = 1 << 14
_NEWTON_STEPS = 40
_NEWTON_MISS = 1e-11  # in loss, against bins of 1e-6 at the narrowest


class DominatingPair(Protocol):
    """What an accountant needs to know about a pair (P, Q)."""

    @classmethod
    def log_excess_together(cls, pairs: Sequence[Self], orders: FloatArray) -> FloatArray:
        """log(A - 1), A = E_Q[(P/Q)^order], at least as large as for (Q, P): a row per pair, a column per order."""

    def log_excess_taylor(self, orders: FloatArray, terms: int) -> FloatArray:
        """The paper's Taylor bound on the same."""

    def loss_spread(self) -> float:
        """Root mean square of the privacy loss, the scale that a discretisation must resolve."""

    def loss_range(self, tail: float) -> tuple[float, float]:
        """Losses outside which P (above) and Q (below) hold at most ``tail``."""

    def bins(self, width: float, first: int, last: int) -> LossBins:
        """Masses in the bins from ``first`` up to, not including, ``last``."""


def log_excess(pairs: Sequence[DominatingPair], orders: FloatArray) -> FloatArray:
    """log(A - 1) of each pair, one row each; pairs of one kind are evaluated together."""
    kinds = {type(pair) for pair in pairs}
    if len(kinds) == 1:
        return kinds.pop().log_excess_together(pairs, orders)
    result = np.empty((len(pairs), len(orders)))
    for kind in kinds:
        rows = [row for row, pair in enumerate(pairs) if type(pair) is kind]
        result[rows] = kind.log_excess_together([pairs[row] for row in rows], orders)
    return result


def renyi_divergence(log_excess: FloatArray, orders: FloatArray) -> FloatArray:
    """D_order from log(A - 1), rounded up; what is not a number is +∞."""
    divergence = np.logaddexp(0.0, log_excess) / (orders - 1) * _ROUND_UP
    return np.where(np.isnan(divergence), np.inf, divergence)


@dataclass(frozen=True)
class GaussianMixturePair:
    """P = w₀ N(0,s²) + Σ_{k≥1} w_k N(k,s²) against Q = N(0,s²); ``weights`` are w₁, w₂, …, and w₀ is the rest.

    Shifts of given lengths are worst when they point the same way (docs/accounting.md, Lemma 1), so this pair dominates
    removal and, reversed, addition. One weight is the subsampled Gaussian of [eq:Renyi_ub], for which D(Q‖P) ≤ D(P‖Q)
    (arXiv 1908.10530v1, Section 3).
    """

    weights: tuple[float, ...]
    deviation: float

    @classmethod
    def log_excess_together(cls, pairs: Sequence[Self], orders: FloatArray) -> FloatArray:
        for pair in pairs:
            pair._need_one_weight("rdp")
        probability = np.array([pair.weights[0] for pair in pairs])
        return log_excess_sampled(probability, np.array([pair.deviation for pair in pairs]), orders)

    def log_excess_taylor(self, orders: FloatArray, terms: int) -> FloatArray:
        self._need_one_weight("taylor")
        if not self._base():
            raise Unsupported(
                "the taylor accountant needs a sampling probability below 1: the whole data set has an exact cost, so "
                "use the rdp accountant."
            )
        return log_excess_taylor(self.weights[0], self.deviation, orders, terms)

    def loss_spread(self) -> float:
        z = np.linspace(-10.0, 10.0 + len(self.weights) / self.deviation, 2001)
        loss, _ = self._loss_and_slope(z)
        density = np.exp(loss - z**2 / 2)
        return float(np.sqrt(np.dot(density, loss**2) / density.sum()))

    def loss_range(self, tail: float) -> tuple[float, float]:
        # Half of the tail is left to the weights too small to follow, half to the ends of the others.
        reach = float(-ndtri(tail / 2))
        followed = self._weights() > tail / (2 * len(self.weights))
        furthest = reach + self._shifts()[followed].max(initial=0.0)
        from scipy.optimize import brentq  # here: commands that need no loss distribution start without it

        top = brentq(lambda z: self._above(z) - tail, 0.0, furthest + 1.0) if self._above(0.0) > tail else 0.0
        lowest, highest = self._loss_and_slope(np.array([-reach, top]))[0]
        return float(lowest), float(highest)

    def bins(self, width: float, first: int, last: int) -> LossBins:
        z = self._position(np.arange(first, last + 1, dtype=np.float64) * width)
        lower = _normal_masses(z)
        upper = self._base() * lower
        for weight, shift in zip(self.weights, self._shifts(), strict=True):
            upper = upper + weight * _normal_masses(z - shift)
        return LossBins(
            width=width,
            lowest=first,
            upper=upper,
            lower=lower,
            upper_above=self._above(float(z[-1])),
            lower_below=float(ndtr(z[0])),
        )

    def _weights(self) -> FloatArray:
        return np.array(self.weights)

    def _shifts(self) -> FloatArray:
        return np.arange(1, len(self.weights) + 1) / self.deviation

    def _base(self) -> float:
        """w₀, the weight of N(0,s²)."""
        return max(0.0, 1 - sum(self.weights))

    def _above(self, z: float) -> float:
        """P's mass above z standard deviations."""
        return self._base() * float(ndtr(-z)) + float(self._weights() @ ndtr(self._shifts() - z))

    def _loss_and_slope(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """log(P/Q) at z standard deviations, convex and increasing, and its derivative."""
        shifts, base = self._shifts()[:, None], self._base()
        exponents = shifts * z - shifts**2 / 2
        highest = exponents.max(axis=0)
        peak = np.maximum(highest - 600.0, 0.0) if base else highest  # so that exp neither overflows nor vanishes
        rest = base * np.exp(-peak) if base else 0.0
        far = peak + np.log(rest + self._weights() @ np.exp(exponents - peak))
        small = np.clip(self._weights() @ np.expm1(np.minimum(exponents, 600.0)), -0.5, 1.0)
        loss = np.where(np.abs(far) < 0.1, np.log1p(small), far)  # near 0 the logarithm of 1 + small is exact
        slope = (self._weights() * self._shifts()) @ np.exp(exponents - loss)
        return loss, slope

    def _position(self, losses: FloatArray) -> FloatArray:
        """Where the loss takes each value: -∞ below its infimum log w₀; explicit for one weight."""
        if not self._base():
            return losses * self.deviation + 1 / (2 * self.deviation)
        with np.errstate(divide="ignore", invalid="ignore"):
            excess = (np.expm1(losses) + sum(self.weights)) / self.weights[0]
            z = np.where(excess > 0, np.log(excess) * self.deviation + 1 / (2 * self.deviation), -np.inf)
        if len(self.weights) == 1:
            return z
        # Without the further shifts the loss is smaller, so the position found lies to the right of the true one. A
        # table brings it close, and Newton's method on a convex increasing function makes it exact.
        inside = np.isfinite(z)
        table = np.linspace(z[inside].min() - 1.0, z[inside].max(), _TABLE)
        moving = np.interp(losses[inside], self._loss_and_slope(table)[0], table)
        for _ in range(_NEWTON_STEPS):
            loss, slope = self._loss_and_slope(moving)
            miss = loss - losses[inside]
            if np.abs(miss).max(initial=0.0) < _NEWTON_MISS:
                break
            moving = moving - miss / slope
        z[inside] = moving
        return z

    def _need_one_weight(self, name: str) -> None:
        if len(self.weights) > 1:
            raise Unsupported(
                f"the {name} accountant has no useful bound for sampling with replacement: its moments are ruled by "
                f"the event that one record fills the whole batch, so use the pld accountant."
            )


@dataclass(frozen=True)
class ReplaceOnePair:
    """Fixed size without replacement under replace-one, from its privacy profile.

    δ(ε) = q·δ_Gauss(log1p(expm1(ε)/q)) for ε ≥ 0 and δ(ε) = 1 - e^ε + e^ε δ(-ε) below (arXiv 1807.01647v2, sampling
    without replacement under substitution). Differentiating it gives the pair: losses above 0 are distributed as in the
    subsampled pair, losses below 0 are their mirror image, and what is left sits at 0.
    """

    probability: float
    deviation: float

    @classmethod
    def log_excess_together(cls, pairs: Sequence[Self], orders: FloatArray) -> FloatArray:
        probability = np.array([pair.probability for pair in pairs])
        return log_excess_replaced(probability, np.array([pair.deviation for pair in pairs]), orders)

    def log_excess_taylor(self, orders: FloatArray, terms: int) -> FloatArray:  # noqa: ARG002
        raise Unsupported(
            "the taylor accountant covers add-remove only: the paper's bound lies below the replace-one divergence, so "
            "use the rdp or pld accountant."
        )

    def loss_spread(self) -> float:
        return self._positive().loss_spread()

    def loss_range(self, tail: float) -> tuple[float, float]:
        _, top = self._positive().loss_range(tail)
        return -top, top

    def bins(self, width: float, first: int, last: int) -> LossBins:
        reach = max(
            -first, last, 1
        )  # where sampling is so rare that no loss is in reach, the atom at 0 is all there is
        positive = self._positive().bins(width, 0, reach)
        upper = np.concatenate([positive.lower[::-1], positive.upper])
        lower = np.concatenate([positive.upper[::-1], positive.lower])
        above_both = positive.upper_above
        at_zero = max(0.0, 1.0 - float(upper.sum()) - above_both)
        upper[reach] += at_zero
        lower[reach] += at_zero
        return LossBins(
            width=width, lowest=-reach, upper=upper, lower=lower, upper_above=above_both, lower_below=above_both
        )

    def _positive(self) -> GaussianMixturePair:
        return GaussianMixturePair(weights=(self.probability,), deviation=self.deviation)


def _normal_masses(z: FloatArray) -> FloatArray:
    """N(0,1)'s mass between consecutive points, from whichever tail is smaller."""
    below, above = ndtr(z), ndtr(-z)
    return np.asarray(np.where(z[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1]))
