"""May this request be trained? Pure: books, policy and request in, a decision out; no data, no disk."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from lrdp.accounting import Budget, Filter, FilterAnswer, FilterRule, Mechanism
from lrdp.errors import AlreadyAnswered, BudgetExceeded, LrdpError, PolicyRefused, Unsupported
from lrdp.figures import AtMost
from lrdp.ledger.books import Books
from lrdp.ledger.policy import Policy
from lrdp.ledger.policy_file import parse_policy
from lrdp.ledger.refusals import Refusal
from lrdp.ledger.request import Request
from lrdp.ledger.texts import encode_mechanism

MOST_CHARGES_PER_ROUND: Final = 2
"""A crash or another model costs a second charge; a third in one round is refused.

Where the policy permits counts there may be one more: a count of the model after a round is charged to the next one.
"""

Objection = tuple[Refusal, str]


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The state of the books after the charge; or a refusal; or neither, where the request has its reply already."""

    refusal: Refusal | None = None
    sentence: str = ""
    after: FilterAnswer | None = None

    def error(self) -> LrdpError:
        """Why there is no charge."""
        if self.refusal is None:
            return AlreadyAnswered(self.sentence)
        kind = BudgetExceeded if self.refusal.is_about_budget else PolicyRefused
        return kind(self.sentence, self.refusal)


def check_same_data(books: Books, policy: Policy) -> None:
    """Refuse a policy for other data than the books were opened for, or that counts them in another way.

    What was charged for rows must not read as charged for units: a unit's ε would come out smaller than it is.
    """
    identity, rule, opened, last = policy.identity, policy.budget, books.opened, books.policies[-1]
    asked = (identity.client, identity.unit, identity.max_rows_per_unit, rule.adjacency, rule.total.delta)
    same = asked == (opened.client, opened.unit, opened.max_rows_per_unit, opened.adjacency, opened.delta)
    if same and last.digest != policy.digest:
        same = identity.clipped is parse_policy(last.text, source="policy.toml").identity.clipped
    if not same:
        raise PolicyRefused(
            f"{policy.source} differs in client, unit, rows per unit, what is clipped, adjacency or delta from what "
            f"this ledger was opened with: these cannot change, so open a new ledger for new data.",
            Refusal.OTHER_LEDGER,
        )


def decide(books: Books, policy: Policy, request: Request) -> Decision:
    """Admit or refuse; the first objection found is the one given."""
    if books.closed is not None:
        return Decision(
            refusal=Refusal.CLOSED, sentence=_free("this participation has ended: the ledger was closed for good")
        )
    if request.key in books.charges.answered:
        return Decision(sentence=f"round {request.round} was answered: its stored bytes are sent again, at no cost.")
    objection = (
        _suspension(books)
        or policy_objection(policy, request)
        or _place(books, request)
        or _recharge(books, policy, request)
    )
    if objection is None:
        try:
            return _admit(books, policy, request)
        except Unsupported as problem:
            objection = Refusal.SAMPLING, f"the cost of this step cannot be bounded: {problem}"
    return Decision(refusal=objection[0], sentence=_free(objection[1]))


def policy_objection(policy: Policy, request: Request) -> Objection | None:
    """The first rule of the policy that the request breaks."""
    rule = policy.mechanism
    found = _mechanism_objection(policy, request.mechanism)
    if found is not None:
        return found
    limits: tuple[tuple[bool, Refusal, str, str, object, str], ...] = (
        (request.clip_norm <= rule.clip_norm, Refusal.CLIP_NORM, "mechanism.clip_norm", "clip norm", request.clip_norm,
         f"at most {rule.clip_norm}"),
        (request.clip_norm >= rule.min_clip_norm, Refusal.CLIP_NORM, _least_clip(policy), "clip norm",
         request.clip_norm, f"at least {rule.min_clip_norm}"),
        (request.steps <= rule.max_steps_per_round, Refusal.STEPS, "mechanism.max_steps_per_round", "steps",
         request.steps, f"at most {rule.max_steps_per_round}"),
        (request.model.size <= policy.model.max_bytes, Refusal.MODEL_SIZE, "model.max_bytes", "a model of bytes",
         request.model.size, f"at most {policy.model.max_bytes}"),
        (request.model.largest_weight <= policy.model.max_abs_weight, Refusal.MODEL_WEIGHTS, "model.max_abs_weight",
         "a largest weight of", request.model.largest_weight, f"at most {policy.model.max_abs_weight} and finite"),
        (request.registry_sha256 == policy.peers.registry_sha256, Refusal.REGISTRY, "peers.registry_sha256",
         "the registry", request.registry_sha256[:12] or "none", f"{policy.peers.registry_sha256[:12] or 'none'}"),
        (request.server in (policy.peers.server_keys or ("",)), Refusal.SERVER, "peers.server_keys", "the server",
         request.server[:12] or "none", "those that it names"),
        (set(request.metrics) <= set(policy.metrics), Refusal.METRICS, "release.metrics", "the metrics",
         list(request.metrics), f"none but {list(policy.metrics)}"),
    )  # fmt: skip
    for holds, refusal, key, what, asked, allowed in limits:
        if not holds:
            return refusal, _broken(policy, key, f"{what} {asked}", allowed)
    return None


def _least_clip(policy: Policy) -> str:
    """The key that says so: without one, no clip norm but the policy's own is taken."""
    return "mechanism.min_clip_norm" if "mechanism.min_clip_norm" in policy.lines else "mechanism.clip_norm"


