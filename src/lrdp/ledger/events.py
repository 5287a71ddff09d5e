"""Entries of the ledger, as values and as lines.

An entry is one line of fields separated by tabs: its kind, the clock in microseconds since 1970 (for people; nothing
depends on it), then the fields below in their order. Each value has exactly one line.

This is the only reader of lines. It takes many at a time, those of a kind together and a column after the other,
because Python spends more time between values than on them; a single line is a column of one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

from lrdp.accounting import Adjacency, Mechanism
from lrdp.errors import InvalidInput, LedgerDamaged
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.texts import FLOAT, LONGEST_LINE, MECHANISM, WHOLE, WORD, Spelling, one_of
from lrdp.version import __version__

FORMAT: Final = 1
"""Of a ledger, entries and file together; a release that changes either raises it, and brings a migration."""


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
    """A number of further requests that were refused for one reason, and not written one by one."""

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


class Raised(NamedTuple):
    """The administrator's signed word that ``epsilon`` may be spent from here on, more than before."""

    at: int
    epsilon: float
    reason: str
    signature: str


class Closed(NamedTuple):
    """The administrator's signed end: nothing is charged any more."""

    at: int
    reason: str
    signature: str


Routine = Opened | PolicySet | Reserved | ReplyReady | Sent | Declined | Unlisted | Suspended
Signed = Voided | Adopted | Rotated | Raised | Closed
"""What a person does; the books check the signature on it."""
Event = Routine | Signed

_CLOCK, _CHARGE, _REFUSAL = WHOLE, WHOLE, one_of(Refusal)
FORMS: Final[dict[str, tuple[type[Event], tuple[Spelling, ...]]]] = {
    "OPENED": (
        Opened,
        (_CLOCK, WORD, WORD, WORD, WORD, WHOLE, one_of(Adjacency), FLOAT, FLOAT, WORD, WORD, WORD),
    ),
    "POLICY": (PolicySet, (_CLOCK, WORD, WORD)),
    "RESERVED": (Reserved, (_CLOCK, WORD, WORD, WHOLE, MECHANISM, WHOLE, FLOAT, WORD, FLOAT, FLOAT)),
    "READY": (ReplyReady, (_CLOCK, _CHARGE, WORD, WHOLE)),
    "SENT": (Sent, (_CLOCK, _CHARGE)),
    "REFUSED": (Declined, (_CLOCK, WORD, WORD, WHOLE, _REFUSAL, WORD)),
    "UNLISTED": (Unlisted, (_CLOCK, _REFUSAL, WHOLE)),
    "VOID": (Voided, (_CLOCK, _CHARGE, WORD, WORD)),
    "SUSPENDED": (Suspended, (_CLOCK, WORD)),
    "ADOPTED": (Adopted, (_CLOCK, WORD, MECHANISM, WHOLE, WORD)),
    "ROTATED": (Rotated, (_CLOCK, WORD, WORD)),
    "RAISED": (Raised, (_CLOCK, FLOAT, WORD, WORD)),
    "CLOSED": (Closed, (_CLOCK, WORD, WORD)),
}
"""How each kind of entry is written: its value, and the text of each of the value's fields in their order."""
_NAMES: Final = {kind: name for name, (kind, _) in FORMS.items()}


def encode(event: Event) -> bytes:
    """The line of an entry, without its end."""
    name = _NAMES[type(event)]
    _, fields = FORMS[name]
    return "\t".join([name, *(field.write(value) for field, value in zip(fields, event, strict=True))]).encode()


def check_format(first: bytes) -> None:
    """Raise if the first line of a ledger names another format, whatever else may have changed since.

    Raises:
        LedgerDamaged: for books that a later release wrote.
    """
    name, _, rest = first[:200].partition(b"\t")
    written = rest.split(b"\t")[1:2]
    if name == b"OPENED" and written and written != [str(FORMAT).encode()]:
        raise LedgerDamaged(
            f"these books are of format {written[0][:20].decode(errors='replace')!r} and this release, lrdp "
            f"{__version__}, reads {FORMAT}: nothing was changed; use the release that wrote them, or a later one."
        )


def decode_all(lines: Sequence[bytes]) -> list[Event]:
    """The entries of these lines, in their order.

    Raises:
        InvalidInput: if one of them is not an entry; which one is known only for a line that is read alone.
    """
    longest = max(map(len, lines), default=0)
    if longest > LONGEST_LINE:
        raise InvalidInput(f"an entry of {longest} bytes, at most {LONGEST_LINE} are read.")
    names = [line.partition(b"\t")[0] for line in lines]
    try:
        if b"\n" in b"".join(lines):
            raise ValueError("it contains a line break")
        alike = defaultdict[bytes, list[bytes]](list)
        for name, line in zip(names, lines, strict=True):
            alike[name].append(line)
        made = {name: iter(_values(name.decode(), found)) for name, found in alike.items()}
    except (KeyError, ValueError, TypeError, OverflowError) as problem:
        kind = names[0][:20].decode(errors="replace")
        raise InvalidInput(f"a line of kind {kind!r} is not an entry of a ledger: {problem}.") from None
    return [next(made[name]) for name in names]


def _values(name: str, lines: list[bytes]) -> list[Event]:
    """The entries of one kind: their lines are split as one, with a field between two that no line can hold."""
    kind, fields = FORMS[name]
    width = 1 + len(fields) + 1
    text = b"\t\n\t".join(lines)
    if text.count(b"\t") != len(lines) * width - 2:  # counted before anything is made of them
        raise ValueError(f"it does not have {len(fields)} fields after its kind")
    cells = text.decode().split("\t")
    if cells[width - 1 :: width].count("\n") != len(lines) - 1:
        raise ValueError(f"one has more than {len(fields)} fields after its kind, and another fewer")
    read = [field.read(cells[at::width]) for at, field in enumerate(fields, start=1)]
    return list(map(partial(tuple.__new__, kind), zip(*read, strict=True)))
