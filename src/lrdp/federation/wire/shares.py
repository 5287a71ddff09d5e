"""A noised share of correct records, as it is kept and travels: eight bytes."""

from __future__ import annotations

from lrdp.codec import DOUBLE


def pack_share(share: float) -> bytes:
    """With noise it may lie below 0 or above 1."""
    return DOUBLE.write(share)


def read_share(body: bytes) -> float:
    """What ``pack_share`` packed."""
    return DOUBLE.read(body)
