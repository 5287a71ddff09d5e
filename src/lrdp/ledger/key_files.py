"""Signing keys: Ed25519, in PEM files that only their owner reads."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import InternalError, InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from lrdp import files
from lrdp.errors import InvalidInput

_MOST_BYTES: Final = 4096


@dataclass(frozen=True, kw_only=True)
class SigningKey:
    """A private key; ``public`` is its public half in hexadecimal."""

    public: str
    _private: Ed25519PrivateKey = field(repr=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key from the system's random source."""
        return cls._of(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> SigningKey:
        """The key in a PEM file; refuses one that others may read."""
        try:
            private = serialization.load_pem_private_key(files.read_secret(path, _MOST_BYTES), password=None)
        except FileNotFoundError:
            raise InvalidInput(
                f"there is no key at {path}: name where it is, or restore it from the backup; `lrdp init` makes keys "
                f"with a new budget alone."
            ) from None
        except OSError as problem:
            raise InvalidInput(f"the key {path} cannot be read: {problem.strerror}.") from None
        except (ValueError, TypeError, UnsupportedAlgorithm, InternalError):
            raise InvalidInput(f"the key {path} holds a damaged PEM block: restore it from the backup.") from None
        if not isinstance(private, Ed25519PrivateKey):
            raise InvalidInput(f"the key {path} is not an Ed25519 key: make one with `lrdp init`.")
        return cls._of(private)

    @classmethod
    def _of(cls, private: Ed25519PrivateKey) -> SigningKey:
        return cls(public=private.public_key().public_bytes_raw().hex(), _private=private)

    def write(self, path: Path) -> None:
        """A new PEM file of mode 0600; an existing file is never overwritten. Durable once it returns."""
        pem = self._private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        try:
            files.write_new(path, pem, files.OWNER_ONLY)
        except FileExistsError:
            raise InvalidInput(f"there is a key at {path} already: it is not overwritten.") from None
        except OSError as problem:
            raise InvalidInput(f"the key {path} cannot be written: {problem.strerror}.") from None

    def sign(self, message: bytes) -> str:
        """The signature in hexadecimal."""
        return self._private.sign(message).hex()


def is_signed(public: str, signature: str, message: bytes) -> bool:
    """Whether ``signature`` is that of ``message`` by the key of public half ``public``, each in its one spelling."""
    try:
        key, made = bytes.fromhex(public), bytes.fromhex(signature)
        Ed25519PublicKey.from_public_bytes(key).verify(made, message)
    except (InvalidSignature, ValueError):
        return False
    return (key.hex(), made.hex()) == (public, signature)
