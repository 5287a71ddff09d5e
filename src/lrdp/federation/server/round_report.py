"""What happened in a round, as a value: for a line on the screen, a JSON log, or a test."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field

from lrdp.screen import visible


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """One attempt at a round. ``model`` counts the verified rounds before it; ``staleness`` is by participant."""

    model: int
    participants: tuple[str, ...] = ()
    declined: Mapping[str, str] = field(default_factory=dict)
    staleness: Mapping[str, int] = field(default_factory=dict)
    verified: bool = False
    problem: str = ""

    @property
    def line(self) -> str:
        """As on the screen."""
        parts = [f"round {self.model + 1}", f"{len(self.participants)} took part"]
        if self.declined:
            parts.append("declined: " + ", ".join(f"{name} ({code})" for name, code in sorted(self.declined.items())))
        if any(self.staleness.values()):
            parts.append(f"staleness up to {max(self.staleness.values())}")
        return visible(" · ".join([*parts, "verified" if self.verified else f"NOT VERIFIED ({self.problem})"]))

    def as_json(self) -> str:
        """One line of a log."""
        return json.dumps(asdict(self), sort_keys=True)


Observe = Callable[[RoundReport], None]


def silence(_report: RoundReport) -> None:
    """Nobody watches."""
