"""By which rule verified models are averaged; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lrdp import limits
from lrdp.errors import InvalidInput

_MOST_ROUNDS: Final = 10_000


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """The last ``rounds`` models, of which each weighs ``decay`` times as much as the one after it; 1: all alike.

    >>> Averaging(rounds=3, decay=0.5).weights(3)
    [0.14285714285714285, 0.2857142857142857, 0.5714285714285714]
    """

    rounds: int
    decay: float = 1.0

    def __post_init__(self) -> None:
        rounds = limits.whole("rounds", self.rounds, 1, "an average is of at least one model")
        if rounds > _MOST_ROUNDS:
            raise InvalidInput(f"rounds must be at most {_MOST_ROUNDS}, got {rounds}: that many models would be kept.")
        why = "older models weigh no more than newer ones"
        limits.keep(self, rounds=rounds, decay=limits.between("decay", self.decay, 1e-6, 1.0, why))

    def weights(self, count: int) -> list[float]:
        """For ``count`` models, the oldest first; they add up to one."""
        # by products alone, which every machine rounds alike: powers are not
        found = [1.0]
        for _ in range(count - 1):
            found.append(found[-1] * self.decay)
        whole = sum(found)
        return [weight / whole for weight in reversed(found)]
