"""The books: what all entries together say. Folded entry by entry, and refusing an entry that cannot follow."""

from __future__ import annotations

import gc
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import Enum
from hashlib import sha256
from typing import Any, Final

from lrdp.accounting import Budget, Mechanism
from lrdp.errors import LedgerDamaged
from lrdp.ledger import events
from lrdp.ledger.chain import GENESIS, broken
from lrdp.ledger.choice import FilterChoice, decode_choice
from lrdp.ledger.encoding import encode_mechanism
from lrdp.ledger.heads import Head
from lrdp.ledger.keys import is_signed
from lrdp.ledger.refusals import Refusal


class State(Enum):
    """Where a charge stands."""

    RESERVED = "reserved"
    READY = "ready"
    SENT = "sent"
    VOID = "void"


class Tally:
    """Steps by mechanism. Adding is by identity, for speed: equal mechanisms are one object in all entries but few."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[Mechanism, int]] = {}

    def add(self, mechanism: Mechanism, steps: int) -> None:
        row = self._rows.get(id(mechanism))
        self._rows[id(mechanism)] = (mechanism, steps if row is None else row[1] + steps)

    def history(self) -> dict[Mechanism, int]:
        """What is not zero, by value."""
        total: dict[Mechanism, int] = {}
        for mechanism, steps in self._rows.values():
            total[mechanism] = total.get(mechanism, 0) + steps
        return {mechanism: steps for mechanism, steps in total.items() if steps}


class RunTally(Tally):
    """Steps of one run, and how often each of its rounds was charged."""

    def __init__(self) -> None:
        super().__init__()
        self.charges: dict[int, int] = {}


class Books:
    """The state after the entries so far.

    ``history`` holds what counts: every charge that was not voided, and what was adopted. ``steps`` counts all that was
    ever charged, and never falls.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.digest = GENESIS
        self.opened: events.Opened
        self.choice: FilterChoice
        self.policies: list[events.PolicySet] = []
        self.charges: dict[int, events.Reserved] = {}
        self.states: dict[int, State] = {}
        self.replies: dict[int, str] = {}
        self.answered: dict[str, int] = {}
        self.refusals: Counter[Refusal] = Counter()
        self.refused: set[tuple[str, Refusal]] = set()
        self.suspended: Head | None = None
        self.adopted: list[Head] = []
        self.steps = 0
        self.steps_at = array("q")
        self.latest_clock = 0
        self.clock_fell_at: list[int] = []
        self._counted, self._voided = Tally(), Tally()
        self._runs: dict[str, RunTally] = {}

    @property
    def budget(self) -> Budget:
        return Budget(epsilon=self.opened.epsilon, delta=self.opened.delta)

    @property
    def history(self) -> dict[Mechanism, int]:
        return self._counted.history()

    @property
    def voided(self) -> dict[Mechanism, int]:
        return self._voided.history()

    @property
    def runs(self) -> int:
        """How many runs were charged for."""
        return len(self._runs)

    def history_of(self, run: str) -> dict[Mechanism, int]:
        """What counts of one run."""
        return self._runs[run].history() if run in self._runs else {}

    def charges_in(self, run: str, number: int) -> int:
        """How often one round of a run was charged."""
        return self._runs[run].charges.get(number, 0) if run in self._runs else 0

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

    def extend(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        """Check each entry's hash, decode it and fold it in.

        Raises:
            LedgerDamaged: if an entry is not what was written, or cannot follow those before it.
        """
        seq, previous, clock = self.seq, self.digest, self.latest_clock
        note_steps = self.steps_at.append
        try:
            for line, digest in entries:
                seq += 1
                if sha256(previous + line).digest() != digest:
                    raise broken(seq)
                fields = line.decode().split("\t")
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
        except (ValueError, KeyError) as problem:
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

    def _reserve(self, seq: int, fields: list[str]) -> int:
        self.charges[seq] = event = events.decode_reserved(fields)
        if event.steps < 1:
            raise ValueError(f"a charge is for at least one step, not for {event.steps}")
        self.states[seq] = State.RESERVED
        self._counted.add(event.mechanism, event.steps)
        run = self._runs.get(event.run)
        if run is None:
            run = self._runs[event.run] = RunTally()
        run.add(event.mechanism, event.steps)
        run.charges[event.round] = run.charges.get(event.round, 0) + 1
        self.steps += event.steps
        return event.at

    def _ready(self, _seq: int, fields: list[str]) -> int:
        _, now, number, digest, _size = fields
        charge = int(number)
        if self.states.get(charge) is not State.RESERVED:
            raise self._misplaced(charge, State.RESERVED)
        self.states[charge] = State.READY
        self.replies[charge] = digest
        self.answered[self.charges[charge].key] = charge
        return int(now)

    def _sent(self, _seq: int, fields: list[str]) -> int:
        _, now, number = fields
        charge = int(number)
        if self.states.get(charge) is not State.READY:
            raise self._misplaced(charge, State.READY)
        self.states[charge] = State.SENT
        return int(now)

    def _void(self, event: events.Voided) -> None:
        if self.states.get(event.charge) is not State.RESERVED:
            raise self._misplaced(event.charge, State.RESERVED)
        self.states[event.charge] = State.VOID
        message = void_message(self.opened.ledger, event.charge, event.reason)
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")
        charge = self.charges[event.charge]
        self._voided.add(charge.mechanism, charge.steps)
        self._counted.add(charge.mechanism, -charge.steps)
        self._runs[charge.run].add(charge.mechanism, -charge.steps)

    def _decline(self, event: events.Declined) -> None:
        self.refusals[event.refusal] += 1
        self.refused.add((event.key, event.refusal))

    def _suspend(self, event: events.Suspended) -> None:
        self.suspended = self._own(event.head)

    def _adopt(self, event: events.Adopted) -> None:
        if event.steps < 0:
            raise ValueError(f"a gap is never negative, and this is {event.steps}")
        head = self._own(event.head)
        message = adopt_message(head, event.mechanism, event.steps)
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")
        self._counted.add(event.mechanism, event.steps)
        self.steps += event.steps
        self.adopted.append(head)
        self.suspended = None

    def _own(self, text: str) -> Head:
        head = Head.decode(text)
        if not head.is_signed_by(self.opened.client_key):
            raise ValueError("the head in it was not signed by this ledger's key")
        return head

    def _misplaced(self, charge: int, before: State) -> ValueError:
        state = self.states.get(charge)
        return ValueError(f"charge {charge} is {state.value if state else 'unknown'}, not {before.value}")


@contextmanager
def uncollected() -> Iterator[None]:
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
    events.Suspended: Books._suspend,
    events.Adopted: Books._adopt,
}
