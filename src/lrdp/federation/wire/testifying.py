"""Who signed a wrong tag? What is said after tags did not sum up, and never after they did.

``Testify``: these are all tags, and they do not sum up; whose is wrong? → ``Testimony``
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lrdp.codec import RAW
from lrdp.federation.wire.forms import Form


@dataclass(frozen=True, kw_only=True)
class Testify:
    """All tags of the attempt that failed, each signed: a client sees for itself that they do not sum up."""

    tags: bytes


@dataclass(frozen=True, kw_only=True)
class Testimony:
    """One's tag without its mask, and the mask that each peer had a share in, signed."""

    word: bytes


FORMS: Final = {b"testify": Form(Testify, {"tags": RAW}), b"testimony": Form(Testimony, {"word": RAW})}
