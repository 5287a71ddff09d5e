"""Bytes nobody can predict: AES-256 in counter mode, keyed by the operating system."""

from __future__ import annotations

import os
from typing import NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

_KEY_BYTES = 32
_MANTISSA_BITS = 53


class Keystream:
    """Private randomness for one sampler or one noise source.

    Guarantees: no seed of torch, numpy or python reaches it; a forked child draws its own key; it cannot be copied,
    pickled or written into a checkpoint, so no draw comes twice.
    """

    def __init__(self, key: bytes) -> None:
        self._process = os.getpid()
        self._cipher = _cipher(key)

    @classmethod
    def from_system(cls) -> Keystream:
        """A stream with a fresh key from the operating system: the only kind a private update uses."""
        return cls(os.urandom(_KEY_BYTES))

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` independent uniform 64-bit words."""
        if os.getpid() != self._process:
            self._process, self._cipher = os.getpid(), _cipher(os.urandom(_KEY_BYTES))
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype=np.uint64)

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """``count`` uniform values in (0, 1], each a multiple of 2^-53: never 0, so a logarithm is finite."""
        heads = self.words(count) >> np.uint64(64 - _MANTISSA_BITS)
        values = heads.view(np.int64).astype(np.float64)
        values += 1.0
        values *= 2.0**-_MANTISSA_BITS
        return values

    def below(self, limit: int, count: int) -> NDArray[np.int64]:
        """``count`` uniform integers in [0, limit), without the bias of a plain remainder."""
        tail = 2**64 % limit
        drawn = self.words(count)
        kept = drawn if tail == 0 else drawn[drawn < np.uint64(2**64 - tail)]
        numbers = (kept % np.uint64(limit)).astype(np.int64)
        if len(numbers) == count:
            return numbers
        return np.concatenate([numbers, self.below(limit, count - len(numbers))])

    def __reduce__(self) -> NoReturn:
        raise TypeError("A keystream is never copied or stored: a repeated draw would cancel the noise.")


def _cipher(key: bytes) -> CipherContext:
    return Cipher(AES(key), CTR(bytes(16))).encryptor()
