"""A commitment is a hash that fixes a vector and, through its nonce, hides it; a pledge is a signed commitment."""

from __future__ import annotations

from lrdp.codec import NUMBER
from lrdp.integrity.encoding import hasher
from lrdp.integrity.fixed_point import Whole, chunks
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import CommittedUpdate, Pledge
from lrdp.integrity.session import Position


def commitment(position: Position, name: str, nonce: bytes, values: Whole) -> bytes:
    """c = H(session, round, name, nonce, values)."""
    prefix = (position.session.digest, NUMBER.write(position.round), name.encode(), nonce)
    hashed = hasher(b"commit/v1", *prefix, values.dtype.str.encode(), NUMBER.write(values.size))
    for part in chunks(values.size):
        hashed.update(values[part].data)
    return hashed.digest()


def opens(position: Position, update: CommittedUpdate) -> bool:
    """Whether the update is what its pledge committed to."""
    return commitment(position, update.pledge.name, update.nonce, update.values) == update.pledge.commitment


def _claim(position: Position, name: str, committed: bytes) -> tuple[bytes, ...]:
    place = (position.session.digest, NUMBER.write(position.round), name.encode())
    return (*place, position.tip, position.model, committed)


def pledge(position: Position, identity: Identity, committed: bytes) -> Pledge:
    """Sign a commitment together with the history and the model it was trained from."""
    signature = identity.sign(b"update/v1", *_claim(position, identity.name, committed))
    return Pledge(name=identity.name, commitment=committed, signature=signature)


def pledged(position: Position, given: Pledge) -> bool:
    """Whether the member of that name signed the pledge, for this history and this model."""
    member = position.session.registry.by_name[given.name]
    return member.signed(given.signature, b"update/v1", *_claim(position, given.name, given.commitment))