def _mechanism_objection(policy: Policy, asked: Mechanism) -> Objection | None:
    costliest = policy.mechanism.costliest
    field = costliest.looser_in(asked)
    if field is None:
        return None
    if field not in costliest.bounds:
        return Refusal.SAMPLING, _broken(policy, "mechanism.sampling", f"{asked.name} sampling", costliest.name)
    bound = costliest.bounds[field]
    refusal, words = _FIELDS.get(field, (Refusal.SAMPLING, field))
    what, allowed = f"{words} {getattr(asked, field)}", f"{bound.side.value} {getattr(costliest, field)}"
    return refusal, _broken(policy, f"mechanism.{bound.key}", what, allowed)


_FIELDS: Final = {
    "noise_multiplier": (Refusal.NOISE, "noise"),
    "batch_size": (Refusal.BATCH_SIZE, "batches of"),
    "cap": (Refusal.BATCH_SIZE, "batches cut to"),
    "dataset_size": (Refusal.DATASET_SIZE, "a data set counted as"),
}
"""The reason that the server is told, and our words for it; a field that has none here is a matter of sampling."""


def _suspension(books: Books) -> Objection | None:
    if books.suspended is None:
        return None
    return Refusal.SUSPENDED, (
        f"these books were shown a head they signed but do not contain (entry {books.suspended.seq}): a backup was "
        f"restored or the machine was cloned, and an administrator must run `lrdp ledger adopt-head` first"
    )


def _place(books: Books, request: Request) -> Objection | None:
    """A step without a reserved place is not about the budget: a server must not think that the budget is spent."""
    if books.rule.has_place(request.mechanism):
        return None
    return Refusal.SAMPLING, (
        f"the rounds of this ledger were reserved for exactly the step of its policy, and the server asked for "
        f"{encode_mechanism(request.mechanism)}"
    )


def _recharge(books: Books, policy: Policy, request: Request) -> Objection | None:
    made = books.charges.charges_in(request.full_name, request.round)
    most = MOST_CHARGES_PER_ROUND + bool(policy.metrics)
    if made < most:
        return None
    return Refusal.RECHARGE, (
        f"round {request.round} was charged {made} times already, and at most {most} charges are made in one round"
    )


def _admit(books: Books, policy: Policy, request: Request) -> Decision:
    """The global budget first, then the run's share of it; every comparison fails closed on a NaN."""
    total = tighter(books.budget, policy.budget.total)
    _, after = books.filter(total).charge(request.mechanism, request.steps)
    if not (after.admitted and after.guaranteed.epsilon <= total.epsilon):
        return Decision(
            refusal=Refusal.BUDGET,
            sentence=_free(
                f"{request.steps} steps do not fit the budget: ε={AtMost(after.guaranteed.epsilon):.4f} of "
                f"{total.epsilon} is spent or reserved at δ={total.delta} ({policy.where('budget.epsilon')})"
                f"{policy_note(books.budget, policy.budget.total, books.rule)}"
            ),
        )
    share = share_of(request.payer, books, policy)
    if share is None:
        return Decision(after=after)
    _, quota = share.charge(request.mechanism, request.steps)
    if not (quota.admitted and quota.guaranteed.epsilon <= share.budget.epsilon):
        return Decision(
            refusal=Refusal.RUN_QUOTA,
            sentence=_free(
                f"{request.steps} steps do not fit the share of {_whose(request)}: "
                f"ε={AtMost(share.guaranteed.epsilon):.4f} of {share.budget.epsilon} is spent, as shares are counted "
                f"({policy.where('budget.per_run_epsilon')})"
            ),
        )
    return Decision(after=after)


def share_of(payer: str, books: Books, policy: Policy) -> Filter | None:
    """What one payer may spend of the budget, and has spent; None where its share is the whole."""
    total = tighter(books.budget, policy.budget.total)
    share = Budget(epsilon=policy.budget.per_run.epsilon, delta=total.delta)
    if share.epsilon >= total.epsilon:
        return None
    return replace(books.filter(share), rule=books.rule.for_shares(), history=books.charges.history_of(payer))


def _whose(request: Request) -> str:
    return f"the server {request.payer} over all its sessions" if request.server else "this run"


def policy_note(opened: Budget, policy: Budget, rule: FilterRule) -> str:
    """What is to be said of a policy that states another budget than was opened: it lowers it, and raises nothing.

    >>> from lrdp.accounting import RenyiOrders
    >>> rule = RenyiOrders(weights={8.0: 1.0})
    >>> policy_note(Budget(epsilon=4, delta=1e-6), Budget(epsilon=8, delta=1e-6), rule)
    '; the 8.0 that the policy states counts once `lrdp ledger raise` has signed it'
    >>> policy_note(Budget(epsilon=4, delta=1e-6), Budget(epsilon=3, delta=1e-6), rule)
    '; the policy allows 3.0 of the budget of 4.0'
    """
    if policy.epsilon == opened.epsilon:
        return ""
    if policy.epsilon < opened.epsilon:
        return f"; the policy allows {policy.epsilon} of the budget of {opened.epsilon}"
    if not rule.may_grow:
        return f"; the {policy.epsilon} that the policy states never counts, for reserved rounds cannot be added to"
    return f"; the {policy.epsilon} that the policy states counts once `lrdp ledger raise` has signed it"


def tighter(opened: Budget, policy: Budget) -> Budget:
    """The budget that was opened, or less if the policy now says so; never more.

    >>> tighter(Budget(epsilon=4, delta=1e-6), Budget(epsilon=8, delta=1e-6)).epsilon
    4.0
    """
    return Budget(epsilon=min(opened.epsilon, policy.epsilon), delta=opened.delta)


def _broken(policy: Policy, key: str, asked: str, allowed: str) -> str:
    return f"the server asked for {asked}, the policy allows {allowed} ({policy.where(key)})"


def _free(sentence: str) -> str:
    return f"{sentence}: nothing was trained and nothing was spent."
