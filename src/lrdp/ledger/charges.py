"""Charges: what was paid for, and what became of each. Moved only as the states allow."""

from __future__ import annotations

from collections import Counter, defaultdict
from enum import Enum

from lrdp.accounting import Mechanism
from lrdp.ledger import events
from lrdp.ledger.request import ANYBODY, payer_of
from lrdp.ledger.tallies import Kind, RunTally, Tally


class State(Enum):
    """Where a charge stands."""

    RESERVED = "reserved"
    READY = "ready"
    SENT = "sent"
    VOID = "void"


# Looked up once: these are used a million times.
_RESERVED, _READY, _SENT = State.RESERVED, State.READY, State.SENT


class Charges:
    """Every charge so far.

    ``history`` holds what counts: every charge that was not voided, and what was adopted. ``steps`` counts all that was
    ever charged, and never falls. ``newest`` is the last charge that was made, whatever became of it.
    """

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.replies: dict[int, str] = {}
        self.answered: dict[str, int] = {}
        self.clip_norms: set[float] = set()
        self.steps = 0
        self.newest: events.Reserved | None = None
        self._rounds: tuple[list[int], list[int]] = [], []
        self._costs: dict[int, tuple[Kind, int]] = {}
        self._unanswered: dict[int, events.Reserved] = {}
        self._counted, self._voided = Tally(), Tally()
        self._kinds: dict[Mechanism, Kind] = {}
        self._latest: Kind | None = None
        self._runs: dict[str, RunTally] = {}
        self._payers = defaultdict[str, Tally](Tally)

    @property
    def history(self) -> dict[Mechanism, int]:
        return self._counted.history()

    @property
    def voided(self) -> dict[Mechanism, int]:
        return self._voided.history()

    @property
    def unsent(self) -> list[int]:
        """The charges whose reply is ready and has not left."""
        return [charge for charge, state in self.states.items() if state is _READY]

    @property
    def runs(self) -> int:
        """How many runs were charged for."""
        return len(self._runs)

    @property
    def last_round(self) -> dict[Mechanism, int]:
        """What was charged to the newest round or to the one before it, whichever is dearer; what was lost is left out.

        A count of the model after a round is charged to the next one, so of that one there may be no more yet.
        """
        dearer = max(map(self._cost, self._rounds), key=Counter.total)
        return {kind.mechanism: steps for kind, steps in dearer.items()}

    def _cost(self, charges: list[int]) -> Counter[Kind]:
        newest, cost = self._rounds[-1][-1:], Counter[Kind]()
        for charge in charges:
            if self.states[charge] in (_READY, _SENT) or charge in newest:
                kind, steps = self._costs[charge]
                cost[kind] += steps
        return cost

    def history_of(self, payer: str) -> dict[Mechanism, int]:
        """What counts against one payer's share: its own charges, and those whose payer is unknown."""
        steps = Counter[Mechanism]()
        for name in {payer, ANYBODY}:
            if name in self._payers:
                steps.update(self._payers[name].history())
        return dict(steps)

    def charges_in(self, run: str, number: int) -> int:
        """How often one round of a run was charged."""
        tally = self._runs.get(run)
        return 0 if tally is None else tally.charges.get(number, 0)

    def unanswered(self, seq: int) -> events.Reserved | None:
        """The charge at an entry, while it is RESERVED; None otherwise."""
        return self._unanswered.get(seq)

    def reserve(self, seq: int, event: events.Reserved) -> None:
        """Count a charge: the entry ``seq``."""
        steps = event.steps
        if steps < 1:
            raise ValueError(f"a charge is for at least one step, not for {steps}")
        kind = self._kind(event.mechanism)
        self._begin_round(event)
        self._rounds[-1].append(seq)
        self._costs[seq] = kind, steps
        run = self._runs.get(event.run) or self._begin(event.run)
        self.states[seq] = _RESERVED
        self._unanswered[seq] = self.newest = event
        self._counted[kind] += steps
        run.steps[kind] += steps
        run.charges[event.round] += 1
        self.clip_norms.add(event.clip_norm)
        self.steps += steps

    def answer(self, _seq: int, event: events.ReplyReady) -> None:
        """A charge has its reply."""
        charge = event.charge
        reserved = self._unanswered.pop(charge, None)
        if reserved is None:
            raise self._misplaced(charge, State.RESERVED)
        self.states[charge] = _READY
        self.replies[charge] = event.digest
        self.answered[reserved.key] = charge

    def send(self, _seq: int, event: events.Sent) -> None:
        """A charge's reply has left."""
        if self.states.get(event.charge) is not _READY:
            raise self._misplaced(event.charge, State.READY)
        self.states[event.charge] = _SENT

    def take_back(self, charge: int) -> None:
        """A charge no longer counts."""
        reserved = self._unanswered.pop(charge, None)
        if reserved is None:
            raise self._misplaced(charge, State.RESERVED)
        self.states[charge] = State.VOID
        kind = self._kind(reserved.mechanism)
        self._voided[kind] += reserved.steps
        self._counted[kind] -= reserved.steps
        self._runs[reserved.run].steps[kind] -= reserved.steps

    def adopt(self, mechanism: Mechanism, steps: int) -> None:
        """Count steps that were taken on a lost branch."""
        self._counted[self._kind(mechanism)] += steps
        self.steps += steps

    def _kind(self, mechanism: Mechanism) -> Kind:
        """Charges of one kind follow each other, and comparing values takes longer than comparing identities."""
        if self._latest is None or mechanism is not self._latest.mechanism:
            self._latest = self._kinds.setdefault(mechanism, Kind(mechanism=mechanism))
        return self._latest

    def _begin_round(self, event: events.Reserved) -> None:
        last = self.newest
        if last is None or (last.run, last.round) != (event.run, event.round):
            before = self._rounds[-1] if last is not None and last.run == event.run else []
            self._rounds = before, []
            self._costs = {charge: self._costs[charge] for charge in before}

    def _begin(self, run: str) -> RunTally:
        self._runs[run] = tally = RunTally(self._payers[payer_of(run)])
        return tally

    def _misplaced(self, charge: int, before: State) -> ValueError:
        state = self.states.get(charge)
        return ValueError(f"charge {charge} is {state.value if state else 'unknown'}, not {before.value}")
