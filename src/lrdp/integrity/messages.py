"""The messages, each a value. What is hashed, signed or kept has an encoding here; how it travels is in ``wire``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from lrdp.integrity.encoding import (
    HASH_SIZE,
    SIGNATURE_SIZE,
    as_name,
    as_number,
    checked_name,
    digest,
    fields,
    hashes,
    number,
    pack,
    sized,
    unpack,
)
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.verdicts import Verdict, rejection

NONCE_SIZE = 32
TAG_SIZE = 16


@dataclass(frozen=True, kw_only=True)
class Train:
    """M1: the server opens a round of the history ``tip`` for the participants it invites."""

    session: bytes
    round: int
    attempt: int
    tip: bytes
    invited: tuple[str, ...]
    signature: bytes = bytes(SIGNATURE_SIZE)

    def __post_init__(self) -> None:
        hashes(self.session, self.tip)
        sized(self.signature, SIGNATURE_SIZE)

    @property
    def unsigned(self) -> bytes:
        place = (self.session, number(self.round), number(self.attempt), self.tip)
        return pack(*place, pack(*(name.encode() for name in self.invited)))

    def encode(self) -> bytes:
        return pack(b"TRAIN/v1", *unpack(self.unsigned), self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Train:
        session, round_, attempt, tip, invited, signature = fields(data, b"TRAIN/v1", 6)
        return cls(
            session=session,
            round=as_number(round_),
            attempt=as_number(attempt),
            tip=tip,
            invited=tuple(as_name(part) for part in unpack(invited)),
            signature=signature,
        )


@dataclass(frozen=True, kw_only=True)
class Pledge:
    """A participant's signed commitment: what the roster holds of it."""

    name: str
    commitment: bytes
    signature: bytes

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.commitment, HASH_SIZE)
        sized(self.signature, SIGNATURE_SIZE)

    def encode(self) -> bytes:
        return pack(b"P", self.name.encode(), self.commitment, self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Pledge:
        name, commitment, signature = fields(data, b"P", 3)
        return cls(name=as_name(name), commitment=commitment, signature=signature)


@dataclass(frozen=True, kw_only=True, eq=False)
class CommittedUpdate:
    """M2: a pledge and what it commits to."""

    pledge: Pledge
    nonce: bytes
    values: Whole

    def __post_init__(self) -> None:
        sized(self.nonce, NONCE_SIZE)


@dataclass(frozen=True, kw_only=True)
class Header:
    """All of PUBLISH but the vectors; its digest is what tags are bound to and the challenge is drawn from."""

    session: bytes
    round: int
    attempt: int
    previous: bytes
    model: bytes
    next_model: bytes
    aggregate: bytes
    roster: tuple[Pledge, ...]

    def __post_init__(self) -> None:
        hashes(self.session, self.previous, self.model, self.next_model, self.aggregate)

    @cached_property
    def digest(self) -> bytes:
        """dg."""
        return digest(b"publish/v1", self.encode())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(pledge.name for pledge in self.roster)

    def encode(self) -> bytes:
        place = (self.session, number(self.round), number(self.attempt))
        hashes = (self.previous, self.model, self.next_model, self.aggregate)
        return pack(b"HEADER/v1", *place, *hashes, pack(*(pledge.encode() for pledge in self.roster)))

    @classmethod
    def decode(cls, data: bytes) -> Header:
        session, round_, attempt, previous, model, next_model, aggregate, roster = fields(data, b"HEADER/v1", 8)
        return cls(
            session=session,
            round=as_number(round_),
            attempt=as_number(attempt),
            previous=previous,
            model=model,
            next_model=next_model,
            aggregate=aggregate,
            roster=tuple(Pledge.decode(part) for part in unpack(roster)),
        )


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
class Tag:
    """M4: a participant's masked fingerprint of its own update, signed for what it saw."""

    name: str
    value: int
    signature: bytes

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.signature, SIGNATURE_SIZE)
        if not 0 <= self.value < 1 << 8 * TAG_SIZE:
            raise rejection(Verdict.MALFORMED, "a tag has 128 bits")

    def encode(self) -> bytes:
        return pack(b"T", self.name.encode(), self.value.to_bytes(TAG_SIZE, "little"), self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Tag:
        name, value, signature = fields(data, b"T", 3)
        return cls(name=as_name(name), value=int.from_bytes(sized(value, TAG_SIZE), "little"), signature=signature)


@dataclass(frozen=True, kw_only=True)
class Accept:
    """A participant's word that the round is VERIFIED, for clients that were absent and for auditors."""

    name: str
    signature: bytes

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.signature, SIGNATURE_SIZE)

    def encode(self) -> bytes:
        return pack(b"A", self.name.encode(), self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Accept:
        name, signature = fields(data, b"A", 2)
        return cls(name=as_name(name), signature=signature)


@dataclass(frozen=True, kw_only=True)
class Tags:
    """M5: everybody's tags; they travel with the next round's M1."""

    tags: tuple[Tag, ...]
