"""What travels: a kind, small parts, and large bodies; the same bytes through Flower and through the guard's socket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import pack, unpack

MOST_BODIES: Final = 4
_LABEL: Final = b"lrdp-federation/v1"

Body = bytes | memoryview


@dataclass(frozen=True)
class Frame:
    """``head`` is packed and self-delimiting; ``bodies`` are vectors as they lie in memory."""

    head: bytes
    bodies: tuple[Body, ...] = ()

    @property
    def size(self) -> int:
        """Bytes in all."""
        return len(self.head) + sum(len(body) for body in self.bodies)


def frame(kind: bytes, parts: Sequence[bytes], bodies: Sequence[Body] = ()) -> Frame:
    """A frame of one kind."""
    return Frame(pack(_LABEL, kind, *parts), tuple(bodies))


def opened(given: Frame) -> tuple[bytes, tuple[bytes, ...]]:
    """The kind and the parts; raises NotVerified where the bytes are no frame."""
    label, *rest = unpack(given.head) or (b"",)
    if label != _LABEL or not rest or len(given.bodies) > MOST_BODIES:
        raise InvalidInput(f"the bytes are no frame of {_LABEL.decode()}: other software, or another version.")
    kind, *parts = rest
    return kind, tuple(parts)
