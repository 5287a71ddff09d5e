"""What server and client say to each other, each a value. A reply holds what is listed here and nothing else.

An exchange is a question of the server and an answer of the client::

    Hello         who are you, and where do you stand?                   → Here
    Contribute    train as ordered, and take part with the update        → Contributed
    TrainAhead    train as ordered; the update waits                     → TrainedAhead
    HandIn        take part with the update that waits                   → Contributed
    Count         how many are classified correctly, noised and charged  → Counted
    Announcement  this is the sum: sign your tag for it                  → OwnTag
    Closing       these are all tags: is the sum proved?                 → Accepted

and any question → Decline. The integrity protocol's own bytes travel inside as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final

from lrdp.errors import InvalidInput
from lrdp.federation.wire.frames import MOST_PREFIX_BYTES, Body, Frame, frame, opened
from lrdp.integrity import HASH_SIZE, as_number, number, pack, unpack

NOWHERE: Final = bytes(HASH_SIZE)
"""The tip of a client that has verified nothing yet."""


@dataclass(frozen=True, kw_only=True)
class Hello:
    """The session as the server proposes it, with the layout of its model, signed with the key that it names."""

    session: bytes
    nonce: bytes
    layout: bytes
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
        return b"here/v1", session, number(self.round), self.tip


@dataclass(frozen=True, kw_only=True, eq=False)
class CatchUp:
    """What brings a client from where it stands to the round to come.

    ``tags`` end the round before for those who took part in it; ``receipts`` and ``model`` bring up to date those who
    did not. ``heads`` are the client's own ledger heads, handed back.
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
    """The noised, quantised update with its commitment; the ACCEPT of the round before; and the ledger's head.

    ``trained_from`` is the round whose model the update started from.
    """

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
    """A constant, never a sentence: what an exception says may be about the data.

    A round that the question ended is accepted all the same.
    """

    code: str
    accept: bytes = b""


Work = Contribute | TrainAhead | HandIn | Count
Question = Hello | Work | Announcement | Closing
Ending = Contributed | TrainedAhead | Counted | Accepted | Decline
"""Answers that may hold the ACCEPT of the round before."""
Answer = Here | OwnTag | Ending

_LONGEST_TEXT: Final = 16_384  # that of a ledger's head
_MOST_TEXTS: Final = 16


def _text(part: bytes) -> str:
    if len(part) > _LONGEST_TEXT:
        raise InvalidInput(f"a text of {len(part)} bytes, and {_LONGEST_TEXT} is the most.")
    return part.decode("ascii")


@dataclass(frozen=True)
class _Codec:
    """How a small value travels."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


_BYTES: Final = _Codec(bytes, bytes)
_TEXT: Final = _Codec(str.encode, _text)
_NUMBER: Final = _Codec(number, as_number)
_PARTS: Final = _Codec(lambda parts: pack(*parts), lambda part: unpack(part, most_bytes=MOST_PREFIX_BYTES))
_TEXTS: Final = _Codec(
    lambda texts: pack(*map(str.encode, texts)), lambda part: tuple(map(_text, unpack(part, _MOST_TEXTS)))
)
_BODY: Final = None
"""A vector: no part of the prefix, but a body after it."""
_SINCE: Final = {"since.tags": _BYTES, "since.receipts": _PARTS, "since.heads": _TEXTS, "since.model": _BODY}
_ORDER: Final = {"order": _BYTES, "signature": _BYTES}
_PAID: Final = {"head": _TEXT, "accept": _BYTES}


@dataclass(frozen=True)
class _Form:
    """The word by which a kind travels, and how each of its values does, in their order."""

    word: bytes
    kind: type[Any]
    values: Mapping[str, _Codec | None]

    @property
    def small(self) -> dict[str, _Codec]:
        return {path: codec for path, codec in self.values.items() if codec is not None}

    @property
    def large(self) -> list[str]:
        return [path for path, codec in self.values.items() if codec is None]


_FORMS: Final = (
    _Form(b"hello", Hello, {"session": _BYTES, "nonce": _BYTES, "layout": _BYTES, "signature": _BYTES}),
    _Form(b"here", Here, {"name": _TEXT, "round": _NUMBER, "tip": _BYTES, "accept": _BYTES, "signature": _BYTES}),
    _Form(b"contribute", Contribute, {**_ORDER, "invitation": _BYTES, **_SINCE}),
    _Form(b"ahead", TrainAhead, {**_ORDER, **_SINCE}),
    _Form(b"handin", HandIn, {"invitation": _BYTES, **_SINCE}),
    _Form(b"count", Count, {**_ORDER, **_SINCE}),
    _Form(b"contributed", Contributed, {"trained_from": _NUMBER, **_PAID, "update": _BYTES, "values": _BODY}),
    _Form(b"kept", TrainedAhead, {"trained_from": _NUMBER, **_PAID}),
    _Form(b"counted", Counted, {"share": _BYTES, **_PAID}),
    _Form(b"announcement", Announcement, {"publish": _BYTES, "aggregate": _BODY}),
    _Form(b"tagged", OwnTag, {"tag": _BYTES}),
    _Form(b"closing", Closing, {"tags": _BYTES}),
    _Form(b"accepted", Accepted, {"accept": _BYTES}),
    _Form(b"declined", Decline, {"code": _TEXT, "accept": _BYTES}),
)
_BY_WORD: Final = {form.word: form for form in _FORMS}
_BY_KIND: Final = {form.kind: form for form in _FORMS}


def word_of(message: Question | Answer) -> str:
    """The word by which it travels."""
    return _BY_KIND[type(message)].word.decode()


def to_frame(message: Question | Answer) -> Frame:
    """The message as it travels."""
    form = _BY_KIND[type(message)]
    parts = [codec.write(attrgetter(path)(message)) for path, codec in form.small.items()]
    bodies = [body for path in form.large if (body := attrgetter(path)(message)) is not None]
    return frame(form.word, parts, bodies)


def read_message(given: Frame) -> Question | Answer:
    """What was sent; raises InvalidInput or NotVerified, and nothing else, for any bytes."""
    word, parts = opened(given)
    form = _BY_WORD.get(word)
    if form is None:
        raise InvalidInput(f"a message of kind {word[:20]!r} is not known here.")
    small, large = form.small, form.large
    if len(parts) != len(small) or len(given.bodies) > len(large):
        raise InvalidInput(f"a message of kind {word.decode()} has {len(small)} parts, got {len(parts)}.")
    values: dict[str, Any] = dict(zip(large, (*given.bodies, *[None] * len(large)), strict=False))
    try:
        values |= {path: codec.read(part) for (path, codec), part in zip(small.items(), parts, strict=True)}
    except UnicodeDecodeError:
        raise InvalidInput(f"a message of kind {word.decode()} holds text that is not ASCII.") from None
    message: Question | Answer = form.kind(**dict(_gathered(values)))
    return message


def _gathered(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """By field; what belongs to ``since`` is one value."""
    since = {path.removeprefix("since."): value for path, value in values.items() if path.startswith("since.")}
    yield from ((path, value) for path, value in values.items() if "." not in path)
    if since:
        yield "since", CatchUp(**since)
