"""Counting steps and refusals. Equal mechanisms are one object here, so a million charges are counted uncompared."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from lrdp.accounting import Mechanism
from lrdp.ledger import events
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.request import payer_of
from lrdp.ledger.texts import decode_word


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kind:
    """One mechanism. Compared by identity: a :class:`Catalogue` holds one per value."""

    mechanism: Mechanism


class Tally(defaultdict[Kind, int]):
    """Steps by kind."""

    def __init__(self) -> None:
        super().__init__(int)

    def history(self) -> dict[Mechanism, int]:
        """What is not zero, by value."""
        return {kind.mechanism: steps for kind, steps in self.items() if steps}


class RunTally:
    """How often each round of a run was charged, and the steps of all runs that have one payer."""

    def __init__(self, steps: Tally) -> None:
        self.steps, self.charges = steps, defaultdict[int, int](int)


class Catalogue:
    """The kinds of step and the runs that charges name, each decoded once however often its text comes."""

    def __init__(self) -> None:
        self.clip_norms: set[float] = set()
        self.runs: dict[str, RunTally] = {}
        self.payers = defaultdict[str, Tally](Tally)
        self.terms: dict[str, tuple[Kind, int]] = {}
        self.runs_by_text: dict[str, RunTally] = {}
        self._kinds: dict[Mechanism, Kind] = {}

    def kind(self, mechanism: Mechanism) -> Kind:
        """The one object for a mechanism."""
        return self._kinds.setdefault(mechanism, Kind(mechanism=mechanism))

    def learn(self, run: str, terms: str) -> tuple[RunTally, Kind, int]:
        """The run and the terms of a charge, from their texts."""
        kind, steps = self.terms.get(terms) or self.learn_terms(terms)
        return self.runs_by_text.get(run) or self.learn_run(run), kind, steps

    def learn_terms(self, text: str) -> tuple[Kind, int]:
        """Decode what a charge is for; from then on it is in ``terms``."""
        terms = events.decode_terms(text)
        if terms.steps < 1:
            raise ValueError(f"a charge is for at least one step, not for {terms.steps}")
        self.clip_norms.add(terms.clip_norm)
        self.terms[text] = learnt = self.kind(terms.mechanism), terms.steps
        return learnt

    def learn_run(self, text: str) -> RunTally:
        """Decode a run's name; from then on its tally is in ``runs_by_text``, one for all spellings of the name."""
        name = decode_word(text)
        if name not in self.runs:
            self.runs[name] = RunTally(self.payers[payer_of(name)])
        self.runs_by_text[text] = run = self.runs[name]
        return run


class RefusalTally:
    """Requests refused: by reason, and how many since the newest charge, of which ``charges`` is the number."""

    def __init__(self) -> None:
        self.by_reason: Counter[Refusal] = Counter()
        self.listed: set[tuple[str, Refusal]] = set()
        self._charges, self._listed, self._all = 0, 0, 0

    def add(self, refusal: Refusal, charges: int, *, requests: int = 1, key: str | None = None) -> None:
        """So many more; with a ``key``, one that was written in full."""
        if requests < 1:
            raise ValueError(f"at least one request is refused at a time, not {requests}")
        listed, total = self.since(charges)
        self._charges, self._listed, self._all = charges, listed + (key is not None), total + requests
        self.by_reason[refusal] += requests
        if key is not None:
            self.listed.add((key, refusal))

    def since(self, charges: int) -> tuple[int, int]:
        """How many were written in full, and how many there were in all, since the newest charge."""
        return (self._listed, self._all) if charges == self._charges else (0, 0)
