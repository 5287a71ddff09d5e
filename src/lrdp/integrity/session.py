"""What all parties of a session agree on before the first round, and where in its history a party stands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import ClassVar

from lrdp.codec import NUMBER, Format, Part, one_of, packed, text
from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import HASH, HASH_SIZE, Encoded, digest, part_of, sized, strictly
from lrdp.integrity.fixed_point import FixedPoint
from lrdp.integrity.keys import KEY_SIZE
from lrdp.integrity.registry import Registry, RegistryTitle, read_title, verify_successor
from lrdp.integrity.verdicts import Verdict, rejection

FEWEST = 3
"""The smallest roster: of two, each would read the other's update out of the sum."""


def majority(registry: Registry) -> int:
    """The smallest size of rosters of which any two have a member in common."""
    return max(FEWEST, len(registry.members) // 2 + 1)


class ProofMethod(StrEnum):
    """How clients convince themselves that the aggregate is the sum of their updates."""

    SKETCH = "sketch"
    EXACT = "exact"


@dataclass(frozen=True, kw_only=True)
class Parameters(Encoded):
    """Public constants of a session.

    ``pending_window`` stands in the bytes alone: how long tags are waited for is the server's affair, and costs nobody.
    """

    point: FixedPoint
    method: ProofMethod = ProofMethod.SKETCH
    min_roster: int = FEWEST
    pending_window: int = 3

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"parameters/v1",
        point=part_of(FixedPoint),
        method=one_of(ProofMethod, text(20)),
        min_roster=NUMBER,
        pending_window=NUMBER,
    )

    def __post_init__(self) -> None:
        if self.min_roster < FEWEST:
            raise InvalidInput(
                f"min_roster must be at least {FEWEST}, got {self.min_roster}: of two, each could subtract itself."
            )
        if not 0 <= self.pending_window < 1 << 32:
            raise InvalidInput(f"pending_window must lie in [0, 2^32), got {self.pending_window}: 32 bits are kept.")

    def quorum(self, count: int) -> int:
        """How many of ``count`` participants must have accepted a round before an absent client believes in it."""
        return max(self.min_roster, count // 2 + 1)


# A state holds its registry whole, and is saved after every message: with a thousand members, reading it is most of the
# work. What is kept here are registries that were pinned: whoever is shown a session asks ``registry_title`` first.
_known_registry = lru_cache(maxsize=16)(Registry.parse)


@dataclass(frozen=True, kw_only=True)
class Session(Encoded):
    """Each party builds it from its own configuration; ``digest`` enters every hash and signature."""

    identifier: bytes
    server_key: bytes
    parameters: Parameters
    registry: Registry

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"SESSION/v1",
        identifier=HASH,
        server_key=HASH,
        parameters=part_of(Parameters),
        registry=Part(Registry.encode, _known_registry),
    )

    def __post_init__(self) -> None:
        sized(self.identifier, HASH_SIZE)
        sized(self.server_key, KEY_SIZE)

    @cached_property
    def digest(self) -> bytes:
        """S in docs/integrity.md: what everything in the session is bound to."""
        return digest(b"session/v1", self.identifier, self.server_key, self.parameters.encode(), self.registry.digest)


def encoded_registry(data: bytes) -> bytes:
    """The registry in an encoded session, as it is: what is authenticated before the session is decoded."""
    with strictly():
        *_, registry = Session.FORMAT.split(data)
    return registry


def registry_title(data: bytes) -> RegistryTitle:
    """The title of the registry in an encoded session."""
    return read_title(encoded_registry(data))


@dataclass(frozen=True, kw_only=True)
class Position:
    """The next round, the model it starts from, and the hash of everything verified before."""

    session: Session
    round: int
    tip: bytes
    model: bytes

    def after(self, publish_digest: bytes, next_model: bytes) -> Position:
        """The position once this round is verified: h ← H("link", h, dg, H(θ'))."""
        tip = digest(b"link/v1", self.tip, publish_digest, next_model)
        return replace(self, round=self.round + 1, tip=tip, model=next_model)

    def rotated(self, registry: Registry) -> Position:
        """The same position under the consortium's next registry, once that is due.

        Before the first round there is none to replace: a session is begun under the newest.
        """
        due, least = max(1, registry.first_round), self.session.parameters.min_roster
        if self.round < due:
            raise rejection(Verdict.REGISTRY_REFUSED, f"due at round {due}, this is {self.round}")
        session = replace(self.session, registry=verify_successor(self.session.registry, registry))
        if len(registry.members) < least:
            raise rejection(Verdict.ROSTER_TOO_SMALL, f"{len(registry.members)} members, and a round needs {least}")
        return replace(self, session=session, tip=digest(b"rotate/v1", self.tip, session.digest))


def genesis(session: Session, model: bytes) -> Position:
    """Before the first round; ``model`` is the hash of the initial model."""
    tip = digest(b"genesis/v1", session.digest, sized(model, HASH_SIZE))
    return Position(session=session, round=0, tip=tip, model=model)
