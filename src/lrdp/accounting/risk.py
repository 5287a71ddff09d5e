"""What an attacker can find out: how well any test tells whether one record (or one person) was there.

Every (ε, δ) that holds bounds every test: its true-positive rate is at most e^ε times its false-positive rate plus δ,
and the same with the two data sets exchanged. A loss distribution knows δ at every ε, so it gives the whole trade-off
curve, where one (ε, δ) gives two lines: at ε = 4.1 and δ = 1e-5 these allow 98.4 right guesses in 100, where the curve
of the paper's mechanism allows 67.

Formal guarantees: every line holds, so the least of them does; a line left out only loosens the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, localcontext
from typing import Final, Self

import numpy as np

from lrdp import limits
from lrdp.accounting.accountants import History, PldAccountant, PrivacySpent
from lrdp.accounting.groups import GroupAccountant
from lrdp.accounting.privacy_loss import LARGEST_EPSILON, LossDistribution
from lrdp.errors import Unsupported
from lrdp.figures import AtMost

RateLines = tuple[tuple[float, float], ...]

FALSE_POSITIVES: Final = (0.001, 0.01, 0.1)
"""The false-positive rates at which the largest true-positive rate is reported."""
_CURVE: Final = np.geomspace(1e-6, 1.0, 61)
_LINES = 2001  # on either side of 0: at ε = 10 one every 0.005, which costs less than 1e-5 of a rate
_UNSEEN = 1e-9  # lines beyond the loss that is exceeded with this probability gain nothing
_TAIL = 1e-12
_ROUND_UP = 1e-12  # above the error of the sums below


@dataclass(frozen=True, kw_only=True)
class Risk:
    """The figures of a trade-off curve that people read; none is below what an attack can reach.

    ``guess_rate`` is how often a guess at one record's presence is right, where chance is one half; ``advantage`` the
    largest difference of the two rates of a test; ``true_positives`` what is found at each of ``FALSE_POSITIVES``.
    """

    guess_rate: float
    advantage: float
    true_positives: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("guess_rate", "advantage"):
            limits.between(name, getattr(self, name), 0.0, 1.0, "it is a rate")
        for rate in self.true_positives:
            limits.between("true_positives", rate, 0.0, 1.0, "they are rates")


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """No test for a record's presence exceeds, for any line (ε, δ) of ``presence``, e^ε·(its false-positive rate) + δ.

    ``absence`` bounds in the same way the tests that raise the alarm when a record is missing.

    >>> point = TradeOff.of_points([PrivacySpent(epsilon=1.0, delta=1e-5)])
    >>> f"{point.true_positives(0.01):.4f}", f"{point.risk.guess_rate:.3f}"
    ('0.0272', '0.731')
    """

    presence: RateLines
    absence: RateLines
    advantage: float

    def __post_init__(self) -> None:
        limits.between("advantage", self.advantage, 0.0, 1.0, "it is a difference of two rates")

    @classmethod
    def of_points(cls, points: Iterable[PrivacySpent]) -> Self:
        """What some (ε, δ) alone allow: each in both directions."""
        lines, advantage = [(0.0, 1.0)], 1.0
        for point in points:
            if math.isfinite(point.epsilon):
                lines += [(point.epsilon, point.delta), (-point.epsilon, _of_the_others(point))]
                advantage = min(advantage, math.nextafter(2 * guess_rate(point) - 1, 1.0))
        return cls(presence=tuple(lines), absence=tuple(lines), advantage=max(advantage, 0.0))

    @classmethod
    def of_losses(cls, directions: tuple[LossDistribution, LossDistribution]) -> Self:
        """The curves of a composed pair, by removal and by addition."""
        reach = max(1.0, *(min(each.epsilon(_UNSEEN + each.infinity), LARGEST_EPSILON) for each in directions))
        epsilons = np.linspace(-reach, reach, 2 * _LINES - 1)
        epsilons[_LINES - 1] = 0.0
        deltas = [np.minimum(each.deltas(epsilons) + _ROUND_UP, 1.0).tolist() for each in directions]
        presence, absence = (tuple(zip(epsilons.tolist(), each, strict=True)) for each in deltas)
        return cls(presence=presence, absence=absence, advantage=max(each[_LINES - 1] for each in deltas))

    @property
    def risk(self) -> Risk:
        """Its figures."""
        return Risk(
            guess_rate=min(math.nextafter((1 + self.advantage) / 2, 2.0), 1.0) if self.advantage else 0.5,
            advantage=self.advantage,
            true_positives=tuple(map(self.true_positives, FALSE_POSITIVES)),
        )

    def true_positives(self, false_positives: float) -> float:
        """The largest true-positive rate of any test, for presence or for absence, with this false-positive rate."""
        rate = limits.between("false_positives", false_positives, 0.0, 1.0, "it is a rate")
        reached = max(_least(lines, rate) for lines in (self.presence, self.absence))
        return min(reached * (1 + 1e-14), rate + self.advantage, 1.0)

    def curve(self) -> RateLines:
        """False-positive rates from one in a million on, each with the largest true-positive rate."""
        return tuple((rate, self.true_positives(rate)) for rate in _CURVE.tolist())

    def and_also(self, other: TradeOff) -> TradeOff:
        """What holds where both do."""
        return TradeOff(
            presence=self.presence + other.presence,
            absence=self.absence + other.absence,
            advantage=min(self.advantage, other.advantage),
        )


def _least(lines: RateLines, rate: float) -> float:
    epsilons, deltas = np.array(lines).T
    with np.errstate(over="ignore"):
        return float(np.nan_to_num(np.exp(epsilons) * rate + deltas, nan=1.0).min())


def guess_rate(spent: PrivacySpent) -> AtMost:
    """(e^ε + δ)/(1 + e^ε): no test of two equally likely neighbours is right more often.

    >>> f"{guess_rate(PrivacySpent(epsilon=4.1, delta=1e-5)):.3f}"
    '0.984'
    """
    with localcontext(AtMost.context()):
        shrunk = Decimal(-spent.epsilon).exp().next_minus() if spent.epsilon else Decimal(1)
        return AtMost.of(min((1 + Decimal(spent.delta) * shrunk) / (1 + shrunk), Decimal(1)))


def trade_off(accountant: PldAccountant, history: History, delta: float) -> TradeOff:
    """The curve of a history that was fixed in advance; where none is resolved, that of its ε at ``delta``.

    >>> from lrdp.accounting import FALSE_POSITIVES, Adjacency, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> found = trade_off(PldAccountant(adjacency=Adjacency.ADD_REMOVE), {step: 10_000}, delta=1e-5).risk
    >>> f"{found.guess_rate:.2f}", [f"{rate:.3f}" for rate in found.true_positives], FALSE_POSITIVES
    ('0.73', ['0.031', '0.134', '0.473'], (0.001, 0.01, 0.1))
    """
    if not history:
        return TradeOff(presence=((0.0, 0.0),), absence=((0.0, 0.0),), advantage=0.0)
    try:
        return TradeOff.of_losses(accountant.directions(history, _TAIL))
    except Unsupported:
        by_point = GroupAccountant(adjacency=accountant.adjacency, rows=accountant.rows)
    with suppress(Unsupported):
        return TradeOff.of_points([by_point.epsilon(history, delta)])
    return TradeOff.of_points([])


def _of_the_others(point: PrivacySpent) -> float:
    """1 - (1 - δ)·e^-ε, rounded up: the same statement about everything that raises no alarm in a test."""
    with localcontext(AtMost.context()):
        shrunk = Decimal(-point.epsilon).exp().next_minus() if point.epsilon else Decimal(1)
        return float(AtMost.of(1 - (1 - Decimal(point.delta)) * shrunk))
