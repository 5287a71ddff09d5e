"""Pairs made of pairs: one of several by chance, and the chances themselves may be any of several.

A mechanism that behaves in one way or another at random, and tells the attacker which, is a mixture of pairs. Where
the chances follow something that is fixed but not known, such as the size of a data set, there is one row of chances
for every case, and what holds is the worst of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from lrdp.accounting.pairs import DominatingPair, log_excess
from lrdp.accounting.privacy_loss import LossBins
from lrdp.accounting.renyi import FloatArray, IndexArray

_TIE = 2.0**-48  # rows whose profiles differ by less than this count as equal; charged to δ
_RUN = 256


@dataclass(frozen=True)
class MixedPair:
    """With the probabilities of one row of ``weights``, one of ``pairs``, and the attacker is told which.

    Telling more cannot make the pair weaker (joint convexity), so profiles and moments average. The row is the same in
    every step but not known: each order's moment is the largest of all rows, which bounds each of them, and so is the
    profile at each ε. The largest of convex functions is convex, so that is the profile of a pair again
    (docs/accounting.md, Lemma 2): it dominates every row, alone and composed.
    """

    weights: tuple[tuple[float, ...], ...]
    pairs: tuple[DominatingPair, ...]

    @classmethod
    def log_excess_together(cls, pairs: Sequence[Self], orders: FloatArray) -> FloatArray:
        parts = iter(log_excess([part for pair in pairs for part in pair.pairs], orders))
        return np.array([pair._worst_moments([next(parts) for _ in pair.pairs]) for pair in pairs])

    def log_excess_taylor(self, orders: FloatArray, terms: int) -> FloatArray:
        return self._worst_moments([pair.log_excess_taylor(orders, terms) for pair in self.pairs])

    def loss_spread(self) -> float:
        squares = np.array([pair.loss_spread() ** 2 for pair in self.pairs])
        return float(np.sqrt((np.array(self.weights) @ squares).max()))

    def loss_range(self, tail: float) -> tuple[float, float]:
        lows, highs = zip(*(pair.loss_range(tail) for pair in self.pairs), strict=True)
        return min(lows), max(highs)

    def bins(self, width: float, first: int, last: int) -> LossBins:
        parts = [pair.bins(width, first, last) for pair in self.pairs]
        weights = np.array(self.weights)
        above = float((weights @ [part.upper_above for part in parts]).max())
        below = float((weights @ [part.lower_below for part in parts]).max())
        upper, lower = np.array([part.upper for part in parts]), np.array([part.lower for part in parts])
        if len(weights) == 1:
            return LossBins(width, first, weights[0] @ upper, weights[0] @ lower, above, below)
        # What one row has outside the grid and another does not, and what a tie may hide, counts as lost both ways.
        lost = above + below + 4 * _TIE
        return LossBins(width, first, *_worst_masses(width, first, weights, upper, lower), lost, lost)

    def _worst_moments(self, logs: list[FloatArray]) -> FloatArray:
        with np.errstate(divide="ignore"):
            weighted = np.log(np.array(self.weights))[:, :, None] + np.array(logs)
        return np.asarray(np.logaddexp.reduce(weighted, axis=1).max(axis=0))


def _worst_masses(
    width: float, first: int, weights: FloatArray, upper: FloatArray, lower: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """P's and Q's masses of the pair whose profile at each edge is the largest of all rows', up to ``_TIE``.

    With S, R the masses of P, Q above an edge, a row's profile there is S - e^ε·R, and above each edge the worst pair
    has the masses of the row that is worst there. So a bin between edges with one worst row has that row's masses, and
    one where the worst changes from row j to row k has S_j(left edge) - S_k(right edge): j's own mass, plus what j has
    above the right edge beyond what k has there.
    """
    from_p, from_q = _sums_from_above(upper), _sums_from_above(lower)
    edges = (first + np.arange(from_p.shape[1])) * width
    worst = _worst_rows(weights @ (from_p - np.exp(edges) * from_q))
    changes = np.flatnonzero(np.diff(worst))
    gained = weights[worst[changes]] - weights[worst[changes + 1]]
    masses = []
    for inside, outside in ((upper, from_p), (lower, from_q)):
        chosen = np.einsum("ij,ji->i", weights[worst[:-1]], inside)
        chosen[changes] += np.einsum("ij,ji->i", gained, outside[:, changes + 1])
        masses.append(np.maximum(chosen, 0.0))
    return masses[0], masses[1]


def _sums_from_above(masses: FloatArray) -> FloatArray:
    """The mass above each edge, the last edge included, where it is 0: summed in runs, so that rounding stays small."""
    count = masses.shape[1]
    runs = np.pad(masses[:, ::-1], ((0, 0), (0, -count % _RUN))).reshape(len(masses), -1, _RUN)
    inside, totals = np.cumsum(runs, axis=2), runs.sum(axis=2)
    before = np.cumsum(totals, axis=1) - totals
    sums = (inside + before[:, :, None]).reshape(len(masses), -1)[:, :count]
    return np.concatenate([sums[:, ::-1], np.zeros((len(masses), 1))], axis=1)


def _worst_rows(profiles: FloatArray) -> IndexArray:
    """Which row is largest at each edge; from the lowest edge up it changes only where one lags by ``_TIE``."""
    largest = profiles.max(axis=0)
    rows = np.empty(profiles.shape[1], dtype=np.int64)
    start = 0
    while start < len(rows):
        row = int(np.argmax(profiles[:, start]))
        lags = profiles[row, start:] < largest[start:] - _TIE
        end = start + int(np.argmax(lags)) if lags.any() else len(rows)
        rows[start:end] = row
        start = end
    return rows
