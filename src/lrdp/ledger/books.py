"""The books: what all entries together say. Folded entry by entry, and refusing an entry that cannot follow."""

from __future__ import annotations

import gc
from array import array
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
from lrdp.ledger.heads import Head, Successor, rotation_message
from lrdp.ledger.keys import is_signed
from lrdp.ledger.tallies import Catalogue, RefusalTally, Tally


class State(Enum):
    """Where a charge stands."""

    RESERVED = "reserved"
    READY = "ready"
    SENT = "sent"
    VOID = "void"


# Looked up once: these are used a million times.
_RESERVED, _READY, _SENT = State.RESERVED, State.READY, State.SENT
_from_hex = float.fromhex


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
        self.states: dict[int, State] = {}
        self.replies: dict[int, str] = {}
        self.answered: dict[str, int] = {}
        self.refusals = RefusalTally()
        self.suspended: Head | None = None
        self.adopted: list[Head] = []
        self.successors: list[Successor] = []
        self.steps = 0
        self.steps_at = array("q")
        self.latest_clock = 0
        self.clock_fell_at: list[int] = []
        self._catalogue = Catalogue()
        self._counted, self._voided = Tally(), Tally()
        self._unanswered: dict[int, list[str]] = {}
        self._newest: list[str] = []

    @property
    def budget(self) -> Budget:
        return Budget(epsilon=self.opened.epsilon, delta=self.opened.delta)

    @property
    def client_key(self) -> str:
        """The key that signs from here on."""
        return self.successors[-1].key if self.successors else self.opened.client_key

    @property
    def history(self) -> dict[Mechanism, int]:
        return self._counted.history()

    @property
    def voided(self) -> dict[Mechanism, int]:
        return self._voided.history()

    @property
    def runs(self) -> int:
        """How many runs were charged for."""
        return len(self._catalogue.runs)

    @property
    def clip_norms(self) -> set[float]:
        """Every clip norm that was charged for."""
        return self._catalogue.clip_norms

    def history_of(self, run: str) -> dict[Mechanism, int]:
        """What counts of one run."""
        tally = self._catalogue.runs.get(run)
        return {} if tally is None else tally.steps.history()

    def charges_in(self, run: str, number: int) -> int:
        """How often one round of a run was charged."""
        tally = self._catalogue.runs.get(run)
        return 0 if tally is None else tally.charges.get(number, 0)

    def unanswered(self, seq: int) -> events.Reserved | None:
        """The charge at an entry, while it is RESERVED; None otherwise."""
        return _charge(self._unanswered.get(seq))

    @property
    def newest_charge(self) -> events.Reserved | None:
        """The last charge that was made, whatever became of it."""
        return _charge(self._newest)

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
        _, now, _key, name, number, rest = self._unanswered[seq] = self._newest = fields
        text, guaranteed, spent = rest.rsplit("\t", 2)
        catalogue = self._catalogue
        kind, steps = catalogue.terms.get(text) or catalogue.learn_terms(text)
        run = catalogue.runs_by_text.get(name) or catalogue.learn_run(name)
        _from_hex(guaranteed), _from_hex(spent)
        self.states[seq] = _RESERVED
        self._counted[kind] += steps
        run.steps[kind] += steps
        run.charges[int(number)] += 1
        self.steps += steps
        return int(now)

    def _ready(self, _seq: int, fields: list[str]) -> int:
        _, now, number, digest, size = fields
        charge = int(number)
        reserved = self._unanswered.pop(charge, None)
        if reserved is None:
            raise self._misplaced(charge, State.RESERVED)
        self.states[charge] = _READY
        self.replies[charge] = digest
        self.answered[reserved[2]] = charge
        int(size)
        return int(now)

    def _sent(self, _seq: int, fields: list[str]) -> int:
        _, now, number = fields
        charge = int(number)
        if self.states.get(charge) is not _READY:
            raise self._misplaced(charge, State.READY)
        self.states[charge] = _SENT
        return int(now)

    def _void(self, event: events.Voided) -> None:
        if event.charge not in self._unanswered:
            raise self._misplaced(event.charge, State.RESERVED)
        message = void_message(self.opened.ledger, event.charge, event.reason)
        if not is_signed(self.opened.administrator_key, event.signature, message):
            raise ValueError("the administrator's signature on it does not hold")
        self.states[event.charge] = State.VOID
        _, _, _, name, _, rest = self._unanswered.pop(event.charge)
        kind, steps = self._catalogue.terms[rest.rsplit("\t", 2)[0]]
        self._voided[kind] += steps
        self._counted[kind] -= steps
        self._catalogue.runs_by_text[name].steps[kind] -= steps

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


def _charge(fields: list[str] | None) -> events.Reserved | None:
    event = events.decode("\t".join(fields).encode()) if fields else None
    return event if isinstance(event, events.Reserved) else None


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
