"""The messages, each a value. What is hashed, signed or kept states its format here; how it travels is in ``wire``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from lrdp.codec import NAME, NUMBER, Format, fixed, many, pack, packed, whole
from lrdp.integrity.encoding import (
    HASH,
    HASH_SIZE,
    SIGNATURE,
    SIGNATURE_SIZE,
    Encoded,
    checked_name,
    digest,
    hashes,
    part_of,
    sized,
)
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.verdicts import Verdict, rejection

NONCE_SIZE = 32
"""Random bytes of a commitment: without them a guess at an update could be compared with it."""
TAG_SIZE = 16
NONCE: Final = fixed(NONCE_SIZE)
TAG_VALUE: Final = whole(TAG_SIZE)


@dataclass(frozen=True, kw_only=True)
class Train(Encoded):
    """M1: the server opens a round of the history ``tip`` for the participants it invites."""

    session: bytes
    round: int
    attempt: int
    tip: bytes
    invited: tuple[str, ...]
    signature: bytes = bytes(SIGNATURE_SIZE)

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"TRAIN/v1", session=HASH, round=NUMBER, attempt=NUMBER, tip=HASH, invited=many(NAME), signature=SIGNATURE
    )

    def __post_init__(self) -> None:
        hashes(self.session, self.tip)
        sized(self.signature, SIGNATURE_SIZE)

    @property
    def unsigned(self) -> bytes:
        """What the server signs."""
        *said, _ = self.FORMAT.written(self)
        return pack(*said)


@dataclass(frozen=True, kw_only=True)
class Pledge(Encoded):
    """A participant's signed commitment: its entry in the roster."""

    name: str
    commitment: bytes
    signature: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(b"P", name=NAME, commitment=HASH, signature=SIGNATURE)

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.commitment, HASH_SIZE)
        sized(self.signature, SIGNATURE_SIZE)


@dataclass(frozen=True, kw_only=True, eq=False)
class CommittedUpdate:
    """M2: a pledge and what it commits to."""

    pledge: Pledge
    nonce: bytes
    values: Whole

    def __post_init__(self) -> None:
        sized(self.nonce, NONCE_SIZE)


@dataclass(frozen=True, kw_only=True)
class Header(Encoded):
    """All of PUBLISH except the vectors; its digest is what tags are bound to and the challenge is drawn from."""

    session: bytes
    round: int
    attempt: int
    previous: bytes
    model: bytes
    next_model: bytes
    aggregate: bytes
    roster: tuple[Pledge, ...]

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"HEADER/v1",
        session=HASH,
        round=NUMBER,
        attempt=NUMBER,
        previous=HASH,
        model=HASH,
        next_model=HASH,
        aggregate=HASH,
        roster=many(part_of(Pledge)),
    )

    def __post_init__(self) -> None:
        hashes(self.session, self.previous, self.model, self.next_model, self.aggregate)

    @cached_property
    def digest(self) -> bytes:
        """dg."""
        return digest(b"publish/v1", self.encode())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pledge.name for pledge in self.roster)


@dataclass(frozen=True, kw_only=True, eq=False)
class Publish:
    """M3: header, server's signature, aggregate; and in exact rounds the masked updates, in the roster's order."""

    header: Header
    signature: bytes
    aggregate: Whole
    relayed: tuple[CommittedUpdate, ...] = ()

    def __post_init__(self) -> None:
        sized(self.signature, SIGNATURE_SIZE)


@dataclass(frozen=True, kw_only=True)
class Tag(Encoded):
    """M4: a participant's masked fingerprint of its own update, signed for what it saw."""

    name: str
    value: int
    signature: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(b"T", name=NAME, value=TAG_VALUE, signature=SIGNATURE)

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.signature, SIGNATURE_SIZE)
        if not 0 <= self.value < 1 << 8 * TAG_SIZE:
            raise rejection(Verdict.MALFORMED, "a tag has 128 bits")


@dataclass(frozen=True, kw_only=True)
class Accept(Encoded):
    """A participant's word that the round is VERIFIED, for clients that were absent and for auditors."""

    name: str
    signature: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(b"A", name=NAME, signature=SIGNATURE)

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.signature, SIGNATURE_SIZE)


@dataclass(frozen=True, kw_only=True)
class Tags:
    """M5: everybody's tags; they travel with the next round's M1."""

    tags: tuple[Tag, ...]
