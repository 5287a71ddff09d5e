"""What a policy affords before its budget is opened: the filter that is fixed then, and the rounds that it admits."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lrdp.accounting import (
    Filter,
    FilterRule,
    Mechanism,
    RenyiAccountant,
    RenyiOrders,
    ReservedSlots,
    least_noise,
    most_rounds,
)
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost
from lrdp.ledger.charges import Charges
from lrdp.ledger.policy import BudgetCounting, MechanismRule, Policy


@dataclass(frozen=True, kw_only=True)
class Promise:
    """A policy, the filter that it is opened with, and how many rounds of its costliest kind that filter admits."""

    policy: Policy
    rule: FilterRule
    rounds: int

    def kept(self) -> Promise:
        """This promise, if it is one: a budget that affords no round, to all or to a single server, is not opened."""
        if self.rounds:
            self._require_shares()
            return self
        total, asked = self.policy.budget.total, self.policy.mechanism
        books = RenyiAccountant(adjacency=self.policy.budget.adjacency)
        cost = books.epsilon({asked.costliest: asked.max_steps_per_round}, total.delta)
        enough = least_noise(asked.costliest, asked.max_steps_per_round, total, books).mechanism.noise_multiplier
        raise InvalidInput(
            f"{self.policy.source} affords no round: one of {asked.max_steps_per_round} steps costs "
            f"ε={AtMost(cost.epsilon)}, above the budget of {total.epsilon} at δ={total.delta}, so nothing was opened; "
            f"set mechanism.min_noise_multiplier to {AtMost(enough)} or more, or take fewer steps per round, or let "
            f"`lrdp plan --write` find a policy that lasts.",
            field="min_noise_multiplier",
        )

    def _require_shares(self) -> None:
        budget, asked = self.policy.budget, self.policy.mechanism
        share = Filter(rule=self.rule.for_shares(), budget=budget.per_run, adjacency=budget.adjacency)
        if budget.per_run != budget.total and not rounds_within(share, asked.costliest, asked.max_steps_per_round):
            raise InvalidInput(
                f"{self.policy.source} affords no round to any server: one of {asked.max_steps_per_round} steps does "
                f"not fit the share of ε={share.budget.epsilon} that each may spend, as shares are counted, so nothing "
                f"was opened; raise budget.per_run_epsilon, set more noise, or take fewer steps per round.",
                field="per_run_epsilon",
            )


def promised(policy: Policy, plan_rounds: int | None = None) -> Promise:
    """What opening the policy's budget gives; slots only where they afford more than the committed order.

    Guarantees: the rule follows from the policy and the plan alone, both public, before the first charge.
    """
    rules: list[FilterRule] = [_orders(policy, plan_rounds)]
    if policy.budget.counting is BudgetCounting.RESERVED:
        rules += _slots(policy)
    made = [Promise(policy=policy, rule=rule, rounds=_rounds(policy, rule)) for rule in rules]
    return max(made, key=lambda promise: promise.rounds)  # the first of equals: orders admit more kinds of steps


def round_like_last(charges: Charges, rule: MechanismRule) -> tuple[Mechanism, int]:
    """The step and the number of steps of a round like the last one; before it, of the costliest that is permitted."""
    steps = charges.last_round
    if not steps:
        return rule.costliest, rule.max_steps_per_round
    step = next(iter(steps)) if len(steps) == 1 else rule.costliest
    return step, sum(steps.values())


def rounds_within(books: Filter, step: Mechanism, steps: int) -> int:
    """How many more rounds of this many steps the filter would admit."""

    def fits(rounds: int) -> bool:
        after = replace(books, history={**books.history, step: books.history.get(step, 0) + steps * rounds})
        admitted = after.rule.admits(after.budget, after.adjacency, after.history)
        return admitted and after.guaranteed.epsilon <= after.budget.epsilon

    low, high = 0, 1
    while high < 1 << 40 and steps * high < 1 << 60 and fits(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _rounds(policy: Policy, rule: FilterRule) -> int:
    books = Filter(rule=rule, budget=policy.budget.total, adjacency=policy.budget.adjacency)
    return rounds_within(books, policy.mechanism.costliest, policy.mechanism.max_steps_per_round)


def _orders(policy: Policy, plan_rounds: int | None) -> RenyiOrders:
    """The order that is best for the planned rounds, or for as many as the budget affords."""
    asked, total, adjacency = policy.mechanism, policy.budget.total, policy.budget.adjacency
    steps, books = asked.max_steps_per_round, RenyiAccountant(adjacency=adjacency)
    rounds = most_rounds(asked.costliest, steps, total, books) if plan_rounds is None else plan_rounds
    return RenyiOrders.committed(total, adjacency, {asked.costliest: steps * max(rounds, 1)})


def _slots(policy: Policy) -> list[FilterRule]:
    """As many rounds as loss distributions afford, paid for as a whole; none where they afford none."""
    asked, budget = policy.mechanism, policy.budget
    books = ReservedSlots.accountant(adjacency=budget.adjacency)
    rounds = most_rounds(asked.costliest, asked.max_steps_per_round, budget.total, books)
    return [ReservedSlots(slots={asked.costliest: rounds * asked.max_steps_per_round})] if rounds else []
