"""What saved states share: a checksum around named fields, a place in the history, vectors that are checked anew."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from lrdp.errors import InvalidInput
from lrdp.integrity.commitments import opens
from lrdp.integrity.encoding import HASH_SIZE, as_number, number, pack, sized, unpack
from lrdp.integrity.fixed_point import Model, Whole, aggregate_hash, model_hash
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import CommittedUpdate, Header, Pledge
from lrdp.integrity.session import Position, Session
from lrdp.integrity.verdicts import Verdict, rejection

Vectors = Mapping[str, Whole]

PLACE_FIELDS = 6
MOST_STATE_BYTES = 16 << 20
_LABEL = b"STATE/v1"


class Placed(Protocol):
    """A party between rounds."""

    @property
    def identity(self) -> Identity: ...
    @property
    def position(self) -> Position: ...
    @property
    def attempt(self) -> int: ...


class Encodable(Protocol):
    """What has one encoding."""

    def encode(self) -> bytes: ...


def seal(name: str, parts: Iterable[bytes]) -> bytes:
    """The fields of a state called ``name``, and a checksum."""
    body = pack(_LABEL, name.encode(), *parts)
    return body + hashlib.sha256(body).digest()


def unseal(data: bytes, sizes: Mapping[str, int]) -> tuple[str, tuple[bytes, ...]]:
    """Name and fields of a state; ``sizes`` are the names that may be there, with the number of their fields."""
    if len(data) > MOST_STATE_BYTES:
        raise rejection(Verdict.MALFORMED, f"a state of {len(data)} bytes, and {MOST_STATE_BYTES} is the most")
    if hashlib.sha256(memoryview(data)[:-HASH_SIZE]).digest() != data[-HASH_SIZE:]:
        raise rejection(Verdict.MALFORMED, "the state is damaged: its checksum does not hold")
    parts = unpack(data[:-HASH_SIZE], 2 + max(sizes.values()), MOST_STATE_BYTES)
    name = b"".join(parts[1:2])[:20].decode("ascii", errors="replace")
    if parts[:1] != (_LABEL,) or len(parts) - 2 != sizes.get(name):
        raise rejection(Verdict.MALFORMED, f"the state is none of {', '.join(sizes)}")
    return name, parts[2:]


def place(state: Placed) -> tuple[bytes, ...]:
    """Whose state it is, and where in the history."""
    position = state.position
    where = position.session.encode(), number(position.round), position.tip, position.model
    return state.identity.member.encode(), *where, number(state.attempt)


def read_place(parts: Sequence[bytes], identity: Identity, vectors: Vectors) -> tuple[Position, int, Model]:
    """Position, attempt and model, if the state is this identity's and the model the one it stands on."""
    member, session, round_, tip, model, attempt = parts
    if member != identity.member.encode():
        raise InvalidInput(
            f"the state is not that of {identity.name} with these keys: hand in those it was saved with."
        )
    position = Position(
        session=Session.decode(session),
        round=as_number(round_),
        tip=sized(tip, HASH_SIZE),
        model=sized(model, HASH_SIZE),
    )
    given = handed_back(vectors, "model")
    if model_hash(given) != position.model:
        raise rejection(Verdict.MODEL_MISMATCH, "the model handed back is not the one that was saved")
    return position, as_number(attempt), given


def handed_back(vectors: Vectors, name: str) -> Whole:
    """The vector of this name."""
    if name not in vectors:
        raise InvalidInput(f"the vector {name!r} must be handed back: a state does not hold it.")
    return vectors[name]


def packed(some: Iterable[Encodable]) -> bytes:
    """Encodings in a row."""
    return pack(*(one.encode() for one in some))


def read_pledges(data: bytes) -> tuple[Pledge, ...]:
    """What ``packed`` made of pledges."""
    return tuple(Pledge.decode(part) for part in unpack(data))


def read_aggregate(header: Header, vectors: Vectors) -> Whole:
    """The aggregate that the header names."""
    aggregate = handed_back(vectors, "aggregate")
    if aggregate_hash(aggregate) != header.aggregate:
        raise rejection(Verdict.MALFORMED, "the aggregate handed back is not the one that was saved")
    return aggregate


def checked_update(position: Position, pledge: Pledge, nonce: bytes, values: Whole) -> CommittedUpdate:
    """The update, if it is what was pledged."""
    update = CommittedUpdate(pledge=pledge, nonce=nonce, values=values)
    if not opens(position, update):
        raise rejection(Verdict.MALFORMED, f"the update handed back is not the one {pledge.name} pledged")
    return update
