"""A request: what a server asks one client to do in one round."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from lrdp import limits
from lrdp.accounting import Mechanism
from lrdp.errors import InvalidInput

_LONGEST_RUN: Final = 200
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_OF: Final = "/"
_SERVER_DIGITS: Final = 16
"""Digits of a key that are recorded: should two servers have these in common, they share what one may spend."""
ANYBODY: Final = ""


def payer_of(run: str) -> str:
    """Whose share pays for a run: all runs of one server have one, since a server can begin as many as it likes.

    A run that the client named itself has its own. For a session that was recorded without its server nobody knows
    whose it was: then it is ``ANYBODY``, and what was spent counts against every server.
    """
    server, of, _ = run.partition(_OF)
    return ANYBODY if not of and _DIGEST.fullmatch(run) else server


def check_digest(name: str, value: str) -> str:
    """Return ``value`` if it is a SHA-256 in lower-case hexadecimal."""
    if not _DIGEST.fullmatch(limits.made_by(name, value, str)):
        raise InvalidInput(
            f"{name} must be a SHA-256 of 64 lower-case hexadecimal digits, got {value[:80]!r}.", field=name
        )
    return value


@dataclass(frozen=True, kw_only=True)
class ReceivedModel:
    """What was received, as bytes and in numbers; ``largest_weight`` is infinite where some weight is not a number."""

    digest: str
    size: int
    largest_weight: float

    def __post_init__(self) -> None:
        check_digest("model digest", self.digest)
        limits.keep(
            self,
            size=limits.whole("model size", self.size, 0, "it counts bytes"),
            largest_weight=limits.bound("largest weight", self.largest_weight),
        )


@dataclass(frozen=True, kw_only=True)
class Request:
    """One training on one model.

    ``config_digest`` is of everything else the server sent: the same request asked again has the same ``key``, whatever
    the message it came in. ``server`` is the key of whoever asks, in hexadecimal, and empty where nobody does but the
    client itself.
    """

    run: str
    round: int
    model: ReceivedModel
    config_digest: str
    mechanism: Mechanism
    steps: int
    clip_norm: float
    registry_sha256: str = ""
    server: str = ""
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        limits.made_by("run", self.run, str)
        if not (1 <= len(self.run) <= _LONGEST_RUN and self.run.isprintable() and _OF not in self.run):
            raise InvalidInput(
                f"run must have 1 to {_LONGEST_RUN} printable characters other than {_OF}, got {self.run[:40]!r}."
            )
        if limits.made_by("server", self.server, str) and not _DIGEST.fullmatch(self.server):
            raise InvalidInput(f"server must be a key of 64 lower-case hexadecimal digits, got {self.server[:80]!r}.")
        limits.keep(
            self,
            round=limits.whole("round", self.round, 0, "rounds are counted"),
            model=limits.made_by("model", self.model, ReceivedModel),
            mechanism=limits.derived_from("mechanism", self.mechanism, Mechanism),
            steps=limits.whole("steps", self.steps, 1, "a charge is for steps to be taken"),
            clip_norm=limits.positive("clip_norm", self.clip_norm, "it bounds what one record can add"),
        )
        check_digest("config digest", self.config_digest)
        limits.made_by("registry_sha256", self.registry_sha256, str)
        for metric in limits.made_by("metrics", self.metrics, tuple):
            limits.made_by("metric", metric, str)

    @property
    def full_name(self) -> str:
        """The run as it is recorded, after its server."""
        return f"{self.server[:_SERVER_DIGITS]}{_OF}{self.run}" if self.server else self.run

    @property
    def payer(self) -> str:
        """Whose share of the budget pays for this."""
        return payer_of(self.full_name)

    @property
    def key(self) -> str:
        """SHA-256 of run, round, model digest and config digest, length-prefixed."""
        parts = (self.run, str(self.round), self.model.digest, self.config_digest)
        hashed = sha256(b"lrdp request, format 1")
        for part in parts:
            encoded = part.encode()
            hashed.update(len(encoded).to_bytes(8, "big") + encoded)
        return hashed.hexdigest()
