"""What is said in `exact` rounds alone, where updates leave under masks and the server sees their sum.

::

    CanYou              would you train as ordered?                         → AbleToMask, with one's mask key
    Pledging            train as ordered, mask, and commit to the result    → Pledged
    Reveal              everybody is bound: send what you committed to      → Revealed
    MaskedAnnouncement  this is the sum, and these are the masked updates   → OwnTag

Every participant is sent the masked update of every other one, so there is a limit to the size of such rounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lrdp.codec import NUMBER, RAW
from lrdp.errors import InvalidInput
from lrdp.federation.wire.forms import ORDER, PAID, RECEIPTS, SINCE, CatchUp, MessageForm
from lrdp.federation.wire.frames import Body
from lrdp.integrity import FixedPoint

MOST_RELAYED_BYTES: Final = 512 << 20
"""The vectors of one announcement: a client holds them in memory at once, besides its model and its records.

That allows the paper's VGG11 (9.2 million coordinates) among 13, a million among 133, and 134 million for nobody.
"""


@dataclass(frozen=True, kw_only=True)
class AbleToMask:
    """Yes, and this is the key that masks are agreed on with, for this session."""

    key: bytes
    accept: bytes = b""


@dataclass(frozen=True, kw_only=True, eq=False)
class Pledging:
    """Train as ordered, mask the update for the round of ``invitation`` with everybody's ``keys``, and commit to it."""

    order: bytes
    signature: bytes
    invitation: bytes
    keys: tuple[bytes, ...]
    since: CatchUp


@dataclass(frozen=True, kw_only=True)
class Pledged:
    """A commitment to a masked update, which stays with the client until everybody invited is bound; ledger's head."""

    trained_from: int
    head: str
    accept: bytes = b""
    pledge: bytes


@dataclass(frozen=True, kw_only=True)
class Reveal:
    """The commitments of all who are invited."""

    pledges: tuple[bytes, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Revealed:
    """The masked update: noise to whoever does not have all of them."""

    update: bytes
    values: Body | None


@dataclass(frozen=True, kw_only=True, eq=False)
class MaskedAnnouncement:
    """PUBLISH with the masked updates, one after the other in the roster's order."""

    publish: bytes
    aggregate: Body | None
    relayed: Body | None

    @property
    def vectors(self) -> tuple[Body, ...]:
        """The sum, and each masked update; they have the same length."""
        total, relayed = self.aggregate or b"", memoryview(self.relayed or b"")
        width = max(1, len(total))
        return total, *(relayed[start : start + width] for start in range(0, len(relayed), width))


FORMS: Final = {
    b"ablemask": MessageForm(AbleToMask, {"key": RAW, "accept": RAW}),
    b"pledging": MessageForm(Pledging, {**ORDER, "invitation": RAW, "keys": RECEIPTS, **SINCE}, ("since.model",)),
    b"pledged": MessageForm(Pledged, {"trained_from": NUMBER, **PAID, "pledge": RAW}),
    b"reveal": MessageForm(Reveal, {"pledges": RECEIPTS}),
    b"revealed": MessageForm(Revealed, {"update": RAW}, ("values",)),
    b"masked": MessageForm(MaskedAnnouncement, {"publish": RAW}, ("aggregate", "relayed")),
}


def relayed_bytes(point: FixedPoint, count: int) -> int:
    """What each of ``count`` participants is sent: the sum, and everybody's masked update."""
    return (1 + count) * point.size * point.sum_type(count).itemsize


def require_relayable(point: FixedPoint, count: int) -> None:
    """Refuse a round whose announcement would have more bytes than a client takes."""
    size = relayed_bytes(point, count)
    if size > MOST_RELAYED_BYTES:
        raise InvalidInput(
            f"an exact round of {count} participants sends each of them {count} masked updates of {point.size} "
            f"coordinates and their sum, {size} bytes; at most {MOST_RELAYED_BYTES} are sent: take fewer participants, "
            f"a smaller model, or SketchRounds(), in which the server sees each noised update; nothing was trained or "
            f"spent for it."
        )
