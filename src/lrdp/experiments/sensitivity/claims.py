"""What a server that keeps one account for all would claim of each client's ε, and what each one's own books say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lrdp.accounting import Accountant, Mechanism, SampledGaussian
from lrdp.experiments.sensitivity.participation import Attendance, Counts

Epsilons = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Meter:
    """ε of this many rounds of ``local_steps`` steps each, by the real accountant."""

    mechanism: SampledGaussian
    accountant: Accountant
    local_steps: int
    delta: float

    def of(self, rounds: Counts) -> Epsilons:
        """Of each client; every number of rounds is asked for once."""
        counts, places = np.unique(rounds, return_inverse=True)
        return np.array([self.one(int(count)) for count in counts])[places]

    def one(self, rounds: int) -> float:
        """0 for whoever never took part."""
        history: dict[Mechanism, int] = {self.mechanism: rounds * self.local_steps} if rounds else {}
        return self.accountant.epsilon(history, self.delta).epsilon

    def diluted(self, rate: float) -> Meter:
        """As if a client's absence hid its records: each is drawn with probability q · rate."""
        size = math.floor(self.mechanism.dataset_size / rate)
        return replace(self, mechanism=replace(self.mechanism, dataset_size=size))


ClaimedCost = Callable[[Meter, Attendance], Epsilons]


def _average(meter: Meter, seen: Attendance) -> Epsilons:
    """Everybody as if it had taken part as often as all do on average."""
    return np.full(len(seen.charged), meter.one(math.ceil(seen.rate * seen.rounds)))


def _every_round(meter: Meter, seen: Attendance) -> Epsilons:
    """Everybody as if it had always taken part: sound, and expensive."""
    return np.full(len(seen.charged), meter.one(seen.rounds))


def _sampled_clients(meter: Meter, seen: Attendance) -> Epsilons:
    """Every round, amplified by the clients' sampling.

    Not valid where noise is added locally and the server, or whoever listens, sees who took part; and where a client
    takes several local steps, its presence is drawn once for all of them, which this formula does not know either.
    """
    return np.full(len(seen.charged), meter.diluted(seen.rate).one(seen.rounds))


def _arrived(meter: Meter, seen: Attendance) -> Epsilons:
    """Each client on its own, by the updates that came in: what was lost on the way is forgotten."""
    return meter.of(seen.arrived)


CLAIMS: Final[Mapping[str, ClaimedCost]] = {
    "average participation": _average,
    "every round": _every_round,
    "amplified by client sampling": _sampled_clients,
    "updates that arrived": _arrived,
}


@dataclass(frozen=True, kw_only=True)
class Compared:
    """Claimed minus true, over all clients."""

    under: float
    over: float
    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, claimed: Epsilons, true: Epsilons) -> Compared:
        """``under`` and ``over`` are shares of the clients, the others are in units of ε."""
        gap = claimed - true
        return cls(
            under=float((gap < 0).mean()),
            over=float((gap > 0).mean()),
            mean=float(gap.mean()),
            least=float(gap.min()),
            most=float(gap.max()),
        )
