"""Which models of a session a server keeps; torch is not needed to read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lrdp.federation.wire.averaging import Averaging


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is kept besides the last and the best: with ``every`` 10, say, those of rounds 10, 20 and so on.

    With ``average``, the models that it is made of, and the average itself once a run ends.
    """

    every: int | None = None
    average: Averaging | None = None


NOTHING_MORE: Final = Keeping()
