"""The books: what all entries together say. Folded in their order, and refusing an entry that cannot follow."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from lrdp.accounting import Budget, Mechanism
from lrdp.errors import LedgerDamaged
from lrdp.ledger import events
from lrdp.ledger.chain import GENESIS, broken
from lrdp.ledger.charges import Charges, State
from lrdp.ledger.choice import FilterChoice, decode_choice
from lrdp.ledger.heads import Head, Successor, rotation_message
from lrdp.ledger.key_files import is_signed
from lrdp.ledger.tallies import RefusalTally
from lrdp.ledger.texts import encode_mechanism
from lrdp.ledger.whole_rounds import Entry, read_rounds, stretches

__all__ = ["Books", "State", "adopt_message", "void_message"]
_BATCH: Final = 1024  # entries read at a time: enough for long columns, few enough to hold in memory
_WRONG: Final = (ValueError, KeyError, OverflowError, TypeError)
"""What reading a line raises if it is not as it was written, and folding it if it cannot follow."""


class Books(Charges):
    """The state after the entries so far: the charges, whose they are, and what else was recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.seq = 0
        self.digest = GENESIS
        self.opened: events.Opened
        self.choice: FilterChoice
        self.policies: list[events.PolicySet] = []
        self.refusals = RefusalTally()
        self.suspended: Head | None = None
        self.adopted: list[Head] = []
        self.successors: list[Successor] = []
        self.latest_clock = 0
        self.clock_fell_at: list[int] = []

    @property
    def budget(self) -> Budget:
        return Budget(epsilon=self.opened.epsilon, delta=self.opened.delta)

    @property
    def client_key(self) -> str:
        """The key that signs from here on."""
        return self.successors[-1].key if self.successors else self.opened.client_key

    @property
    def known_points(self) -> set[str]:
        """Hashes outside this chain up to which everything was charged here."""
        return {point.digest for head in self.adopted for point in head.points}

    def begun(self) -> Books:
        """These books, if they have a first entry."""
        if not self.seq:
            raise LedgerDamaged(
                "the ledger holds no entry: making it was interrupted, so remove the file and begin anew."
            )
        return self

    def append(self, line: bytes, digest: bytes) -> None:
        """One entry more: see :meth:`extend`."""
        self.extend([(line, digest)])

    def extend(self, entries: Iterable[Entry]) -> None:
        """Check each entry's hash, decode it and fold it in.

        Raises:
            LedgerDamaged: if an entry is not what was written, or cannot follow those before it.
        """
        source, more = iter(entries), True
        with _uncollected():
            while more:
                batch: list[Entry] = []
                try:
                    batch.extend(islice(source, _BATCH))
                finally:  # also if reading failed: of two things that are wrong the first is named
                    self._extend(batch)
                more = bool(batch)

    def _extend(self, batch: list[Entry]) -> None:
        for likely, entries in stretches(batch):
            if not (likely and self._fold_rounds(entries)):
                self._fold_each(entries)

    def _fold_rounds(self, entries: list[Entry]) -> bool:
        """Fold whole rounds by columns; False, and nothing is folded, if they must be folded one by one."""
        if not self.seq:
            return False
        try:
            rounds = read_rounds(entries, seq=self.seq, digest=self.digest, clock=self.latest_clock)
            self._add(rounds)
        except _WRONG:
            return False
        self.seq, self.digest, self.latest_clock = self.seq + len(entries), entries[-1][1], rounds.clock
        return True

    def _fold_each(self, entries: list[Entry]) -> None:
        seq, previous, clock = self.seq, self.digest, self.latest_clock
        note_steps = self.steps_at.append
        try:
            for line, digest in entries:
                seq += 1
                if sha256(previous + line).digest() != digest:
                    raise broken(seq)
                fields = line.decode().split("\t", 5)
                quick = _QUICK.get(fields[0])
                if quick is not None and seq > 1:
                    now = quick(self, seq, fields)
                else:
                    now = self._fold(seq, events.decode(line))
                note_steps(self.steps)
                if now < clock:
                    self.clock_fell_at.append(seq)
                previous, clock = digest, now
        except TypeError:
            raise broken(seq) from None
        except _WRONG as problem:
            raise LedgerDamaged(f"entry {seq} cannot stand where it does: {problem}.") from None
        self.seq, self.digest, self.latest_clock = seq, previous, clock

    def _fold(self, seq: int, event: events.Event) -> int:
        if (seq == 1) is not (type(event) is events.Opened):
            raise ValueError("a ledger begins with OPENED, and has it once")
        _FOLD[type(event)](self, event)
        return event.at

    def _open(self, event: events.Opened) -> None:
        if event.format != events.FORMAT:
            raise ValueError(f"its format is {event.format!r}, this version reads {events.FORMAT}")
        self.opened, self.choice = event, decode_choice(event.filter)

    def _set_policy(self, event: events.PolicySet) -> None:
        self.policies.append(event)

    def _void(self, event: events.Voided) -> None:
        if event.charge not in self._unanswered:
            raise self._misplaced(event.charge, State.RESERVED)
        message = void_message(self.opened.ledger, event.charge, event.reason)
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")
        self._take_back(event.charge)

    def _decline(self, event: events.Declined) -> None:
        self.refusals.add(event.refusal, len(self.states), key=event.key)

    def _count(self, event: events.Unlisted) -> None:
        self.refusals.add(event.refusal, len(self.states), requests=event.requests)

    def _suspend(self, event: events.Suspended) -> None:
        self.suspended = self._own(event.head)

    def _adopt(self, event: events.Adopted) -> None:
        if event.steps < 0:
            raise ValueError(f"a gap is never negative, and this is {event.steps}")
        head = self._own(event.head)
        message = adopt_message(head, event.mechanism, event.steps)
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")
        self._counted[self._catalogue.kind(event.mechanism)] += event.steps
        self.steps += event.steps
        self.adopted.append(head)
        self.suspended = None

    def _rotate(self, event: events.Rotated) -> None:
        message = rotation_message(self.opened.ledger, self.client_key, event.key)
        if not is_signed(self.client_key, event.signature, message):
            raise ValueError("the key before it did not sign it")
        self.successors.append(Successor(event.key, event.signature))

    def _own(self, text: str) -> Head:
        head = Head.decode(text)
        if not head.is_signed_by(self.opened.client_key):
            raise ValueError("the head in it was not signed by this ledger's key")
        return head


@contextmanager
def _uncollected() -> Iterator[None]:
    """While entries are folded nothing becomes garbage; looking for it among a million values costs up to a quarter."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def void_message(ledger: str, charge: int, reason: str) -> bytes:
    """What the administrator signs to void a charge."""
    return f"lrdp-void-1 {ledger} {charge} {reason}".encode()


def adopt_message(head: Head, mechanism: Mechanism, steps: int) -> bytes:
    """What the administrator signs to adopt a head."""
    return b"lrdp-adopt-1 " + head.message() + f" {steps}*{encode_mechanism(mechanism)}".encode()


# The kinds that make up almost all of a ledger are folded from their fields: reading a million takes half the time.
_QUICK: Final[dict[str, Callable[[Books, int, list[str]], int]]] = {
    "RESERVED": Books._reserve,
    "READY": Books._ready,
    "SENT": Books._sent,
}
_FOLD: Final[dict[type[events.Event], Callable[[Books, Any], None]]] = {
    events.Opened: Books._open,
    events.PolicySet: Books._set_policy,
    events.Voided: Books._void,
    events.Declined: Books._decline,
    events.Unlisted: Books._count,
    events.Suspended: Books._suspend,
    events.Adopted: Books._adopt,
    events.Rotated: Books._rotate,
}
