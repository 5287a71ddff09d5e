"""Who takes part in which round, where clients come and go as they like: counts only, nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lrdp import limits
from lrdp.errors import InvalidInput

Counts = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """How clients take part.

    Each has a rate of its own, uniform from ``rate_least`` to ``rate_most``: how likely it is to train in a round while
    it is there. It is there for ``stay`` rounds and then away for ``pause``, both on average, and memoryless; with
    ``pause = 0`` it is always there. Of its updates, ``lost`` never arrive, though they are paid for.
    """

    rate_least: float
    rate_most: float
    stay: float = 1.0
    pause: float = 0.0
    lost: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.rate_least <= self.rate_most <= 1:
            raise InvalidInput(
                f"rates must satisfy 0 < rate_least ≤ rate_most ≤ 1, got {self.rate_least} and {self.rate_most}: they "
                f"are probabilities, and whoever never takes part is not a client. Nothing was run."
            )
        if not (self.stay >= 1 and self.pause >= 0 and 0 <= self.lost < 1):
            raise InvalidInput(
                f"a pattern needs stay ≥ 1, pause ≥ 0 and lost in [0, 1), got {self.stay}, {self.pause} and "
                f"{self.lost}: rounds are counted, and some updates must arrive. Nothing was run."
            )


@dataclass(frozen=True, kw_only=True)
class Attendance:
    """Of each client: the rounds it trained in and paid for, and those whose update arrived."""

    rounds: int
    charged: Counts
    arrived: Counts

    @property
    def rate(self) -> float:
        """The share of all turns that were taken, over all clients: what a server sees."""
        return float(self.charged.mean()) / self.rounds


def attend(pattern: Pattern, clients: int, rounds: int, seed: int) -> Attendance:
    """Round after round, by public chance."""
    limits.whole("clients", clients, 1, "a federation has a client")
    limits.whole("rounds", rounds, 1, "a run has at least one round")
    chance = np.random.default_rng([seed, clients, rounds])
    rates = chance.uniform(pattern.rate_least, pattern.rate_most, clients)
    there = chance.random(clients) < pattern.stay / (pattern.stay + pattern.pause)
    charged, arrived = np.zeros(clients, np.int64), np.zeros(clients, np.int64)
    for _ in range(rounds):
        trains = there & (chance.random(clients) < rates)
        charged += trains
        arrived += trains & (chance.random(clients) >= pattern.lost)
        there = _moved_on(pattern, there, chance.random(clients))
    return Attendance(rounds=rounds, charged=charged, arrived=arrived)


def _moved_on(pattern: Pattern, there: NDArray[np.bool_], chance: NDArray[np.float64]) -> NDArray[np.bool_]:
    if pattern.pause == 0:
        return there
    return np.where(there, chance >= 1 / pattern.stay, chance < 1 / max(1.0, pattern.pause))
