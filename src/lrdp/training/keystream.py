"""Bytes nobody can predict: AES-256 in counter mode, keyed by the operating system."""

from __future__ import annotations

import os
import sys
from typing import ClassVar, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

_KEY_BYTES = 32
_FRACTION_BITS = np.uint64((1 << 52) - 1)
_EXPONENT_OF_ONE = np.uint64(0x3FF << 52)
_ZEROS = memoryview(bytes(1 << 16))  # what is encrypted: the keystream itself comes out


class Keystream:
    """Private randomness for one sampler or one noise source.

    Guarantees: no seed of torch, numpy or python reaches it; a forked child draws its own key; it cannot be copied,
    pickled or written into a checkpoint, so no draw comes twice.

    >>> Keystream.from_system().words(3).shape
    (3,)
    """

    _forks: ClassVar[int] = 0  # between the first process and this one: no number comes twice in a line of descent

    def __init__(self, key: bytes) -> None:
        self._born, self._cipher = Keystream._forks, _cipher(key)

    @classmethod
    def from_system(cls) -> Keystream:
        """A stream with a fresh key from the operating system: the only kind a private update uses."""
        return cls(os.urandom(_KEY_BYTES))

    def words(self, count: int) -> NDArray[np.uint64]:
        """``count`` independent uniform 64-bit words."""
        found = np.empty(count, dtype=np.uint64)
        self.fill(found)
        return found

    def fill(self, words: NDArray[np.uint64]) -> None:
        """The same, written over ``words``: a buffer that is used again costs no page faults."""
        if self._born != Keystream._forks:
            self._born, self._cipher = Keystream._forks, _cipher(os.urandom(_KEY_BYTES))
        room = words.view(np.uint8).data
        for start in range(0, words.nbytes, len(_ZEROS)):
            part = room[start : start + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)

    def key(self) -> bytes:
        """A key for another cipher: as secret as this stream's own, and never given out again."""
        return self.words(_KEY_BYTES // 8).tobytes()

    def uniforms(self, count: int) -> NDArray[np.float64]:
        """``count`` uniform values in (0, 1], each a multiple of 2^-52: never 0, so a logarithm is finite."""
        words = self.words(count)
        words &= _FRACTION_BITS
        words |= _EXPONENT_OF_ONE  # read as floats: uniform in [1, 2), without the slow conversion of integers
        return np.subtract(2.0, words.view(np.float64))

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

    @classmethod
    def _forked(cls) -> None:
        Keystream._forks += 1


def _cipher(key: bytes) -> CipherContext:
    return Cipher(AES(key), CTR(bytes(16))).encryptor()


# Not by the process's number, which is used again. Counting cannot fail, and no stream needs to be found for it.
if sys.platform != "win32":
    os.register_at_fork(after_in_child=Keystream._forked)
