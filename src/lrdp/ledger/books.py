"""The books: what all entries together say. Folded in their order, and refusing an entry that cannot follow."""

from __future__ import annotations

import gc
import math
from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from typing import Any, Final

from lrdp.accounting import Budget, Filter, FilterRule, Mechanism
from lrdp.errors import InvalidInput, LedgerDamaged
from lrdp.ledger import events
from lrdp.ledger.chain import GENESIS, broken
from lrdp.ledger.charges import Charges
from lrdp.ledger.choice import decode_choice
from lrdp.ledger.heads import Head, Successor, rotation_message
from lrdp.ledger.key_files import is_signed
from lrdp.ledger.tallies import RefusalTally
from lrdp.ledger.texts import encode_float, encode_mechanism

Entry = tuple[bytes, bytes]
"""A line and its hash."""
EntryRule = Callable[[int, Any], None]
"""What the event at an entry's number does to the books; ValueError if it cannot stand there."""
_BATCH: Final = 1024  # entries read at a time: enough for long columns, few enough to hold in memory
_WRONG: Final = (ValueError, KeyError, OverflowError, TypeError)
"""What folding an entry raises if it cannot follow."""
_ONCE: Final = "a ledger begins with OPENED, and has it once"

AdministratorsAct = events.Voided | events.Adopted | events.Raised | events.Closed


