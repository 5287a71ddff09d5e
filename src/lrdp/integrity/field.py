"""Arithmetic modulo a prime, and numbers modulo it drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lrdp.integrity.encoding import digest


@dataclass(frozen=True)
class Field:
    """The whole numbers modulo ``prime``."""

    prime: int

    @property
    def bits(self) -> int:
        return self.prime.bit_length()

    @property
    def width(self) -> int:
        """Bytes of one element."""
        return (self.bits + 7) // 8

    def expand(self, label: bytes, seed: bytes, count: int) -> list[int]:
        """``count`` uniform elements: AES-256-CTR under SHA-256(label, seed), rejecting what is not below the prime.

        Guarantees: exactly uniform if AES-CTR is a random function; the k-th element does not depend on ``count``.
        """
        stream = Cipher(algorithms.AES(digest(b"expand/v1", label, seed)), modes.CTR(bytes(16))).encryptor()
        mask, width = (1 << self.bits) - 1, self.width
        elements: list[int] = []
        while len(elements) < count:
            raw = stream.update(bytes(width * (count - len(elements))))
            drawn = (int.from_bytes(raw[at : at + width], "little") & mask for at in range(0, len(raw), width))
            elements += [element for element in drawn if element < self.prime]
        return elements


# A challenge bound to the transcript can be ground offline, so 61 bits would not do.
MERSENNE_127 = Field((1 << 127) - 1)
