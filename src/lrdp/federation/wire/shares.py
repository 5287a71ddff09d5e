"""A noised share of correct records, as it is kept and travels: eight bytes."""

from __future__ import annotations

import math

from lrdp.codec import DOUBLE
from lrdp.errors import Malformed


def pack_share(share: float) -> bytes:
    """With noise it may lie below 0 or above 1."""
    return DOUBLE.write(share)


def read_share(body: bytes) -> float:
    """What ``pack_share`` packed; raises Malformed for anything else, and where a mean with it would be no number."""
    if not math.isfinite(share := DOUBLE.read(body)):
        raise Malformed(f"a share is a finite number, got {share}.")
    return share
