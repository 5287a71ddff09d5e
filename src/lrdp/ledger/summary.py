"""What the books amount to: every figure of the statement, recomputed from the entries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal

from lrdp.accounting import (
    Accountant,
    Adjacency,
    Budget,
    Filter,
    FilterAnswer,
    GroupAccountant,
    History,
    Mechanism,
    PldAccountant,
    PrivacySpent,
    Risk,
    TradeOff,
    trade_off,
)
from lrdp.figures import AtLeast, left
from lrdp.ledger.books import Books
from lrdp.ledger.charges import State
from lrdp.ledger.decisions import policy_note, share_of, tighter
from lrdp.ledger.events import Closed, Raised, Reserved
from lrdp.ledger.opening import round_like_last, rounds_within
from lrdp.ledger.policy import Clipped, Policy
from lrdp.ledger.policy_file import parse_policy
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.request import ANYBODY, payer_of
from lrdp.version import __version__


@dataclass(frozen=True, kw_only=True)
class Summary:
    """One client's books in figures.

    ``guaranteed`` holds under adaptive participation; ``spent`` is what the same steps would cost had they been fixed
    in advance; ``group`` and ``group_spent`` are both for a unit with as many rows as the policy allows;
    ``trade_off`` and ``trade_off_spent`` are what an attack can tell of one record; ``without_voids`` is ``guaranteed``
    and ``spent`` had nothing been voided; ``recorded`` is what was computed, by which accountant, when the last charge
    was made.
    """

    policy: Policy
    client: str
    ledger: str
    client_key: str
    adjacency: Adjacency
    budget: Budget
    accountant: str
    guaranteed: PrivacySpent
    spent: PrivacySpent
    spent_elsewhere: tuple[PrivacySpent, ...]
    group: PrivacySpent
    group_spent: PrivacySpent
    trade_off: TradeOff
    trade_off_spent: TradeOff
    without_voids: FilterAnswer
    recorded: Reserved | None
    history: Mapping[Mechanism, int]
    clip_norms: tuple[float, ...]
    states: Mapping[State, int]
    refusals: Mapping[Refusal, int]
    runs: int
    adopted: int
    suspended: bool
    opened_at: int
    opened_epsilon: float
    raises: tuple[Raised, ...]
    closed: Closed | None
    rounds_left: int
    policy_note: str
    entries: int
    digest: str
    clock_fell: int

    @property
    def risk(self) -> Risk:
        """What people read of ``trade_off``."""
        return self.trade_off.risk

    @property
    def risk_spent(self) -> Risk:
        """The same had the steps been fixed in advance."""
        return self.trade_off_spent.risk

    @property
    def left(self) -> AtLeast:
        """ε that may still be spent, of the budget that was opened, or of less if the policy now says so."""
        return left(tighter(self.budget, self.policy.budget.total).epsilon, self.guaranteed.epsilon)


def summarize(books: Books, now: Policy | None = None) -> Summary:
    """Recompute every figure; what is left follows the policy ``now`` in force, if no message has recorded it yet."""
    policy = _policy(books)
    if now is not None:
        policy = replace(policy, budget=now.budget)
    state = books.filter(books.budget)
    accountant, answer = books.rule.accountant(adjacency=state.adjacency), state.answer()
    with_voids = replace(state, history=_merged(state.history, books.charges.voided))
    return Summary(
        policy=policy,
        client=books.opened.client,
        ledger=books.opened.ledger,
        client_key=books.client_key,
        adjacency=books.opened.adjacency,
        budget=books.budget,
        accountant=f"{accountant.name} lrdp/{__version__}",
        guaranteed=answer.guaranteed,
        spent=answer.spent,
        spent_elsewhere=_elsewhere(accountant, books.charges.history, books.budget.delta),
        **_of_group(state, answer, policy.identity.records_per_unit),
        trade_off=state.rule.trade_off(state.budget, state.adjacency, state.history),
        trade_off_spent=trade_off(PldAccountant(adjacency=state.adjacency), state.history, state.budget.delta),
        without_voids=with_voids.answer(),
        recorded=books.charges.newest,
        history=books.charges.history,
        clip_norms=tuple(sorted(books.charges.clip_norms)),
        states=Counter(books.charges.states.values()),
        refusals=dict(books.refusals.by_reason),
        runs=books.charges.runs,
        adopted=len(books.adopted),
        suspended=books.suspended is not None,
        opened_at=books.opened.at,
        opened_epsilon=books.opened.epsilon,
        raises=tuple(books.raises),
        closed=books.closed,
        rounds_left=rounds_left(books, now or policy),
        policy_note="" if books.closed else policy_note(books.budget, policy.budget.total, books.rule),
        entries=books.seq,
        digest=books.digest.hex(),
        clock_fell=len(books.clock_fell_at),
    )


def _of_group(state: Filter, answer: FilterAnswer, rows: int) -> dict[str, PrivacySpent]:
    if rows == 1:
        return {"group": answer.guaranteed, "group_spent": answer.spent}
    together = GroupAccountant(adjacency=state.adjacency, rows=rows)
    return {
        "group": state.rule.guaranteed_to_group(state.budget, state.adjacency, state.history, rows),
        "group_spent": together.epsilon(state.history, state.budget.delta),
    }


def _policy(books: Books) -> Policy:
    """The last one; where not all of them clip units, what was charged is read as rows, whoever wrote the books."""
    last = parse_policy(books.policies[-1].text, source="policy.toml")
    if last.identity.clipped is Clipped.ROWS:
        return last
    earlier = (parse_policy(each.text, source="policy.toml").identity.clipped for each in books.policies)
    clipped = Clipped.UNITS if set(earlier) == {Clipped.UNITS} else Clipped.ROWS
    return replace(last, identity=replace(last.identity, clipped=clipped))


def rounds_left(books: Books, policy: Policy) -> int:
    """Rounds like the last one, of the same server, that would still be admitted; before it, of the costliest kind."""
    if books.suspended is not None or books.closed is not None:
        return 0
    last = books.charges.newest
    step, steps = round_like_last(books.charges, policy.mechanism)
    whole = books.filter(tighter(books.budget, policy.budget.total))
    share = share_of(payer_of(last.run) if last else ANYBODY, books, policy)
    return min(rounds_within(one, step, steps) for one in (whole, share) if one is not None)


def _elsewhere(accountant: Accountant, history: History, delta: float) -> tuple[PrivacySpent, ...]:
    """ε at δ, at a hundredth of it and at a ten-thousandth: decimal, for 1e-5 / 100 is printed as 1.00001e-07."""
    stated = Decimal(repr(delta))
    return tuple(accountant.epsilon(history, float(stated.scaleb(-digits))) for digits in (0, 2, 4))


def _merged(history: History, voided: History) -> dict[Mechanism, int]:
    return {step: history.get(step, 0) + voided.get(step, 0) for step in {**history, **voided}}
