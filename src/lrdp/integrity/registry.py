"""Who may take part: sorted members, signed by the consortium, pinned by hash, each version linked to the one before.

The server never distributes trust: a client pins the first registry's hash in its own configuration, and accepts
another only at a round boundary, signed with the same key and naming the one it replaces.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from lrdp.integrity.encoding import (
    HASH_SIZE,
    SIGNATURE_SIZE,
    as_name,
    as_number,
    digest,
    fields,
    hashes,
    number,
    pack,
    sized,
    unpack,
)
from lrdp.integrity.fixed_point import MOST_MEMBERS
from lrdp.integrity.keys import Identity, Member, verifies
from lrdp.integrity.verdicts import Check, Verdict, rejection, require

NO_PREVIOUS = bytes(HASH_SIZE)
_LABEL = b"registry/v1"


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Version ``version``, in force from round ``first_round`` on."""

    version: int
    first_round: int
    previous: bytes
    consortium: bytes
    members: tuple[Member, ...]
    signature: bytes = bytes(SIGNATURE_SIZE)

    def __post_init__(self) -> None:
        hashes(self.previous, self.consortium)
        sized(self.signature, SIGNATURE_SIZE)

    @cached_property
    def digest(self) -> bytes:
        """What is pinned: everything but the signature."""
        return digest(_LABEL, *self._fields)

    @cached_property
    def by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each name stands in the list: what travels in its place."""
        return {member.name: place for place, member in enumerate(self.members)}

    @cached_property
    def _fields(self) -> tuple[bytes, ...]:
        members = pack(*(member.encode() for member in self.members))
        return number(self.version), number(self.first_round), self.previous, self.consortium, members

    def encode(self) -> bytes:
        return pack(_LABEL, *self._fields, self.signature)

    @classmethod
    def decode(cls, data: bytes) -> Registry:
        version, first_round, previous, consortium, members, signature = fields(data, _LABEL, 6)
        return cls(
            version=as_number(version),
            first_round=as_number(first_round),
            previous=previous,
            consortium=consortium,
            members=tuple(_member(part) for part in unpack(members)),
            signature=signature,
        )


def encoded_digest(data: bytes) -> bytes:
    """The digest of an encoded registry, of whose members nothing is decoded or kept.

    Guarantees: whatever ``Registry.decode`` then makes of these bytes has this digest, for it has one encoding.
    """
    *signed, signature = fields(data, _LABEL, 6)
    sized(signature, SIGNATURE_SIZE)
    return digest(_LABEL, *signed)


def _member(data: bytes) -> Member:
    parts = unpack(data, 4)
    if len(parts) != 4:
        raise rejection(Verdict.MALFORMED, "a member has four fields")
    name, signing_key, agreement_key, proof = parts
    return Member(name=as_name(name), signing_key=signing_key, agreement_key=agreement_key, proof=proof)


def sign(registry: Registry, consortium: Identity) -> Registry:
    """The same registry, sorted and signed by the consortium."""
    members = tuple(sorted(registry.members, key=lambda member: member.name))
    unsigned = replace(registry, members=members, consortium=consortium.member.signing_key)
    return replace(unsigned, signature=consortium.sign(b"registry-signature/v1", unsigned.digest))


def _sorted_and_distinct(registry: Registry) -> bool:
    names = [member.name for member in registry.members]
    keys = {key for member in registry.members for key in (member.signing_key, member.agreement_key)}
    return names == sorted(set(names)) and len(keys) == 2 * len(names) and len(names) <= MOST_MEMBERS


def _signed(registry: Registry) -> bool:
    return verifies(registry.consortium, registry.signature, b"registry-signature/v1", registry.digest)


CHECKS: tuple[Check[Registry], ...] = (
    Check(Verdict.REGISTRY_REFUSED, _sorted_and_distinct),
    Check(Verdict.REGISTRY_REFUSED, _signed),
    Check(Verdict.REGISTRY_REFUSED, lambda registry: all(member.holds() for member in registry.members)),
)


def verify(registry: Registry, pin: bytes) -> Registry:
    """``registry``, if it hashes to ``pin`` and is sound."""
    if registry.digest != pin:
        raise rejection(Verdict.REGISTRY_REFUSED, f"its hash is {registry.digest.hex()}, pinned is {pin.hex()}")
    require(CHECKS, registry)
    return registry


def verify_successor(current: Registry, following: Registry) -> Registry:
    """``following``, if the consortium made it to replace ``current``."""
    linked = following.previous == current.digest and following.version == current.version + 1
    if not linked or following.consortium != current.consortium or following.first_round <= current.first_round:
        raise rejection(Verdict.REGISTRY_REFUSED, f"version {following.version} does not follow {current.version}")
    require(CHECKS, following)
    return following
