"""Charges: what was paid for, and what became of each. Moved only as the states allow."""

from __future__ import annotations

from array import array
from collections import Counter
from enum import Enum
from itertools import accumulate, chain, repeat

from lrdp.accounting import Mechanism
from lrdp.ledger import events
from lrdp.ledger.request import ANYBODY
from lrdp.ledger.tallies import Catalogue, Tally
from lrdp.ledger.whole_rounds import Rounds


class State(Enum):
    """Where a charge stands."""

    RESERVED = "reserved"
    READY = "ready"
    SENT = "sent"
    VOID = "void"


# Looked up once: these are used a million times.
_RESERVED, _READY, _SENT = State.RESERVED, State.READY, State.SENT
_from_hex = float.fromhex


class Charges:
    """Every charge so far.

    ``history`` holds what counts: every charge that was not voided, and what was adopted. ``steps`` counts all that was
    ever charged, and never falls.
    """

    def __init__(self) -> None:
        self.states: dict[int, State] = {}
        self.replies: dict[int, str] = {}
        self.answered: dict[str, int] = {}
        self.steps = 0
        self.steps_at = array("q")
        self._catalogue = Catalogue()
        self._counted, self._voided = Tally(), Tally()
        self._unanswered: dict[int, list[str]] = {}
        self._newest: list[str] = []

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

    def history_of(self, payer: str) -> dict[Mechanism, int]:
        """What counts against one payer's share: its own charges, and those of which nobody knows whose they are."""
        steps = Counter[Mechanism]()
        for name in {payer, ANYBODY}:
            if name in self._catalogue.payers:
                steps.update(self._catalogue.payers[name].history())
        return dict(steps)

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

    def _add(self, rounds: Rounds) -> None:
        """Reserve, answer and send all of these; if one cannot be decoded an error is raised and nothing is added."""
        charges = Counter(zip(rounds.runs, rounds.terms, strict=True))
        learnt = [(*self._catalogue.learn(*each), count) for each, count in charges.items()]
        steps_of, run_of = self._catalogue.terms, self._catalogue.runs_by_text
        sums = list(accumulate([steps_of[text][1] for text in rounds.terms], initial=self.steps))[1:]
        steps_at = array("q", chain.from_iterable(zip(sums, sums, sums, strict=True)))
        for run, kind, steps, count in learnt:
            self._counted[kind] += steps * count
            run.steps[kind] += steps * count
        for name, number in zip(rounds.runs, rounds.numbers, strict=True):
            run_of[name].charges[number] += 1
        self.states.update(zip(rounds.seqs, repeat(_SENT)))
        self.replies.update(zip(rounds.seqs, rounds.replies, strict=True))
        self.answered.update(zip(rounds.keys, rounds.seqs, strict=True))
        self.steps, self._newest = sums[-1], rounds.newest
        self.steps_at.extend(steps_at)

    def _take_back(self, charge: int) -> None:
        self.states[charge] = State.VOID
        _, _, _, name, _, rest = self._unanswered.pop(charge)
        kind, steps = self._catalogue.terms[rest.rsplit("\t", 2)[0]]
        self._voided[kind] += steps
        self._counted[kind] -= steps
        self._catalogue.runs_by_text[name].steps[kind] -= steps

    def _misplaced(self, charge: int, before: State) -> ValueError:
        state = self.states.get(charge)
        return ValueError(f"charge {charge} is {state.value if state else 'unknown'}, not {before.value}")


def _charge(fields: list[str] | None) -> events.Reserved | None:
    event = events.decode("\t".join(fields).encode()) if fields else None
    return event if isinstance(event, events.Reserved) else None
