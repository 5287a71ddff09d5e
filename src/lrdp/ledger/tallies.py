"""Counting steps and refusals. Equal mechanisms are one object here, so that a million charges are not compared."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from lrdp.accounting import Mechanism
from lrdp.ledger.refusals import Refusal


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Kind:
    """One mechanism. Compared by identity: :class:`lrdp.ledger.charges.Charges` holds one per value."""

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


class RefusalTally:
    """Requests refused: by reason, and how many since the newest charge; ``charges`` is how many charges there are."""

    def __init__(self) -> None:
        self.by_reason: Counter[Refusal] = Counter()
        self.listed: set[tuple[str, Refusal]] = set()
        self._charges, self._listed, self._all = 0, 0, 0

    def add(self, refusal: Refusal, charges: int, *, requests: int = 1, key: str | None = None) -> None:
        """Count more of them; with a ``key``, one that was written in full."""
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
