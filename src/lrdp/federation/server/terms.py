"""What a server brings to a session, and how it opens one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flwr.app import Array, ArrayRecord, MetricRecord

from lrdp.errors import InvalidInput
from lrdp.federation.server.archive import Archive
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import Hello
from lrdp.federation.wire.signing import run_identifier, sign_session
from lrdp.integrity import (
    HASH_SIZE,
    FixedPoint,
    Identity,
    Parameters,
    Registry,
    Session,
    SketchServer,
    majority,
    server,
)
from lrdp.ledger import Retries

EvaluateFunction = Callable[[int, ArrayRecord], MetricRecord | None]
"""Flower's evaluation by the server, on public data."""
Choose = Callable[[int, Sequence[str]], Sequence[str]]


def everybody(_round: int, names: Sequence[str]) -> Sequence[str]:
    """Full participation."""
    return names


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What a server brings: its keys, the consortium's registry, where receipts go, and what it asks for.

    ``choose`` picks a round's participants among those present. ``order`` is public; each client's policy has the last
    word. ``metrics`` are measured after each round by those who took part, noised and charged as one step: only
    ``"correct"``, and only where the policy lists it. ``point`` is how updates are rounded, for a model of
    so many coordinates. ``min_roster`` is the fewest that make a round, a majority of the registry unless given: a
    client whose policy wants more declines as ``roster``. ``retries`` is what is tried when a participant leaves
    after the sum was published: the same roster again, waited for up to ``patience`` seconds, and then new updates of
    the others; or, where all policies allow it, the same updates of the others.
    """

    identity: Identity
    registry: Registry
    folder: Path
    order: Order = field(default_factory=Order)
    choose: Choose = everybody
    metrics: tuple[str, ...] = ()
    point: Callable[[int], FixedPoint] = lambda size: FixedPoint(size=size)
    min_roster: int | None = None
    retries: Retries = Retries.SAME_ROSTER
    patience: float = 60.0

    @property
    def least(self) -> int:
        """The fewest that make a round."""
        least = majority(self.registry) if self.min_roster is None else self.min_roster
        if least > len(self.registry.members):
            raise InvalidInput(
                f"{least} make a round, and the registry has {len(self.registry.members)} members: nobody could train."
            )
        return least

    def open(self, arrays: ArrayRecord) -> Coordinator:
        """Start a session from these parameters."""
        values = {name: array.numpy() for name, array in arrays.items()}
        layout, nonce = Layout.of_arrays(values), os.urandom(HASH_SIZE)
        session = Session(
            identifier=run_identifier(nonce, layout.described),
            server_key=self.identity.member.signing_key,
            parameters=Parameters(point=self.point(layout.size), min_roster=self.least),
            registry=self.registry,
        )
        idle = server.start(self.identity, SketchServer(), session, layout.flat(values))
        signature = sign_session(self.identity, session)
        hello = Hello(session=session.encode(), nonce=nonce, layout=layout.described, signature=signature)
        return Coordinator(idle, hello, layout, Archive(self.folder, session), self.retries)


def as_arrays(coordinator: Coordinator) -> ArrayRecord:
    """The model after the last round that was concluded, as Flower knows it."""
    values = coordinator.layout.arrays(coordinator.model)
    return ArrayRecord({name: Array(parameter) for name, parameter in values.items()})
