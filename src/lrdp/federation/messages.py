"""The messages between server and client, each a value. A reply holds what is listed here and nothing else.

One exchange is a question of the server and an answer of the client: Hello → Here, Work → Done, Announcement → Tagged,
Closing → Accepted; and any question → Declined. The integrity protocol's own bytes travel inside as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import Field, dataclass, fields
from typing import Any, Final

from lrdp.errors import InvalidInput
from lrdp.federation.frames import MOST_HEAD_BYTES, Body, Frame, frame, opened
from lrdp.integrity.encoding import HASH_SIZE, as_number, number, pack, unpack

NOWHERE: Final = bytes(HASH_SIZE)
"""The head of a client that has verified nothing yet."""


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
    head: bytes
    accept: bytes = b""
    signature: bytes = b""

    def claim(self, session: bytes) -> tuple[bytes, ...]:
        """What is signed: a session is named by its server's fresh nonce, so no answer of another one counts."""
        return b"here/v1", session, number(self.round), self.head


@dataclass(frozen=True, kw_only=True, eq=False)
class Work:
    """Train as ordered, and take part in the round of ``train`` with the result.

    Without ``train`` the update waits at the client; without ``order`` the one that waits takes part. ``tags`` end the
    round before for those who took part in it; ``receipts`` and ``model`` bring up to date those who did not. ``heads``
    are the client's own ledger heads, handed back. ``signature`` is the server's, on the order.
    """

    order: bytes = b""
    signature: bytes = b""
    train: bytes = b""
    tags: bytes = b""
    receipts: tuple[bytes, ...] = ()
    heads: tuple[str, ...] = ()
    model: Body | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class Done:
    """The noised, quantised update with its commitment; the ACCEPT of the round before; and the ledger's head.

    ``trained_from`` is the round whose model the update started from. Without a commitment the update stays behind.
    """

    trained_from: int
    head: str
    accept: bytes = b""
    update: bytes = b""
    values: Body | None = None


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
    """TAGS, where they do not travel with the next round's Work."""

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


Question = Hello | Work | Announcement | Closing
Answer = Here | Done | OwnTag | Accepted | Decline

_KINDS: Final[dict[bytes, type[Any]]] = {
    kind.__name__.lower().encode(): kind
    for kind in (Hello, Here, Work, Done, Announcement, OwnTag, Closing, Accepted, Decline)
}

_LONGEST_TEXT: Final = 16_384  # that of a ledger's head
_MOST_TEXTS: Final = 16


def _text(part: bytes) -> str:
    if len(part) > _LONGEST_TEXT:
        raise InvalidInput(f"a text of {len(part)} bytes, and {_LONGEST_TEXT} is the most.")
    return part.decode("ascii")


Codec = tuple[Callable[[Any], bytes], Callable[[bytes], Any]]
_TEXT: Final[Codec] = (str.encode, _text)
_CODECS: Final[dict[str, Codec]] = {
    "bytes": (bytes, bytes),
    "str": _TEXT,
    "int": (number, as_number),
    "tuple[bytes, ...]": (lambda parts: pack(*parts), lambda part: unpack(part, most_bytes=MOST_HEAD_BYTES)),
    "tuple[str, ...]": (
        lambda texts: pack(*map(_TEXT[0], texts)),
        lambda part: tuple(map(_TEXT[1], unpack(part, _MOST_TEXTS))),
    ),
}
"""How a field travels, by its type; a vector is no part but a body."""


def _small(kind: type[Any]) -> list[Field[Any]]:
    return [field for field in fields(kind) if field.type in _CODECS]


def _large(kind: type[Any]) -> list[str]:
    return [field.name for field in fields(kind) if field.type not in _CODECS]


def to_frame(message: Question | Answer) -> Frame:
    """The message as it travels."""
    kind = type(message)
    parts = [_CODECS[str(field.type)][0](getattr(message, field.name)) for field in _small(kind)]
    bodies = [body for name in _large(kind) if (body := getattr(message, name)) is not None]
    return frame(kind.__name__.lower().encode(), parts, bodies)


def read_message(given: Frame) -> Question | Answer:
    """What was sent; raises InvalidInput or NotVerified, and nothing else, for any bytes."""
    name, parts = opened(given)
    kind = _KINDS.get(name)
    if kind is None:
        raise InvalidInput(f"a message of kind {name[:20]!r} is not known here.")
    small, large = _small(kind), _large(kind)
    if len(parts) != len(small) or len(given.bodies) > len(large):
        raise InvalidInput(f"a message of kind {kind.__name__} has {len(small)} parts, got {len(parts)}.")
    bodies = dict(zip(large, (*given.bodies, *[None] * len(large)), strict=False))
    try:
        values = {field.name: _CODECS[str(field.type)][1](part) for field, part in zip(small, parts, strict=True)}
    except UnicodeDecodeError:
        raise InvalidInput(f"a message of kind {kind.__name__} holds text that is not ASCII.") from None
    message: Question | Answer = kind(**values, **bodies)
    return message
