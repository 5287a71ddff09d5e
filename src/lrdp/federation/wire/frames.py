"""What travels: a small prefix, and large bodies; the same bytes through Flower and through the guard's socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lrdp.errors import InvalidInput

MOST_BODIES: Final = 4
MOST_PREFIX_BYTES: Final = 16 << 20
"""Receipts are most of a long prefix: of 3,700 rounds with 10 participants, say, for a client that missed them all."""

Body = bytes | memoryview


@dataclass(frozen=True)
class Frame:
    """``prefix`` is packed and self-delimiting; ``bodies`` are vectors as they lie in memory."""

    prefix: bytes
    bodies: tuple[Body, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Bytes of the prefix and of each body."""
        return len(self.prefix), *map(len, self.bodies)


def admit(sizes: Sequence[int], most: int) -> None:
    """Raise InvalidInput if the prefix, or all bodies together, have too many bytes to be decoded: ``most`` for bodies.

    Called with the announced sizes before anything is read or held, and with the actual sizes of what is there.
    """
    prefix, bodies = sizes[0], sum(sizes[1:])
    if prefix > MOST_PREFIX_BYTES or bodies > most:
        raise InvalidInput(
            f"the message has a prefix of {prefix} bytes and {bodies} bytes of vectors, and {MOST_PREFIX_BYTES} and "
            f"{most} are the most: it was not decoded."
        )
