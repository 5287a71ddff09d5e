"""How a kind of message travels, and what several kinds have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lrdp.codec import RAW, Part, many, text
from lrdp.federation.wire.frames import MOST_PREFIX_BYTES, Body

NamedParts = Mapping[str, Part[bytes, Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class CatchUp:
    """What brings a client from where it stands to the coming round; the ``heads`` of its ledgers are handed back.

    ``tags`` end the round before for those who took part in it; ``receipts`` and ``model`` are for those who did not.
    Where a registry replaced another, it stands among the receipts, for everybody.
    """

    tags: bytes = b""
    receipts: tuple[bytes, ...] = ()
    heads: tuple[str, ...] = ()
    model: Body | None = None


@dataclass(frozen=True)
class MessageForm:
    """How a kind travels: its small values in the prefix, under its word, and its vectors as bodies after it."""

    kind: type[Any]
    small: NamedParts
    large: tuple[str, ...] = ()


MOST_HEADS: Final = 16
"""Of a client's ledgers: it has one, and another for other records."""
TEXT: Final = text(16_384)  # a ledger's head is the longest
RECEIPTS: Final = many(RAW, most_bytes=MOST_PREFIX_BYTES)
SINCE: Final[NamedParts] = {"since.tags": RAW, "since.receipts": RECEIPTS, "since.heads": many(TEXT, MOST_HEADS)}
ORDER: Final[NamedParts] = {"order": RAW, "signature": RAW}
PAID: Final[NamedParts] = {"head": TEXT, "accept": RAW}
