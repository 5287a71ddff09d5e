"""Who joins, leaves, runs out and dies, and when: all of it follows from a seed, so that a failure can be replayed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

SERVER = "server"


@dataclass(frozen=True, kw_only=True)
class Mortality:
    """How often processes of a kind die in all, each within so many calls of a function after it began to serve."""

    deaths: int
    calls: int


ACTS = {
    "join": "joined",
    "replace key": "new key",
    "lose key": "new key",
    "leave": "left",
    "vanish": "left",
    "exclude": "left",
}
"""What may happen on a day, and what the next registry says of it. A hospital that leaves or replaces its key waits
until the registry is in force, as docs/runbook.md tells it to; one that vanishes or loses its key does not."""

ABRUPT = ("vanish", "lose key")


@dataclass(frozen=True, kw_only=True)
class Change:
    """What happens once so many rounds are verified: one of ``ACTS``."""

    after: int
    act: str
    hospital: int


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """``rounds`` or more are verified in chaos, and one in peace. ``budgets`` are for how many rounds each hospital
    opens its books; those that are not ``founders`` join later.

    A process dies by its own hand, with SIGKILL, between two calls of functions: how many it makes before is drawn from
    the seed, its name and how often it was born. ``seconds`` are for deaths from outside, at any instant: the director
    kills somebody every so often, as far as ``mortality`` goes.
    """

    seed: int
    rounds: int
    founders: int
    budgets: tuple[int, ...]
    changes: tuple[Change, ...] = ()
    mortality: Mapping[str, Mortality] = field(default_factory=dict)
    buffer: int = 0
    scheme: str = "sketch"
    without: str = ""
    seconds: float = 0.0
    arrival: float = 120.0

    def chance(self, *what: object) -> random.Random:
        return random.Random("/".join(map(str, (self.seed, *what))))

    def delay(self, change: Change) -> float:
        """How many seconds a change comes later than the round after which it is due: in the midst of the next one."""
        return self.chance("day", change.after).uniform(0, 1.0)

    def lifetime(self, kind: str, name: str, birth: int) -> int:
        """After how many calls a process dies in this life; 0 if it lives on."""
        mortality = self.mortality.get(kind)
        if mortality is None or self.seconds:
            return 0
        return self.chance(name, birth).randint(1, mortality.calls)

    @property
    def days(self) -> list[Change]:
        """The changes in the order in which they come."""
        return sorted(self.changes, key=lambda change: change.after)

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> Schedule:
        given = json.loads(text)
        mortality = {kind: Mortality(**each) for kind, each in given.pop("mortality").items()}
        changes = tuple(Change(**each) for each in given.pop("changes"))
        budgets = tuple(given.pop("budgets"))
        return cls(**given, budgets=budgets, changes=changes, mortality=mortality)


def drawn(base: Schedule, seed: int) -> Schedule:
    """The same with another seed: changes come a round earlier or later."""
    source = random.Random(seed)
    changes = tuple(replace(each, after=max(1, each.after + source.choice((-1, 0, 1)))) for each in base.changes)
    return replace(base, seed=seed, changes=changes)
