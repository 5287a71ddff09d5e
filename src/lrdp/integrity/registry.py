"""Who may take part: sorted members, signed by the consortium, pinned by hash, each version linked to the one before.

The server never distributes trust: a client pins the first registry's hash in its own configuration, and accepts
another only at a round boundary, signed with the same key and naming the one it replaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

from lrdp.codec import NUMBER, Format, many, packed
from lrdp.integrity.encoding import (
    HASH,
    HASH_SIZE,
    SIGNATURE,
    SIGNATURE_SIZE,
    Encoded,
    digest,
    hashes,
    part_of,
    sized,
    strictly,
)
from lrdp.integrity.fixed_point import MOST_MEMBERS
from lrdp.integrity.keys import Identity, Member, verifies
from lrdp.integrity.verdicts import Check, Verdict, rejection, require

NO_PREVIOUS = bytes(HASH_SIZE)
"""What stands for the registry before the first one."""
_LABEL = b"registry/v1"


@dataclass(frozen=True, kw_only=True)
class Registry(Encoded):
    """Version ``version``; a running session takes it up at round ``first_round`` at the earliest."""

    version: int
    first_round: int
    previous: bytes
    consortium: bytes
    members: tuple[Member, ...]
    signature: bytes = bytes(SIGNATURE_SIZE)

    FORMAT: ClassVar[Format[bytes]] = packed(
        _LABEL,
        version=NUMBER,
        first_round=NUMBER,
        previous=HASH,
        consortium=HASH,
        members=many(part_of(Member)),
        signature=SIGNATURE,
    )

    def __post_init__(self) -> None:
        hashes(self.previous, self.consortium)
        sized(self.signature, SIGNATURE_SIZE)

    @cached_property
    def digest(self) -> bytes:
        """What is pinned: everything but the signature."""
        *signed, _ = self.FORMAT.written(self)
        return digest(_LABEL, *signed)

    @cached_property
    def by_name(self) -> dict[str, Member]:
        return {member.name: member for member in self.members}

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each name stands in the list: what travels in its place."""
        return {member.name: place for place, member in enumerate(self.members)}


@dataclass(frozen=True, kw_only=True)
class RegistryTitle:
    """What an encoded registry says of itself; nothing of its members is decoded or kept.

    Guarantees: whatever ``Registry.decode`` then makes of these bytes has this digest, for it has one encoding.
    """

    version: int
    previous: bytes
    consortium: bytes
    digest: bytes
    signature: bytes

    def signed(self) -> bool:
        """Whether the consortium that it names signed it."""
        return verifies(self.consortium, self.signature, b"registry-signature/v1", self.digest)

    def follows(self, before: RegistryTitle) -> bool:
        """Whether it names ``before`` as the one that it replaces."""
        return self.previous == before.digest and self.version == before.version + 1


def read_title(data: bytes) -> RegistryTitle:
    """The title of an encoded registry."""
    with strictly():
        *signed, signature = Registry.FORMAT.split(data)
        version, _, previous, consortium, _ = signed
        return RegistryTitle(
            version=NUMBER.read(version),
            previous=HASH.read(previous),
            consortium=HASH.read(consortium),
            digest=digest(_LABEL, *signed),
            signature=SIGNATURE.read(signature),
        )


def read_lineage(encoded: Sequence[bytes], pin: bytes) -> tuple[Registry, ...]:
    """The registries of a session, in their order, if each replaces the one before and the pinned one is among them.

    Guarantees: those before the pinned one are the ones that its consortium replaced, by their hashes; those after it
    are signed with the same key. Nothing of any others is decoded or kept.
    """
    titles = [read_title(data) for data in encoded]
    consortium = next((each.consortium for each in titles if each.digest == pin), None)
    if consortium is None:
        raise rejection(Verdict.REGISTRY_REFUSED, f"none of {len(titles)} is the pinned one, {pin.hex()}")
    for before, after in pairwise(titles):
        if not after.follows(before):
            raise rejection(Verdict.REGISTRY_REFUSED, f"version {after.version} does not follow {before.version}")
    if not all(each.consortium == consortium and each.signed() for each in titles):
        raise rejection(Verdict.REGISTRY_REFUSED, "one of them is not signed by the consortium of the pinned one")
    registries = tuple(Registry.decode(data) for data in encoded)
    for registry in registries:
        require(CHECKS, registry)
    return registries


def next_registry(current: Registry, members: Iterable[Member], first_round: int = 0) -> Registry:
    """The next version, yet to be signed; running sessions take it up at ``first_round`` at the earliest.

    >>> from lrdp.integrity.keys import new_identity
    >>> office, everybody = new_identity("office"), [new_identity(name).member for name in "abcd"]
    >>> key = office.member.signing_key
    >>> three = Registry(version=1, first_round=0, previous=NO_PREVIOUS, consortium=key, members=tuple(everybody[:3]))
    >>> first = sign_registry(three, office)
    >>> second = sign_registry(next_registry(first, everybody), office)
    >>> verify_registry(first, first.digest) is first, verify_successor(first, second) is second
    (True, True)
    >>> read_title(second.encode()).follows(read_title(first.encode()))
    True
    """
    return Registry(
        version=current.version + 1,
        first_round=first_round,
        previous=current.digest,
        consortium=current.consortium,
        members=tuple(sorted(members, key=lambda member: member.name)),
    )


def sign_registry(registry: Registry, consortium: Identity) -> Registry:
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


def verify_registry(registry: Registry, pin: bytes) -> Registry:
    """``registry``, if it hashes to ``pin`` and is sound."""
    if registry.digest != pin:
        raise rejection(Verdict.REGISTRY_REFUSED, f"its hash is {registry.digest.hex()}, pinned is {pin.hex()}")
    require(CHECKS, registry)
    return registry


def verify_successor(current: Registry, following: Registry) -> Registry:
    """``following``, if the consortium made it to replace ``current``."""
    linked = following.previous == current.digest and following.version == current.version + 1
    if not linked or following.consortium != current.consortium:
        raise rejection(Verdict.REGISTRY_REFUSED, f"version {following.version} does not follow {current.version}")
    require(CHECKS, following)
    return following
