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

and any question → Decline. The integrity protocol's own bytes travel inside as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from lrdp.codec import NUMBER, PACKED, RAW, Format, Kinds, Part, many, text
from lrdp.errors import InvalidInput, Malformed
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
class CatchUp:
    """What brings a client from where it stands to the round to come; ``heads`` of its ledger are handed back.

    ``tags`` end the round before for those who took part in it; ``receipts`` and ``model`` are for those who did not.
    Where a registry replaced another, it stands among the receipts, for everybody.
    """

    tags: bytes = b""
    receipts: tuple[bytes, ...] = ()
    heads: tuple[str, ...] = ()
    model: Body | None = None


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
    """PUBLISH."""

    publish: bytes
    aggregate: Body | None


@dataclass(frozen=True, kw_only=True)
class OwnTag:
    """TAG."""

    tag: bytes


@dataclass(frozen=True, kw_only=True)
class Closing:
    """TAGS, where they do not travel with the next round's work."""

    tags: bytes


@dataclass(frozen=True, kw_only=True)
class Accepted:
    """ACCEPT."""

    accept: bytes


@dataclass(frozen=True, kw_only=True)
class Decline:
    """A constant, never a sentence, which may be about the data; a round that the question ended is accepted still."""

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
    """Yes."""

    accept: bytes = b""


Work = Contribute | TrainAhead | HandIn | Count
Question = Hello | Work | Announcement | Closing | CanYou
Ending = Contributed | TrainedAhead | Counted | Accepted | Decline | Able
"""Answers that may hold the ACCEPT of the round before."""
Answer = Here | OwnTag | Ending

_Parts = Mapping[str, Part[bytes, Any]]

_TEXT: Final = text(16_384)  # a ledger's head is the longest
_RECEIPTS: Final = many(RAW, most_bytes=MOST_PREFIX_BYTES)
_SINCE: Final[_Parts] = {"since.tags": RAW, "since.receipts": _RECEIPTS, "since.heads": many(_TEXT, 16)}
_ORDER: Final[_Parts] = {"order": RAW, "signature": RAW}
_PAID: Final[_Parts] = {"head": _TEXT, "accept": RAW}


@dataclass(frozen=True)
class _Form:
    """How a kind travels: its small values in the prefix, under its word, and its vectors as bodies after it."""

    kind: type[Any]
    small: _Parts
    large: tuple[str, ...] = ()


_FORMS: Final = {
    b"hello": _Form(
        Hello,
        {
            "session": RAW,
            "nonce": RAW,
            "layout": RAW,
            "ancestors": _RECEIPTS,
            "rotations": _RECEIPTS,
            "signature": RAW,
        },
    ),
    b"here": _Form(Here, {"name": _TEXT, "round": NUMBER, "tip": RAW, "accept": RAW, "signature": RAW}),
    b"contribute": _Form(Contribute, {**_ORDER, "invitation": RAW, **_SINCE}, ("since.model",)),
    b"ahead": _Form(TrainAhead, {**_ORDER, **_SINCE}, ("since.model",)),
    b"handin": _Form(HandIn, {"invitation": RAW, **_SINCE}, ("since.model",)),
    b"count": _Form(Count, {**_ORDER, **_SINCE}, ("since.model",)),
    b"contributed": _Form(Contributed, {"trained_from": NUMBER, **_PAID, "update": RAW}, ("values",)),
    b"kept": _Form(TrainedAhead, {"trained_from": NUMBER, **_PAID}),
    b"counted": _Form(Counted, {"share": RAW, **_PAID}),
    b"announcement": _Form(Announcement, {"publish": RAW}, ("aggregate",)),
    b"tagged": _Form(OwnTag, {"tag": RAW}),
    b"closing": _Form(Closing, {"tags": RAW}),
    b"accepted": _Form(Accepted, {"accept": RAW}),
    b"declined": _Form(Decline, {"code": _TEXT, "accept": RAW}),
    b"canyou": _Form(CanYou, {**_ORDER, **_SINCE}, ("since.model",)),
    b"able": _Form(Able, {"accept": RAW}),
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
            f"the bytes are no message of {LABEL.decode()}, but damaged, or of other software or another version: "
            f"{problem}"
        ) from None
    kind, large = _FORMS[word].kind, _FORMS[word].large
    if len(given.bodies) > len(large):
        raise InvalidInput(f"a message {word.decode()} has {len(large)} vectors at the most, got {len(given.bodies)}.")
    values |= dict(zip(large, (*given.bodies, *[None] * len(large)), strict=False))
    message: Question | Answer = kind(**dict(_gathered(values)))
    return message


def _gathered(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """By field; what belongs to ``since`` is one value."""
    since = {path.removeprefix("since."): value for path, value in values.items() if path.startswith("since.")}
    yield from ((path, value) for path, value in values.items() if "." not in path)
    if since:
        yield "since", CatchUp(**since)
