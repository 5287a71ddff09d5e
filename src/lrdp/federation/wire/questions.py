"""What server and client say to each other, each a value. A reply holds what is listed here and nothing else.

An exchange is a question of the server and an answer of the client::

    Hello         who are you, and where do you stand?                   → Here
    Contribute    train as ordered, and take part with the update        → Contributed
    TrainAhead    train as ordered; the update waits                     → TrainedAhead
    HandIn        take part with the update that waits                   → Contributed
    Count         how many are classified correctly, noised and charged  → Counted
    Announcement  this is the sum: sign your tag for it                  → OwnTag
    Closing       these are all tags: is the sum proved?                 → Accepted
    CanYou        would you train as ordered?                            → Able

and any question → Decline. What is said in `exact` rounds alone is in ``masked``, and what is said after tags that do
not add up is in ``disputing``. The integrity protocol's own bytes travel inside as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from lrdp.codec import NUMBER, PACKED, RAW, Format, Kinds
from lrdp.errors import InvalidInput, Malformed
from lrdp.federation.wire import disputing, masked
from lrdp.federation.wire.forms import ORDER, PAID, RECEIPTS, SINCE, TEXT, MessageForm
from lrdp.federation.wire.forms import CatchUp as CatchUp  # noqa: PLC0414 — it is part of every question about work
from lrdp.federation.wire.frames import MOST_PREFIX_BYTES, Body, Frame
from lrdp.integrity import HASH_SIZE

LABEL: Final = b"lrdp-federation/v2"
NOWHERE: Final = bytes(HASH_SIZE)
"""The tip of a client that has verified nothing yet."""


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The session as the server opened it, with the layout of its model, signed with the key that it names.

    ``ancestors`` are the registries before the session's own, for whoever pinned one of them, and ``rotations`` those
    that have replaced it since; both in their order.
    """

    session: bytes
    nonce: bytes
    layout: bytes
    ancestors: tuple[bytes, ...] = ()
    rotations: tuple[bytes, ...] = ()
    signature: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Here:
    """Who answers, up to where it has verified the session's history, and its last ACCEPT, in case that was lost."""

    name: str
    round: int
    tip: bytes
    accept: bytes = b""
    signature: bytes = b""

    def claim(self, session: bytes) -> tuple[bytes, ...]:
        """What is signed: a session is named by its server's fresh nonce, so no answer of another one counts."""
        return b"here/v1", session, NUMBER.write(self.round), self.tip


@dataclass(frozen=True, kw_only=True, eq=False)
class Contribute:
    """Train as ordered, and take part in the round of ``invitation``; ``signature`` is the server's, on the order."""

    order: bytes
    signature: bytes
    invitation: bytes
    since: CatchUp = field(default_factory=CatchUp)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainAhead:
    """Train as ordered, for a round to come: the update waits at the client."""

    order: bytes
    signature: bytes
    since: CatchUp = field(default_factory=CatchUp)


@dataclass(frozen=True, kw_only=True, eq=False)
class HandIn:
    """Take part in the round of ``invitation`` with the update that waits."""

    invitation: bytes
    since: CatchUp = field(default_factory=CatchUp)


@dataclass(frozen=True, kw_only=True, eq=False)
class Count:
    """Spend one step on a noised count, as ordered."""

    order: bytes
    signature: bytes
    since: CatchUp = field(default_factory=CatchUp)


@dataclass(frozen=True, kw_only=True, eq=False)
class Contributed:
    """The noised, quantised update with its commitment, from the model of ``trained_from``; ACCEPT; ledger's head."""

    trained_from: int
    head: str
    accept: bytes = b""
    update: bytes
    values: Body | None


@dataclass(frozen=True, kw_only=True)
class TrainedAhead:
    """An update was trained, and waits."""

    trained_from: int
    head: str
    accept: bytes = b""


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The noised share of correct records."""

    share: bytes
    head: str
    accept: bytes = b""


@dataclass(frozen=True, kw_only=True, eq=False)
class Announcement:
    """PUBLISH, the server's signed word on the sum, and the sum itself."""

    publish: bytes
    aggregate: Body | None

    @property
    def vectors(self) -> tuple[Body, ...]:
        """The sum."""
        return (self.aggregate or b"",)


@dataclass(frozen=True, kw_only=True)
class OwnTag:
    """TAG, a participant's answer to an announcement that holds."""

    tag: bytes


@dataclass(frozen=True, kw_only=True)
class Closing:
    """TAGS, where they do not travel with the next round's work."""

    tags: bytes


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """ACCEPT, in answer to the tags of a round that is verified."""

    accept: bytes


