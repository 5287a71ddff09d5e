"""The policy: what a client's administrator allows, as a value. Requests may only be stricter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final

from lrdp import limits
from lrdp.accounting import Adjacency, Budget, SizedGaussian
from lrdp.errors import InvalidInput
from lrdp.ledger.request import check_digest

FEWEST_PARTICIPANTS: Final = 3
"""Of two, each could subtract itself from the sum."""
_SERVER_KEY: Final = re.compile(r"[0-9a-f]{64}")

_MOST_ROWS: Final = 1 << 20


class Clipped(StrEnum):
    """What is drawn and clipped as one, and counted in the sizes that a policy states; it cannot change later."""

    ROWS = "rows"
    """Each row by itself: what holds for a unit with several follows from what holds for one."""
    UNITS = "units"
    """All rows of a unit together, at most ``max_rows_per_unit`` of them: what holds, holds for the unit."""


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Whose data, and what one person may have in it."""

    client: str
    unit: str
    max_rows_per_unit: int
    clipped: Clipped = Clipped.ROWS

    def __post_init__(self) -> None:
        for name, value in (("client", self.client), ("unit", self.unit)):
            limits.made_by(name, value, str)
            if not value.strip() or len(value) > 200 or not value.isprintable():
                raise InvalidInput(
                    f"{name} must be a printable name of 1 to 200 characters, got {value!r}.", field=name
                )
        rows = limits.whole("max_rows_per_unit", self.max_rows_per_unit, 1, "a unit without rows is not in the data")
        if rows > _MOST_ROWS:
            raise InvalidInput(
                f"max_rows_per_unit must be at most {_MOST_ROWS}, got {rows}: no ε is worked out for more.",
                field="max_rows_per_unit",
            )
        limits.keep(self, max_rows_per_unit=rows, clipped=limits.made_by("clipped", self.clipped, Clipped))

    @property
    def records_per_unit(self) -> int:
        """The most records, as they are clipped, that a unit has: its ε is for that many together."""
        return 1 if self.clipped is Clipped.UNITS else self.max_rows_per_unit


class BudgetCounting(StrEnum):
    """How the ledger counts what is spent; it is fixed when the budget is opened."""

    RENYI = "rdp"
    """By a Rényi order: whatever the policy allows is admitted, and costs what it costs."""
    RESERVED = "pld"
    """By loss distributions, where they afford more: rounds of the policy's costliest step, reserved in advance."""


@dataclass(frozen=True, kw_only=True)
class BudgetRule:
    """What may be spent on this data set in all, and by one run; and how it is counted."""

    total: Budget
    adjacency: Adjacency
    per_run: Budget
    counting: BudgetCounting = BudgetCounting.RENYI

    def __post_init__(self) -> None:
        limits.made_by("total", self.total, Budget)
        limits.made_by("adjacency", self.adjacency, Adjacency)
        limits.made_by("per_run", self.per_run, Budget)
        limits.made_by("counting", self.counting, BudgetCounting)
        if not self.per_run.epsilon <= self.total.epsilon:
            raise InvalidInput(
                f"per_run_epsilon must be at most epsilon={self.total.epsilon}, got {self.per_run.epsilon}: no run "
                f"may spend more than there is.",
                field="per_run_epsilon",
            )


@dataclass(frozen=True, kw_only=True)
class MechanismRule:
    """``costliest`` is the most expensive step allowed: the least noise, the largest batch.

    Guarantees: under every adjacency that has a bound for it, its pair dominates that of every step that a request may
    name (docs/accounting.md, *Costlier and cheaper steps*).
    """

    costliest: SizedGaussian
    clip_norm: float
    min_clip_norm: float
    max_steps_per_round: int

    def __post_init__(self) -> None:
        limits.keep(
            self,
            costliest=limits.derived_from("costliest", self.costliest, SizedGaussian),
            clip_norm=limits.positive("clip_norm", self.clip_norm, "it bounds what one record can add"),
            min_clip_norm=limits.positive(
                "min_clip_norm", self.min_clip_norm, "a step that moves nothing is paid for all the same"
            ),
            max_steps_per_round=limits.whole(
                "max_steps_per_round", self.max_steps_per_round, 1, "no step, no training"
            ),
        )
        if not self.min_clip_norm <= self.clip_norm:
            raise InvalidInput(
                f"min_clip_norm must be at most clip_norm={self.clip_norm}, got {self.min_clip_norm}: no request "
                f"could keep both.",
                field="min_clip_norm",
            )


