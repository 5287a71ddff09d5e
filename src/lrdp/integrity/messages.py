"""The messages, each a value with one encoding. Vectors travel beside their message, as raw little-endian bytes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from lrdp.integrity.encoding import (
    HASH_SIZE,
    SIGNATURE_SIZE,
    as_name,
    as_number,
    checked_name,
    digest,
    fields,
    number,
    pack,
    sized,
    unpack,
)
from lrdp.integrity.fixed_point import LARGE, SMALL, Whole
from lrdp.integrity.verdicts import Verdict, rejection

NONCE_SIZE = 32
TAG_SIZE = 16
_KINDS: dict[bytes, np.dtype[Any]] = {kind.str.encode(): kind for kind in (SMALL, LARGE)}


def _vector(kind: bytes, body: bytes | memoryview) -> Whole:
    if kind not in _KINDS or len(body) % _KINDS[kind].itemsize:
        raise rejection(Verdict.MALFORMED, "the vector is of no known type, or cut short")
    return np.frombuffer(body, _KINDS[kind])


@dataclass(frozen=True, kw_only=True)
class Train:
    """M1: the server opens a round of the history ``head`` for the participants it invites."""

    session: bytes
    round: int
    attempt: int
    head: bytes
    invited: tuple[str, ...]
    signature: bytes = bytes(SIGNATURE_SIZE)

    def __post_init__(self) -> None:
        sized(self.session, HASH_SIZE)
        sized(self.head, HASH_SIZE)
        sized(self.signature, SIGNATURE_SIZE)

    @property
    def unsigned(self) -> bytes:
        place = (self.session, number(self.round), number(self.attempt), self.head)
        return pack(*place, pack(*(name.encode() for name in self.invited)))

    def encode(self) -> bytes:
        return pack(b"TRAIN/v1", *unpack(self.unsigned), self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Train:
        session, round_, attempt, head, invited, signature = fields(data, b"TRAIN/v1", 6)
        return cls(
            session=session,
            round=as_number(round_),
            attempt=as_number(attempt),
            head=head,
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
class Update:
    """M2: a pledge and what it commits to."""

    pledge: Pledge
    nonce: bytes
    values: Whole

    def __post_init__(self) -> None:
        sized(self.nonce, NONCE_SIZE)

    def encode(self) -> bytes:
        """The head; the body is ``values`` as they lie in memory."""
        return pack(b"UPDATE/v1", self.pledge.encode(), self.nonce, self.values.dtype.str.encode())

    @classmethod
    def decode(cls, head: bytes, body: bytes | memoryview) -> Update:
        pledge, nonce, kind = fields(head, b"UPDATE/v1", 3)
        return cls(pledge=Pledge.decode(pledge), nonce=nonce, values=_vector(kind, body))


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
        for part in (self.session, self.previous, self.model, self.next_model, self.aggregate):
            sized(part, HASH_SIZE)

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
    relayed: tuple[Update, ...] = ()

    def __post_init__(self) -> None:
        sized(self.signature, SIGNATURE_SIZE)

    def encode(self) -> bytes:
        """The head; the bodies are ``aggregate`` and then the relayed updates' values."""
        relayed = pack(*(update.encode() for update in self.relayed))
        return pack(b"PUBLISH/v1", self.header.encode(), self.signature, self.aggregate.dtype.str.encode(), relayed)

    @classmethod
    def decode(cls, head: bytes, *bodies: bytes | memoryview) -> Publish:
        header, signature, kind, relayed = fields(head, b"PUBLISH/v1", 4)
        heads = unpack(relayed)
        if len(bodies) != 1 + len(heads):
            raise rejection(Verdict.MALFORMED, f"{len(bodies)} vectors where {1 + len(heads)} belong")
        return cls(
            header=Header.decode(header),
            signature=signature,
            aggregate=_vector(kind, bodies[0]),
            relayed=tuple(Update.decode(part, body) for part, body in zip(heads, bodies[1:], strict=True)),
        )


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

    def encode(self) -> bytes:
        return pack(b"TAGS/v1", pack(*(tag.encode() for tag in self.tags)))

    @classmethod
    def decode(cls, data: bytes) -> Tags:
        (tags,) = fields(data, b"TAGS/v1", 1)
        return cls(tags=tuple(Tag.decode(part) for part in unpack(tags)))
