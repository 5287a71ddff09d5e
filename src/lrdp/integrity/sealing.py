"""What saved states share: a checksum, a place in the history, vectors that are checked when they are handed back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.integrity.commitments import opens
from lrdp.integrity.encoding import HASH_SIZE
from lrdp.integrity.fixed_point import Model, Whole, aggregate_hash, model_hash
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import CommittedUpdate, Header
from lrdp.integrity.session import Position
from lrdp.integrity.verdicts import Verdict, rejection

NamedVectors = Mapping[str, Whole]

MOST_STATE_BYTES = 16 << 20
"""What a saved state may have: a longer one is refused unread."""


def seal(body: bytes) -> bytes:
    """The body, and a checksum."""
    return body + hashlib.sha256(body).digest()


def unseal(data: bytes) -> bytes:
    """What was sealed."""
    if len(data) > MOST_STATE_BYTES:
        raise rejection(Verdict.MALFORMED, f"a state of {len(data)} bytes, at most {MOST_STATE_BYTES} are read")
    if hashlib.sha256(memoryview(data)[:-HASH_SIZE]).digest() != data[-HASH_SIZE:]:
        raise rejection(Verdict.MALFORMED, "the state is damaged: its checksum does not hold")
    return data[:-HASH_SIZE]


def read_place(given: Mapping[str, Any], identity: Identity, vectors: NamedVectors) -> tuple[Position, Model]:
    """Position and model, if the state is this identity's and the model the one it stands on."""
    if given["member"] != identity.member:
        raise InvalidInput(
            f"the state is not that of {identity.name} with these keys: hand in those it was saved with."
        )
    position = Position(**{name: given[name] for name in ("session", "round", "tip", "model")})
    model = handed_back(vectors, "model")
    if model_hash(model) != position.model:
        raise rejection(Verdict.MODEL_MISMATCH, "the model handed back is not the one that was saved")
    return position, model


def handed_back(vectors: NamedVectors, name: str) -> Whole:
    """The vector of this name."""
    if name not in vectors:
        raise InvalidInput(f"the vector {name!r} must be handed back: a state does not hold it.")
    return vectors[name]


def read_aggregate(header: Header, vectors: NamedVectors) -> Whole:
    """The aggregate that the header names."""
    aggregate = handed_back(vectors, "aggregate")
    if aggregate_hash(aggregate) != header.aggregate:
        raise rejection(Verdict.MALFORMED, "the aggregate handed back is not the one that was saved")
    return aggregate


def require_pledged(position: Position, update: CommittedUpdate) -> None:
    """Refuse an update that is not what was pledged."""
    if not opens(position, update):
        raise rejection(Verdict.MALFORMED, f"the update handed back is not the one {update.pledge.name} pledged")
