"""Who signed a wrong tag? What is said after tags did not add up, and never after they did.

``Dispute``: these are all tags, and they do not add up; whose is wrong? → ``Deposed``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lrdp.codec import RAW
from lrdp.federation.wire.forms import MessageForm


@dataclass(frozen=True, kw_only=True)
class Dispute:
    """All tags of the attempt that failed, each signed: a client sees for itself that they do not add up."""

    tags: bytes


@dataclass(frozen=True, kw_only=True)
class Deposed:
    """One's tag without its masks, and the mask shared with each peer, signed."""

    word: bytes


FORMS: Final = {b"dispute": MessageForm(Dispute, {"tags": RAW}), b"deposed": MessageForm(Deposed, {"word": RAW})}
