"""What happened in a round, as a value: for a line on the screen, a JSON log, or a test."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Final

from lrdp.figures import AtMost
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


@dataclass(frozen=True, kw_only=True)
class RoundReport:
    """One attempt at a round. ``model`` counts the verified rounds before it; ``staleness`` is by participant.

    ``metrics`` are those of the server's evaluation of the model after it, on public data.

    >>> report = RoundReport(model=2, participants=("a", "b", "c"), declined={"d": "budget"}, verified=True)
    >>> report.line
    'round 3 · 3 took part · declined: d (budget) · verified'
    """

    model: int
    participants: tuple[str, ...] = ()
    declined: Mapping[str, str] = field(default_factory=dict)
    staleness: Mapping[str, int] = field(default_factory=dict)
    verified: bool = False
    problem: str = ""
    seconds: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """As on the screen."""
        parts = [f"round {self.model + 1}", f"{len(self.participants)} took part"]
        if self.declined:
            parts.append("declined: " + ", ".join(f"{name} ({code})" for name, code in sorted(self.declined.items())))
        if any(self.staleness.values()):
            parts.append(f"staleness up to {max(self.staleness.values())}")
        parts.append("verified" if self.verified else f"NOT VERIFIED ({self.problem})")
        if self.seconds:
            parts.append(f"{AtMost(self.seconds):.1f} s")
        parts += [f"{name} {value}" for name, value in self.metrics.items()]
        return visible(" · ".join(parts))

    def as_json(self, **besides: str) -> str:
        """One line of a log; a metric that is not finite is null there."""
        metrics = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        said = {**besides, **asdict(self), "round": self.model + 1, "metrics": metrics}
        return json.dumps(said, sort_keys=True, allow_nan=False)


ObserveRound = Callable[[RoundReport], None]
"""Is told of each attempt, once it is over and on disk, in public values alone."""


def tell(observers: Sequence[ObserveRound], report: RoundReport) -> None:
    """Tell all of them, each by itself: one that raises is logged, and affects neither the round nor the others."""
    for observe in observers:
        try:
            observe(report)
        except Exception:  # noqa: BLE001 — whatever a dashboard's client raises, the round stands
            _LOG.exception("an observer failed; the round stands, and the observer is told of the next one")
