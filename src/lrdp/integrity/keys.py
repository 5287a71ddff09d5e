"""Who is who: an Ed25519 key that signs and an X25519 key that agrees on masks, under one name."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from lrdp import files
from lrdp.codec import NAME, Format, is_name, packed
from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import HASH, HASH_SIZE, SIGNATURE, SIGNATURE_SIZE, Encoded, checked_name, sized, statement

KEY_SIZE = 32
"""Bytes of a key of either kind, public or secret."""
_CURVE_PRIME = (1 << 255) - 19
_LARGE_ORDER = (1 << 252) + 27742317777372353535851937790883648493
_END = b"-----END PRIVATE KEY-----\n"
_MOST_BYTES = 4096


def _one() -> X25519PrivateKey:
    """X25519 sets bit 254 and clears the lower three: ±1 modulo the large order, and 0 modulo 8, has that form."""
    plus = 8 * pow(8, -1, _LARGE_ORDER)
    number = plus if plus >> 254 == 1 else 8 * _LARGE_ORDER - plus
    return X25519PrivateKey.from_private_bytes(number.to_bytes(32, "little"))


_ONE = _one()


def verifies(key: bytes, signature: bytes, label: bytes, *parts: bytes) -> bool:
    """Whether the holder of ``key`` signed these parts under this label.

    >>> one = new_identity("hospital-a")
    >>> verifies(one.member.signing_key, one.sign(b"note/v1", b"text"), b"note/v1", b"text")
    True
    """
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, statement(label, *parts))
    except (InvalidSignature, ValueError):
        return False
    return True


@dataclass(frozen=True, order=True, kw_only=True)
class Member(Encoded):
    """The public half of an identity, with a signature that shows both keys are its own."""

    name: str
    signing_key: bytes
    agreement_key: bytes
    proof: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(name=NAME, signing_key=HASH, agreement_key=HASH, proof=SIGNATURE)

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.signing_key, KEY_SIZE)
        sized(self.agreement_key, KEY_SIZE)
        sized(self.proof, SIGNATURE_SIZE)

    def signed(self, signature: bytes, label: bytes, *parts: bytes) -> bool:
        return verifies(self.signing_key, signature, label, *parts)

    def holds(self) -> bool:
        """Whether the keys are self-signed, and each is the one encoding of a point that only its secret leads to."""
        sound = agreement_key_sound(self.agreement_key) and signing_key_sound(self.signing_key)
        return sound and self.signed(self.proof, b"member/v1", self.name.encode(), self.agreement_key)


def agreement_key_sound(key: bytes) -> bool:
    """Whether the key is a point of the large prime order, in its one encoding.

    With a point of small order anybody would agree. A point plus one of small order, or one written as u + p or with
    the top bit set, agrees as the point itself does, so it could pass for another member's key. Multiplying by a number
    that is ±1 modulo the large order and 0 modulo 8 gives the part of large order: the same bytes, if that is all.
    """
    try:
        return _ONE.exchange(X25519PublicKey.from_public_bytes(key)) == key
    except ValueError:  # the product is the neutral element
        return False


def signing_key_sound(key: bytes) -> bool:
    """The same for a point of Ed25519, which is u = (1 + y)/(1 − y) on the curve of X25519."""
    y = int.from_bytes(key, "little") & ((1 << 255) - 1)
    if not 1 < y < _CURVE_PRIME:
        return False
    return agreement_key_sound(((1 + y) * pow(1 - y, -1, _CURVE_PRIME) % _CURVE_PRIME).to_bytes(KEY_SIZE, "little"))


def require_name(name: str) -> None:
    """Refuse a name that no registry may hold: whoever is to take part needs a valid one from the start.

    >>> require_name("hospital-a")
    """
    if not is_name(name):
        raise InvalidInput(
            f"{name[:80]!r} is not a name: 1 to 63 of a-z, 0-9, '.', '_' and '-', a letter or digit first, as in "
            f"hospital-3."
        )


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A name and the two secrets behind it, 32 random bytes each."""

    name: str
    signing_secret: bytes = field(repr=False)
    agreement_secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        require_name(self.name)
        sized(self.signing_secret, KEY_SIZE)
        sized(self.agreement_secret, KEY_SIZE)

    @cached_property
    def _signer(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.signing_secret)

    @cached_property
    def _agreer(self) -> X25519PrivateKey:
        return X25519PrivateKey.from_private_bytes(self.agreement_secret)

    @cached_property
    def member(self) -> Member:
        agreement_key = self._agreer.public_key().public_bytes_raw()
        return Member(
            name=self.name,
            signing_key=self._signer.public_key().public_bytes_raw(),
            agreement_key=agreement_key,
            proof=self.sign(b"member/v1", self.name.encode(), agreement_key),
        )

    def sign(self, label: bytes, *parts: bytes) -> bytes:
        return self._signer.sign(statement(label, *parts))

    def agree(self, agreement_key: bytes) -> bytes:
        """The secret shared with the holder of ``agreement_key``."""
        try:
            return self._agreer.exchange(X25519PublicKey.from_public_bytes(agreement_key))
        except ValueError:
            raise InvalidInput("the peer's agreement key has small order: anybody would know the secret.") from None


def new_identity(name: str, entropy: Callable[[int], bytes] = os.urandom) -> Identity:
    """A fresh identity; ``entropy`` is the operating system's unless test vectors are made."""
    return Identity(name=name, signing_secret=entropy(KEY_SIZE), agreement_secret=entropy(KEY_SIZE))


def save_identity(identity: Identity, path: Path) -> None:
    """Write both secrets as PEM, readable by the owner only; never over an existing file. Durable once it returns.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     save_identity(mine := new_identity("hospital-a"), Path(folder) / "identity.pem")
    ...     load_identity(Path(folder) / "identity.pem") == mine
    True
    """
    blocks = [_pem(identity._signer), _pem(identity._agreer)]
    try:
        files.write_new(path, f"Name: {identity.name}\n".encode() + b"".join(blocks), files.OWNER_ONLY)
    except FileExistsError:
        raise InvalidInput(
            f"{path} exists: a key is never overwritten, since nothing could be signed with it again."
        ) from None
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be written: {problem.strerror}.") from None


def load_identity(path: Path) -> Identity:
    """Read what ``save_identity`` wrote; refuses a file that others may read."""
    try:
        text = files.read_secret(path, _MOST_BYTES)
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}.") from None
    title, _, rest = text.partition(b"\n")
    first, found, second = rest.partition(_END)
    if not title.startswith(b"Name: ") or not found:
        raise InvalidInput(f"{path} is not a key file: it must hold a name and two PEM blocks.")
    return Identity(
        name=title.removeprefix(b"Name: ").decode("ascii", errors="replace"),
        signing_secret=_secret(first + found, Ed25519PrivateKey, path),
        agreement_secret=_secret(second, X25519PrivateKey, path),
    )


def _pem(key: Ed25519PrivateKey | X25519PrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _secret(block: bytes, kind: type[Ed25519PrivateKey] | type[X25519PrivateKey], path: Path) -> bytes:
    try:
        key = serialization.load_pem_private_key(block, None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
        raise InvalidInput(f"{path} holds a damaged PEM block.") from None
    if not isinstance(key, kind):
        raise InvalidInput(f"{path} must hold an Ed25519 key, then an X25519 key.")
    return sized(key.private_bytes_raw(), HASH_SIZE)