class Books:
    """The state after the entries so far: the charges, whose they are, and what else was recorded.

    ``steps_at`` holds, for each entry, the steps that were charged up to it.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.digest = GENESIS
        self.charges = Charges()
        self.steps_at = array("q")
        self.opened: events.Opened
        self.rule: FilterRule
        self.policies: list[events.PolicySet] = []
        self.refusals = RefusalTally()
        self.suspended: Head | None = None
        self.adopted: list[Head] = []
        self.successors: list[Successor] = []
        self.raises: list[events.Raised] = []
        self.closed: events.Closed | None = None
        self.latest_clock = 0
        self.clock_fell_at: list[int] = []
        self._rules = self._table()

    def _table(self) -> dict[type[events.Event], EntryRule]:
        """What each kind of entry changes, or refuses to follow."""
        return {
            events.Opened: self._open,
            events.PolicySet: lambda _, event: self.policies.append(event),
            events.Reserved: self.charges.reserve,
            events.ReplyReady: self.charges.answer,
            events.Sent: self.charges.send,
            events.Voided: self._void,
            events.Declined: self._decline,
            events.Unlisted: self._count,
            events.Suspended: self._suspend,
            events.Adopted: self._adopt,
            events.Rotated: self._rotate,
            events.Raised: self._raise,
            events.Closed: self._close,
        }

    @property
    def budget(self) -> Budget:
        """What may be spent now: as it was opened, or as it was raised last."""
        epsilon = self.raises[-1].epsilon if self.raises else self.opened.epsilon
        return Budget(epsilon=epsilon, delta=self.opened.delta)

    def filter(self, budget: Budget) -> Filter:
        """What decides whether a charge fits a budget on top of all that counts: every figure is read from it."""
        return Filter(rule=self.rule, budget=budget, adjacency=self.opened.adjacency, history=self.charges.history)

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
                "the ledger holds no entry: making it was interrupted, so remove the file and start again."
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
                finally:  # even if reading failed: of two things that are wrong the first is named
                    self._extend(batch)
                more = bool(batch)

    def _extend(self, batch: list[Entry]) -> None:
        """Read all and fold each; where one cannot be read each is read alone, so that the first wrong one is named."""
        try:
            found = self._read(batch)
        except (LedgerDamaged, InvalidInput) as problem:
            if len(batch) == 1:
                raise _misplaced(self.seq + 1, problem) from None
            for entry in batch:
                self._extend([entry])
            return
        self._fold(found)
        self.digest = batch[-1][1] if batch else self.digest

    def _fold(self, found: list[events.Event]) -> None:
        """Check that each may follow those before it, and let it change the books."""
        rules, note_steps, charges = self._rules, self.steps_at.append, self.charges
        seq, clock = self.seq, self.latest_clock
        if not seq and found and type(found[0]) is not events.Opened:
            raise _misplaced(1, ValueError(_ONCE))
        try:
            for event in found:
                seq += 1
                rules[type(event)](seq, event)
                note_steps(charges.steps)
                now = event[0]  # its clock, by place: by name it takes longer, which shows over a million entries
                if now < clock:
                    self.clock_fell_at.append(seq)
                clock = now
        except _WRONG as problem:
            raise _misplaced(seq, problem) from None
        self.seq, self.latest_clock = seq, clock

    def _read(self, batch: list[Entry]) -> list[events.Event]:
        """The events of the next entries, whose hashes are right."""
        previous = self.digest
        for line, digest in batch:
            if type(line) is not bytes or sha256(previous + line).digest() != digest:
                raise broken(self.seq + 1)
            previous = digest
        if not self.seq and batch:
            events.check_format(batch[0][0])
        return events.decode_all([line for line, _ in batch])

    def _open(self, seq: int, event: events.Opened) -> None:
        if seq > 1:
            raise ValueError(_ONCE)
        self.opened, self.rule = event, decode_choice(event.filter)

    def _void(self, _seq: int, event: events.Voided) -> None:
        self.charges.take_back(event.charge)
        self._require_administrator(event, void_message(self.opened.ledger, event.charge, event.reason))

    def _decline(self, _seq: int, event: events.Declined) -> None:
        self.refusals.add(event.refusal, len(self.charges.states), key=event.key)

    def _count(self, _seq: int, event: events.Unlisted) -> None:
        self.refusals.add(event.refusal, len(self.charges.states), requests=event.requests)

    def _suspend(self, _seq: int, event: events.Suspended) -> None:
        self.suspended = self._own(event.head)

    def _adopt(self, _seq: int, event: events.Adopted) -> None:
        if event.steps < 0:
            raise ValueError(f"a gap is never negative, and this is {event.steps}")
        head = self._own(event.head)
        self._require_administrator(event, adopt_message(head, event.mechanism, event.steps))
        self.charges.adopt(event.mechanism, event.steps)
        self.adopted.append(head)
        self.suspended = None

    def _rotate(self, _seq: int, event: events.Rotated) -> None:
        message = rotation_message(self.opened.ledger, self.client_key, event.key)
        if not is_signed(self.client_key, event.signature, message):
            raise ValueError("the key before it did not sign it")
        self.successors.append(Successor(event.key, event.signature))

    def _raise(self, _seq: int, event: events.Raised) -> None:
        if objection := self.objection_to_raising(event.epsilon):
            raise ValueError(objection)
        self._require_administrator(event, raise_message(self.opened.ledger, self.budget, event.epsilon, event.reason))
        self.raises.append(event)

    def objection_to_raising(self, epsilon: float) -> str | None:
        """Why the budget cannot be raised to ``epsilon``, or None; the proof is Theorem 7 of docs/accounting.md."""
        if self.closed is not None:
            return "the ledger was closed, and a closed ledger spends nothing"
        if not self.rule.may_grow:
            return "its rounds were reserved and paid for as a whole, and no theorem here covers adding to them later"
        if not self.budget.epsilon < epsilon < math.inf:
            return f"a budget can only grow, and {epsilon} is not above the present {self.budget.epsilon}"
        return None

    def _close(self, _seq: int, event: events.Closed) -> None:
        if self.closed is not None:
            raise ValueError("a ledger is closed once")
        self._require_administrator(event, close_message(self.opened.ledger, event.reason))
        self.closed = event
        self._rules[events.Reserved] = _refuse_charge

    def _require_administrator(self, event: AdministratorsAct, message: bytes) -> None:
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")

    def _own(self, text: str) -> Head:
        head = Head.decode(text)
        if not head.is_signed_by(self.opened.client_key):
            raise ValueError("the head in it was not signed by this ledger's key")
        return head


def _misplaced(seq: int, problem: Exception) -> LedgerDamaged:
    if isinstance(problem, LedgerDamaged):
        return problem
    return LedgerDamaged(f"entry {seq} cannot stand where it does: {problem}.")


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


def _refuse_charge(_seq: int, _event: events.Reserved) -> None:
    raise ValueError("nothing is charged to a ledger that was closed")


def void_message(ledger: str, charge: int, reason: str) -> bytes:
    """What the administrator signs to void a charge."""
    return f"lrdp-void-1 {ledger} {charge} {reason}".encode()


def adopt_message(head: Head, mechanism: Mechanism, steps: int) -> bytes:
    """What the administrator signs to adopt a head."""
    return b"lrdp-adopt-1 " + head.message() + f" {steps}*{encode_mechanism(mechanism)}".encode()


def raise_message(ledger: str, before: Budget, epsilon: float, reason: str) -> bytes:
    """What the administrator signs to raise a budget: from what to what, so that it holds once."""
    return f"lrdp-raise-1 {ledger} {encode_float(before.epsilon)} {encode_float(epsilon)} {reason}".encode()


def close_message(ledger: str, reason: str) -> bytes:
    """What the administrator signs to close a ledger."""
    return f"lrdp-close-1 {ledger} {reason}".encode()
