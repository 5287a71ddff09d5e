"""What happens in the demonstration, decided before it begins: who has which budget, who is away when, what goes wrong.

All of it is public, and none of it depends on anybody's data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_lowercase
from typing import Final

from lrdp import limits
from lrdp.accounting import Budget, Training
from lrdp.errors import InvalidInput
from lrdp.experiments.digits import stated_size

LEAST_CLIENTS: Final = 3
DELTA: Final = 1e-5
LEARNING_RATE: Final = 1.0
_BUDGETS: Final = (1.0, 0.5, 1.25, 0.75)
_BATCHES: Final = 4  # a batch holds a fourth of the records
_AWAY_EVERY: Final = 5


@dataclass(frozen=True, kw_only=True)
class Story:
    """``epsilon`` is the first client's budget, others have a fixed multiple of it; ``rounds`` are those that count.

    ``cheats`` says whether the server alters the sum of one round.
    """

    clients: int = 6
    rounds: int = 12
    local_steps: int = 5
    epsilon: float = 8.0
    cheats: bool = True

    def __post_init__(self) -> None:
        if not LEAST_CLIENTS <= self.clients <= len(ascii_lowercase):
            raise InvalidInput(
                f"clients must lie between {LEAST_CLIENTS} and {len(ascii_lowercase)}, got {self.clients}: fewer could "
                f"read each other's updates out of a sum, and more would share too few records."
            )
        limits.whole("rounds", self.rounds, 1, "a run has at least one round")
        limits.whole("local_steps", self.local_steps, 1, "a round has at least one step")
        Budget(epsilon=self.epsilon, delta=DELTA)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"hospital-{letter}" for letter in ascii_lowercase[: self.clients])

    @property
    def asked(self) -> int:
        """How many are asked at least: a majority makes a round, and one of them may refuse, or be killed."""
        return max(LEAST_CLIENTS, self.clients // 2 + 1) + 1

    @property
    def frugal(self) -> str | None:
        """Whose budget lasts for half of the rounds."""
        return self.names[-1] if self.clients > LEAST_CLIENTS else None

    @property
    def killed(self) -> tuple[str, int] | None:
        """Whose process is killed, and while training which of its updates."""
        return (self.names[2], 1 + self.rounds // 6) if self.clients > self.asked else None

    @property
    def cheated(self) -> int | None:
        """The round whose sum is altered, counted from 0."""
        return max(0, self.rounds // 2 - 1) if self.cheats else None

    @property
    def attempts(self) -> int:
        """A round that is caught is repeated."""
        return self.rounds + (self.cheated is not None)

    def trainings(self) -> dict[str, Training]:
        """What each client's policy allows: noise for its own budget, over the rounds that it has to last for."""
        records = stated_size(self.clients)
        return {
            name: Training(
                dataset_size=records,
                batch_size=records // _BATCHES,
                rounds=max(1, self.rounds // 2) if name == self.frugal else self.rounds,
                local_steps=self.local_steps,
                budget=Budget(epsilon=self.epsilon * _BUDGETS[number % len(_BUDGETS)], delta=DELTA),
            )
            for number, name in enumerate(self.names)
        }

    def away(self, number: int) -> list[str]:
        """Who would like to be away in a round: each client in every fifth."""
        return [name for place, name in enumerate(self.names) if (number + place) % _AWAY_EVERY == _AWAY_EVERY - 1]

    def choose(self, number: int, present: Sequence[str]) -> list[str]:
        """Who takes part in a round: all but those who are away, as long as enough are left."""
        chosen = list(present)
        turn = -1 if number // _AWAY_EVERY % 2 else 1  # so that it is not always the same who cannot be spared
        for name in self.away(number)[::turn]:
            if name in chosen and len(chosen) > self.asked:
                chosen.remove(name)
        return chosen
