"""Pairwise secrets, and the masks that hide a tag: each is added by one of a pair and subtracted by the other."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lrdp.integrity.encoding import statement
from lrdp.integrity.field import Field
from lrdp.integrity.keys import Identity


@dataclass(frozen=True, kw_only=True)
class Pairwise:
    """The keys that ``identity`` shares with each peer, for one session and one purpose."""

    identity: Identity
    session: bytes
    purpose: bytes
    peers: Mapping[str, bytes]
    _known: dict[str, bytes] = field(default_factory=dict, repr=False, compare=False)

    def key(self, peer: str) -> bytes:
        """K = HKDF(X25519(own, peer's), salt = session, info = purpose and both names)."""
        if peer not in self._known:
            names = sorted((self.identity.name, peer))
            info = statement(self.purpose, *(name.encode() for name in names))
            derivation = HKDF(algorithm=hashes.SHA256(), length=32, salt=self.session, info=info)
            self._known[peer] = derivation.derive(self.identity.agree(self.peers[peer]))
        return self._known[peer]

    def signed(self, names: Iterable[str]) -> Iterator[tuple[int, bytes]]:
        """+1 and the key for each peer after oneself in the alphabet, −1 and the key for each before."""
        own = self.identity.name
        return ((1 if own < peer else -1, self.key(peer)) for peer in names if peer != own)


def mask(pairwise: Pairwise, names: Iterable[str], bound_to: bytes, field: Field) -> int:
    """z = Σ ±F(K, dg) mod p.

    Guarantees: the masks of all ``names`` sum to zero; to whoever lacks one key of an honest pair they look uniform (F
    is HMAC-SHA-512 cut to 256 bits and reduced: within 2^-129 of uniform for a 127-bit prime).
    """
    label = statement(b"tagmask-value/v1", bound_to)
    values = (sign * _value(key, label) for sign, key in pairwise.signed(names))
    return sum(values) % field.prime


def mask_of(pairwise: Pairwise, peer: str, bound_to: bytes, field: Field) -> int:
    """F(K, dg) mod p: the one mask that ``peer`` has too. It tells nothing of the key or of the mask for another dg."""
    return _value(pairwise.key(peer), statement(b"tagmask-value/v1", bound_to)) % field.prime


def _value(key: bytes, label: bytes) -> int:
    return int.from_bytes(hmac.digest(key, label, hashlib.sha512)[:32], "little")
