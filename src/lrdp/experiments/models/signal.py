"""How much noise there is against what is learnt, before anything is trained; and what the paper says of its runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from lrdp import limits


def noise_in_clip_norms(noise_multiplier: float, size: int, batch_size: int, clients: int) -> float:
    """The norm of the noise on one step's mean update, over the clip norm: σ·√d / (B·√clients).

    The mean of clipped gradients is at most one clip norm long, and a good deal shorter in practice. Each client adds
    noise of deviation σC/B to every weight, and averaging over clients divides by the root of their number.
    """
    return noise_multiplier * math.sqrt(size) / (batch_size * math.sqrt(clients))


@dataclass(frozen=True, kw_only=True)
class PaperRun:
    """What the paper states of a run. ``records`` are those of all clients together, dealt out equally."""

    clients: int
    records: int
    batch_size: int
    rounds: int
    local_epochs: int

    def __post_init__(self) -> None:
        for name in ("clients", "records", "batch_size", "rounds", "local_epochs"):
            limits.whole(name, getattr(self, name), 1, "the paper's run has some")

    @property
    def share(self) -> int:
        """Records of one client."""
        return self.records // self.clients

    @property
    def steps(self) -> int:
        """Local steps of one client over all rounds. An epoch's last batch is smaller, and a step like the others."""
        return self.rounds * self.local_epochs * math.ceil(self.share / self.batch_size)