@dataclass(frozen=True, kw_only=True)
class Decline:
    """A constant, never a sentence, which could tell about the data; a round that the question ended stays accepted."""

    code: str
    accept: bytes = b""


@dataclass(frozen=True, kw_only=True, eq=False)
class CanYou:
    """Would this order be obeyed? Nothing is charged."""

    order: bytes
    signature: bytes
    since: CatchUp = field(default_factory=CatchUp)


@dataclass(frozen=True, kw_only=True)
class Able:
    """The order would be obeyed, as far as policy and books say."""

    accept: bytes = b""


Work = Contribute | TrainAhead | HandIn | Count | masked.Pledging
Sum = Announcement | masked.MaskedAnnouncement
Question = Hello | Work | Sum | Closing | CanYou | masked.Reveal | disputing.Dispute
Ending = Contributed | TrainedAhead | Counted | Accepted | Decline | Able | masked.Pledged | masked.AbleToMask
"""Answers that may hold the ACCEPT of the round before."""
Answer = Here | OwnTag | Ending | masked.Revealed | disputing.Deposed

_FORMS: Final = {
    b"hello": MessageForm(
        Hello,
        {
            "session": RAW,
            "nonce": RAW,
            "layout": RAW,
            "ancestors": RECEIPTS,
            "rotations": RECEIPTS,
            "signature": RAW,
        },
    ),
    b"here": MessageForm(Here, {"name": TEXT, "round": NUMBER, "tip": RAW, "accept": RAW, "signature": RAW}),
    b"contribute": MessageForm(Contribute, {**ORDER, "invitation": RAW, **SINCE}, ("since.model",)),
    b"ahead": MessageForm(TrainAhead, {**ORDER, **SINCE}, ("since.model",)),
    b"handin": MessageForm(HandIn, {"invitation": RAW, **SINCE}, ("since.model",)),
    b"count": MessageForm(Count, {**ORDER, **SINCE}, ("since.model",)),
    b"contributed": MessageForm(Contributed, {"trained_from": NUMBER, **PAID, "update": RAW}, ("values",)),
    b"kept": MessageForm(TrainedAhead, {"trained_from": NUMBER, **PAID}),
    b"counted": MessageForm(Counted, {"share": RAW, **PAID}),
    b"announcement": MessageForm(Announcement, {"publish": RAW}, ("aggregate",)),
    b"tagged": MessageForm(OwnTag, {"tag": RAW}),
    b"closing": MessageForm(Closing, {"tags": RAW}),
    b"accepted": MessageForm(Accepted, {"accept": RAW}),
    b"declined": MessageForm(Decline, {"code": TEXT, "accept": RAW}),
    b"canyou": MessageForm(CanYou, {**ORDER, **SINCE}, ("since.model",)),
    b"able": MessageForm(Able, {"accept": RAW}),
    **masked.FORMS,
    **disputing.FORMS,
}
_WORDS: Final = {form.kind: word for word, form in _FORMS.items()}
_PREFIXES: Final = Kinds(
    {word: Format(PACKED, (LABEL, word), form.small, MOST_PREFIX_BYTES) for word, form in _FORMS.items()}
)


def word_of(message: Question | Answer) -> str:
    """The word by which it travels."""
    return _WORDS[type(message)].decode()


def to_frame(message: Question | Answer) -> Frame:
    """The message as it travels."""
    word = _WORDS[type(message)]
    bodies = [body for path in _FORMS[word].large if (body := attrgetter(path)(message)) is not None]
    return Frame(_PREFIXES.formats[word].encode(message), tuple(bodies))


def read_message(given: Frame) -> Question | Answer:
    """What was sent; raises InvalidInput, and nothing else, for any bytes."""
    try:
        word, values = _PREFIXES.decode(given.prefix)
    except Malformed as problem:
        raise InvalidInput(
            f"the bytes are not a message of {LABEL.decode()}: damaged, or of other software or another version: "
            f"{problem}"
        ) from None
    kind, large = _FORMS[word].kind, _FORMS[word].large
    if len(given.bodies) > len(large):
        raise InvalidInput(f"a message {word.decode()} has at most {len(large)} vectors, got {len(given.bodies)}.")
    values |= dict(zip(large, (*given.bodies, *[None] * len(large)), strict=False))
    message: Question | Answer = kind(**dict(_gathered(values)))
    return message


def _gathered(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values by field; what belongs to ``since`` is one value."""
    since = {path.removeprefix("since."): value for path, value in values.items() if path.startswith("since.")}
    yield from ((path, value) for path, value in values.items() if "." not in path)
    if since:
        yield "since", CatchUp(**since)
