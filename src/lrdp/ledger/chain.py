"""The hash chain: each entry is bound to all before it."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from lrdp.errors import LedgerDamaged

GENESIS: Final = sha256(b"lrdp ledger, format 1").digest()
"""What the first entry is chained to."""


def link(previous: bytes, line: bytes) -> bytes:
    """The hash of an entry: SHA-256 of the 32 bytes before it and its line."""
    return sha256(previous + line).digest()


def broken(seq: int) -> LedgerDamaged:
    """The error for an entry whose hash is not that of its line."""
    return LedgerDamaged(
        f"entry {seq} does not match its hash: the ledger was changed or the disk is failing, so nothing is released; "
        f"restore the newest backup and adopt the last head that a server or peer holds."
    )
