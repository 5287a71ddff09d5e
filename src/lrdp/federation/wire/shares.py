"""A noised share of correct records, as it is kept and travels."""

from __future__ import annotations

import struct
from typing import Final

from lrdp.errors import InvalidInput

_VALUE: Final = struct.Struct("<d")


def pack_share(share: float) -> bytes:
    """Eight bytes; with noise it may lie below 0 or above 1."""
    return _VALUE.pack(share)


def read_share(body: bytes) -> float:
    """What ``pack_share`` packed."""
    if len(body) != _VALUE.size:
        raise InvalidInput(f"a share has {_VALUE.size} bytes, got {len(body)}.")
    (value,) = _VALUE.unpack(body)
    return float(value)
