"""Entries of the ledger, as values and as lines.

An entry is one line of fields separated by tabs: its kind, the clock in microseconds since 1970 (for people; nothing
depends on it), then the fields below in their order. Each value has exactly one line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from lrdp.accounting import Adjacency, Mechanism
from lrdp.errors import InvalidInput
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.texts import (
    LONGEST_LINE,
    decode_float,
    decode_mechanism,
    decode_word,
    encode_float,
    encode_mechanism,
    encode_word,
)

FORMAT: Final = "1"
_MOST_FIELDS: Final = 16


class Opened(NamedTuple):
    """The first entry: whose books these are, what may be spent, and by which filter."""

    at: int
    format: str
    ledger: str
    client: str
    unit: str
    max_rows_per_unit: int
    adjacency: Adjacency
    epsilon: float
    delta: float
    filter: str
    client_key: str
    administrator_key: str


class PolicySet(NamedTuple):
    """The policy in force from here on, word for word."""

    at: int
    digest: str
    text: str


class Reserved(NamedTuple):
    """A charge; ``guaranteed`` and ``spent`` are what ``accountant`` then made of all charges up to this one."""

    at: int
    key: str
    run: str
    round: int
    mechanism: Mechanism
    steps: int
    clip_norm: float
    accountant: str
    guaranteed: float
    spent: float


class ReplyReady(NamedTuple):
    """The noised reply to the charge at entry ``charge`` lies in the outbox."""

    at: int
    charge: int
    digest: str
    size: int


class Sent(NamedTuple):
    """The reply to the charge at entry ``charge`` has left."""

    at: int
    charge: int


class Declined(NamedTuple):
    """A request that was refused, at no cost."""

    at: int
    key: str
    run: str
    round: int
    refusal: Refusal
    sentence: str


class Unlisted(NamedTuple):
    """So many more requests that were refused for one reason, and not written one by one."""

    at: int
    refusal: Refusal
    requests: int


class Voided(NamedTuple):
    """The administrator's signed word that nothing of the charge at entry ``charge`` left the machine."""

    at: int
    charge: int
    reason: str
    signature: str


class Suspended(NamedTuple):
    """These books were shown a head they signed but do not contain."""

    at: int
    head: str


class Adopted(NamedTuple):
    """The administrator's signed charge for what is missing below ``head``."""

    at: int
    head: str
    mechanism: Mechanism
    steps: int
    signature: str


class Rotated(NamedTuple):
    """From here on heads are signed with ``key``; the key before it signed this."""

    at: int
    key: str
    signature: str


Event = Opened | PolicySet | Reserved | ReplyReady | Sent | Declined | Unlisted | Voided | Suspended | Adopted | Rotated

_WRITE: Final[dict[str, Callable[..., str]]] = {
    "int": lambda value: str(int(value)),
    "float": encode_float,
    "str": encode_word,
    "Mechanism": encode_mechanism,
    "Adjacency": lambda value: value.value,
    "Refusal": lambda value: value.value,
}

KINDS: Final[dict[str, type[Event]]] = {
    "OPENED": Opened,
    "POLICY": PolicySet,
    "RESERVED": Reserved,
    "READY": ReplyReady,
    "SENT": Sent,
    "REFUSED": Declined,
    "UNLISTED": Unlisted,
    "VOID": Voided,
    "SUSPENDED": Suspended,
    "ADOPTED": Adopted,
    "ROTATED": Rotated,
}
_NAMES: Final = {kind: name for name, kind in KINDS.items()}


def encode(event: Event) -> bytes:
    """The line of an entry, without its end."""
    kind = type(event)
    types = kind.__annotations__.values()
    values = [_WRITE[_type_name(field)](value) for field, value in zip(types, event, strict=True)]
    return "\t".join([_NAMES[kind], *values]).encode()


def decode(line: bytes) -> Event:
    """The entry that :func:`encode` wrote.

    Raises:
        InvalidInput: for a line that is not an entry.
    """
    if len(line) > LONGEST_LINE:
        raise InvalidInput(f"an entry of {len(line)} bytes, and {LONGEST_LINE} is the most.")
    name = "?"
    try:
        fields = line.decode().split("\t", _MOST_FIELDS)
        name = fields[0]
        return _READERS[name](fields)
    except (KeyError, ValueError, IndexError, TypeError, OverflowError) as problem:
        raise InvalidInput(f"a line of kind {name[:20]!r} is no entry of a ledger: {problem}.") from None


def _type_name(annotation: object) -> str:
    return str(getattr(annotation, "__forward_arg__", annotation))


class ChargeTerms(NamedTuple):
    """What a charge is for: the fields of :class:`Reserved` that a run's rounds have in common."""

    mechanism: Mechanism
    steps: int
    clip_norm: float
    accountant: str


def decode_terms(text: str) -> ChargeTerms:
    """The terms from their part of a line."""
    mechanism, steps, clip, accountant = text.split("\t", 4)
    return ChargeTerms(decode_mechanism(mechanism), int(steps), decode_float(clip), decode_word(accountant))


_READ: Final[dict[str, Callable[[str], object]]] = {
    "int": int,
    "float": decode_float,
    "str": decode_word,
    "Mechanism": decode_mechanism,
    "Adjacency": Adjacency,
    "Refusal": Refusal,
}


def _reader(kind: type[Event]) -> Callable[[list[str]], Event]:
    readers = [_READ[_type_name(field)] for field in kind.__annotations__.values()]

    def read(values: list[str]) -> Event:
        return kind._make(reader(value) for reader, value in zip(readers, values[1:], strict=True))

    return read


_READERS: Final = {name: _reader(kind) for name, kind in KINDS.items()}
