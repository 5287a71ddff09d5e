"""What a guard says of itself, to its hospital alone: a line for each message, and figures for Prometheus.

All of it is made of words of the protocol and of the books. What a message held, and what was trained on, is not here.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from lrdp.errors import LrdpError
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.participant import Participant
from lrdp.federation.wire.metrics_page import BARE, Family, Labels, exposition
from lrdp.figures import AtLeast, AtMost, left
from lrdp.ledger import Refusal, rounds_left, tighter

_LOG: Final = logging.getLogger("lrdp.guard")
_TRAINED: Final = ("contribute", "ahead")


@dataclass(frozen=True, kw_only=True)
class Attended:
    """A message that was answered: the words of question and answer, and how long that took."""

    asked: str
    answered: str
    seconds: float


Watch = Callable[[Attended], None]


@dataclass(frozen=True, kw_only=True)
class Budgeted:
    """The books in figures: ``spent`` is what is guaranteed whatever a server adapts to, and what the budget bounds."""

    client: str
    spent: float
    total: float
    unsent: int = 0
    delta: float = 0.0
    charges: int = 0
    steps: int = 0
    rounds_left: int = 0
    refusals: dict[Refusal, int] = field(default_factory=dict)

    @classmethod
    def of(cls, home: ClientHome) -> Budgeted:
        """As the ledger is now; raises LrdpError where it cannot be opened."""
        with closing(home.ledger()) as ledger:
            books = ledger.books
            total = tighter(books.budget, ledger.policy.budget.total)
            return cls(
                client=books.opened.client,
                spent=books.filter(total).guaranteed.epsilon,
                total=total.epsilon,
                unsent=len(books.charges.unsent),
                delta=total.delta,
                charges=len(books.charges.states),
                steps=books.charges.steps,
                rounds_left=rounds_left(books, ledger.policy),
                refusals=dict(books.refusals.by_reason),
            )

    @property
    def left(self) -> AtLeast:
        """ε that is still to be spent."""
        return left(self.total, self.spent)


class GuardWatch:
    """Looks at the books after each message, logs a line, and hands the page's text to ``show``."""

    def __init__(self, home: ClientHome, participant: Participant, show: Callable[[str], None] | None = None) -> None:
        self._home, self._participant, self._show = home, participant, show
        self._books, self._verified = Budgeted.of(home), participant.verified_rounds()
        self._unread: LrdpError | None = None
        self._answers = Counter[Labels]()
        self._last: dict[str, float] = {}
        self._publish()

    def __call__(self, attended: Attended) -> None:
        """One line: round, question and answer, what was charged for it, and what that leaves."""
        before = self._books
        self._unread = self._look()
        self._answers[("asked", attended.asked), ("answered", attended.answered)] += 1
        self._last |= {"message_end": time.time(), "message": attended.seconds}
        if attended.asked in _TRAINED and self._books.charges > before.charges:
            self._last["round"] = attended.seconds
        if self._unread is None:
            self._log(attended, self._books.steps - before.steps)
        else:
            _LOG.warning("%s → %s · %s", attended.asked, attended.answered, self._unread, extra=_figures(attended))
        self._publish()

    def _look(self) -> LrdpError | None:
        """What is wrong with policy, ledger or keys, where they cannot be read: the figures stay those of before."""
        try:
            self._books, self._verified = Budgeted.of(self._home), self._participant.verified_rounds()
        except LrdpError as problem:
            return problem
        return None

    def _log(self, attended: Attended, charged: int) -> None:
        books, verified = self._books, self._verified
        parts = [f"round {'–' if verified is None else verified + 1}", f"{attended.asked} → {attended.answered}"]
        parts.append(f"{charged} steps charged" if charged else "nothing charged")
        parts.append(f"ε {AtMost(books.spent):.4f} of {books.total} guaranteed, {AtLeast(books.left):.4f} left")
        parts.append(f"{books.rounds_left} rounds left")
        figures = {
            **_figures(attended),
            "round": None if verified is None else verified + 1,
            "charged": charged,
            "spent": books.spent,
            "left": float(books.left),
            "total": books.total,
            "rounds_left": books.rounds_left,
        }
        _LOG.info(" · ".join([*parts, f"{AtMost(attended.seconds):.2f} s"]), extra=figures)

    def _publish(self) -> None:
        if self._show is not None:
            self._show(exposition(self._families()))

    def _families(self) -> Iterator[Family]:
        books = self._books
        single: dict[tuple[str, str], float | None] = {
            ("epsilon_spent", "Guaranteed for all that was charged, whatever a server adapts to."): AtMost(books.spent),
            ("epsilon_left", "What may still be spent."): books.left,
            ("epsilon_budget", "The budget as opened or raised last, or less if the policy now says so."): books.total,
            ("delta", "The probability that the guarantee fails."): books.delta,
            ("rounds_left", "Rounds like the last one that would still be admitted."): books.rounds_left,
            ("charges_total", "Charges in the ledger."): books.charges,
            ("charged_steps_total", "Private steps that were charged."): books.steps,
            ("unsent_replies", "Paid replies that nobody has fetched yet."): books.unsent,
            ("readable", "1 where policy, ledger and keys could be read, 0 where the rest is older."): self._unread
            is None,
            ("verified_round", "The last round that this client verified in its session."): self._verified,
            ("round_seconds", "How long the last charged training took."): self._last.get("round"),
            ("message_seconds", "How long the last message took."): self._last.get("message"),
            ("message_end_seconds", "When it was answered, in seconds since 1970."): self._last.get("message_end"),
        }
        for (name, about), value in single.items():
            if value is not None:
                yield _family(name, about, {BARE: value})
        refusals: dict[Labels, float] = {(("word", word.value),): count for word, count in books.refusals.items()}
        yield _family("refusals_total", "Requests that policy or budget refused, by the constant.", refusals)
        yield _family("answers_total", "Messages answered since the guard started.", self._answers)


def _figures(attended: Attended) -> dict[str, Any]:
    return {"asked": attended.asked, "answered": attended.answered, "seconds": attended.seconds}


def _family(name: str, about: str, values: Mapping[Labels, float]) -> Family:
    return Family(name=f"lrdp_guard_{name}", about=about, values=values)