@dataclass(frozen=True, kw_only=True)
class ModelRule:
    """Which models are trained at all."""

    max_bytes: int
    max_abs_weight: float

    def __post_init__(self) -> None:
        largest = "weights beyond it are an attack or a divergence"
        limits.keep(
            self,
            max_bytes=limits.whole("max_bytes", self.max_bytes, 1, "a model has bytes"),
            max_abs_weight=limits.positive("max_abs_weight", self.max_abs_weight, largest),
        )


class Retries(StrEnum):
    """What a client agrees to when a round is tried again because somebody left in the middle of it."""

    SAME_ROSTER = "same-roster"
    """The same participants, or none: nobody ever sees two sums that differ by one update."""
    SMALLER_ROSTER = "smaller-roster"
    """Also without those who left: whoever holds both sums holds their difference, one noised update."""


class Scheme(StrEnum):
    """What a server may see of this client's updates."""

    SKETCH = "sketch"
    """Each noised update; masked tags prove the sum."""
    EXACT = "exact"
    """The sum alone: updates leave under masks, and every participant adds up the masked updates of all."""


@dataclass(frozen=True, kw_only=True)
class PeersRule:
    """With whom this client computes: a registry by its hash, servers by their keys, rounds of a least size and kind.

    Without a registry or without a server's key no session is joined.
    """

    registry_sha256: str = ""
    server_keys: tuple[str, ...] = ()
    min_roster: int = FEWEST_PARTICIPANTS
    retries: Retries = Retries.SAME_ROSTER
    scheme: Scheme = Scheme.SKETCH

    def __post_init__(self) -> None:
        limits.made_by("registry_sha256", self.registry_sha256, str)
        limits.made_by("retries", self.retries, Retries)
        limits.made_by("scheme", self.scheme, Scheme)
        if (self.scheme, self.retries) == (Scheme.EXACT, Retries.SMALLER_ROSTER):
            raise InvalidInput(
                'retries must be "same-roster" where scheme is "exact": the sum over a roster and that over a part of '
                "it would show the server the updates of the rest, which their masks are meant to hide.",
                field="retries",
            )
        if self.registry_sha256:
            check_digest("registry_sha256", self.registry_sha256)
        for key in limits.made_by("server_keys", self.server_keys, tuple):
            limits.made_by("server_keys", key, str)
            if not _SERVER_KEY.fullmatch(key):
                raise InvalidInput(
                    f"server_keys must be Ed25519 public keys of 64 lower-case hexadecimal digits, as `lrdp keys show` "
                    f"prints them, got {key[:80]!r}.",
                    field="server_keys",
                )
        fewest = limits.whole("min_roster", self.min_roster, FEWEST_PARTICIPANTS, "of two, each could subtract itself")
        limits.keep(self, min_roster=fewest)


@dataclass(frozen=True, kw_only=True)
class Policy:
    """All rules, the text they were read from, and the line of each key."""

    identity: Holder
    budget: BudgetRule
    mechanism: MechanismRule
    model: ModelRule
    peers: PeersRule
    metrics: tuple[str, ...]
    text: str = field(repr=False)
    source: str
    lines: Mapping[str, int] = field(repr=False)
    task: str = ""
    """Where a guard finds the client's own model, data set and loss, as ``package.module:name``; empty for none."""
    micro_batch: int | None = None
    """The most rows of a step that are computed at a time; without it that is the task's own matter."""

    def __post_init__(self) -> None:
        for name, kind in (
            ("identity", Holder),
            ("budget", BudgetRule),
            ("mechanism", MechanismRule),
            ("model", ModelRule),
            ("peers", PeersRule),
        ):
            limits.made_by(name, getattr(self, name), kind)
        if self.micro_batch is not None:
            rows = limits.whole("micro_batch", self.micro_batch, 1, "a pass has at least one row")
            limits.keep(self, micro_batch=rows)

    @property
    def digest(self) -> str:
        """SHA-256 of the text."""
        return sha256(self.text.encode()).hexdigest()

    def where(self, key: str) -> str:
        """As in ``policy.toml line 9``."""
        line = self.lines.get(key)
        return self.source if line is None else f"{self.source} line {line}"
