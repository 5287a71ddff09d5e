"""Filters: when must a client stop, if the steps to come may depend on the answers so far?

Asking an accountant for ε after every step and going on while it is below the budget is *not* sound then: the order
that gives ε would follow the data (tests/accounting/test_filters.py has the counterexample). A filter is a rule that
was fixed in advance (:mod:`lrdp.accounting.filter_rules`), a budget, and the steps so far.

Every answer carries ``guaranteed``, what holds under adaptivity, and ``spent``, what the same steps would cost had they
been fixed in advance.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lrdp import limits
from lrdp.accounting.accountants import History, PrivacySpent, checked_history
from lrdp.accounting.calibration import Budget
from lrdp.accounting.filter_rules import FilterRule, RenyiOrders, ReservedSlots
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.errors import OutOfReach
from lrdp.figures import AtMost


@dataclass(frozen=True, kw_only=True)
class FilterAnswer:
    """Whether the steps may be taken, and the state after them (before them, if they may not)."""

    admitted: bool
    guaranteed: PrivacySpent
    spent: PrivacySpent

    def __post_init__(self) -> None:
        limits.made_by("admitted", self.admitted, bool)
        limits.made_by("guaranteed", self.guaranteed, PrivacySpent)
        limits.made_by("spent", self.spent, PrivacySpent)


@dataclass(frozen=True, kw_only=True)
class Filter:
    """A budget that stops in time, whatever the server asks. A value: ``charge`` returns the next one.

    >>> from lrdp.accounting import Adjacency, Budget, Filter, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.5)
    >>> books = Filter.committed(Budget(epsilon=6.0, delta=1e-5), Adjacency.ADD_REMOVE, plan={step: 10_000})
    >>> books, answer = books.charge(step, 9_000)
    >>> answer.admitted, answer.guaranteed.epsilon <= 6.0
    (True, True)
    >>> books.charge(step, 9_000)[1].admitted
    False

    Guarantees: all that was admitted is (ε, δ)-private at the budget, by the theorem of the rule.
    """

    rule: FilterRule
    budget: Budget
    adjacency: Adjacency
    history: History = field(default_factory=dict)

    def __post_init__(self) -> None:
        limits.keep(
            self,
            rule=limits.derived_from("rule", self.rule, FilterRule),  # type: ignore[type-abstract]
            budget=limits.made_by("budget", self.budget, Budget),
            adjacency=limits.made_by("adjacency", self.adjacency, Adjacency),
            history=checked_history(self.history),
        )

    @classmethod
    def committed(cls, budget: Budget, adjacency: Adjacency, plan: History) -> Filter:
        """Commit to the order that is best for the public plan."""
        return cls(rule=RenyiOrders.committed(budget, adjacency, plan), budget=budget, adjacency=adjacency)

    @classmethod
    def reserved(cls, budget: Budget, adjacency: Adjacency, slots: History) -> Filter:
        """Pay for all ``slots`` at once, or refuse."""
        made = cls(rule=ReservedSlots(slots=slots), budget=budget, adjacency=adjacency)
        cost = made.guaranteed.epsilon
        if not cost <= budget.epsilon:
            raise OutOfReach(
                f"the slots cost epsilon={AtMost(cost)}, above the budget of {budget.epsilon} at "
                f"delta={budget.delta}: nothing was reserved; take fewer slots or more noise."
            )
        return made

    @property
    def guaranteed(self) -> PrivacySpent:
        """What holds for all that was charged, whatever the server adapted to."""
        return self.rule.guaranteed(self.budget, self.adjacency, self.history)

    def charge(self, mechanism: Mechanism, steps: int) -> tuple[Filter, FilterAnswer]:
        """Charge for ``steps`` and return the filter after them; the same filter if they do not fit."""
        after = replace(self, history=_with(self.history, mechanism, steps))
        if self.rule.admits(self.budget, self.adjacency, after.history):
            return after, after.answer()
        return self, self.answer(admitted=False)

    def answer(self, *, admitted: bool = True) -> FilterAnswer:
        """The state now."""
        guaranteed = self.guaranteed
        spent = self.rule.accountant(adjacency=self.adjacency).epsilon(self.history, self.budget.delta)
        # What holds under adaptivity also holds without it, and may be resolved, or found by the search, where the
        # other is not.
        spent = min(spent, guaranteed, key=lambda bound: bound.epsilon)
        return FilterAnswer(admitted=admitted, guaranteed=guaranteed, spent=spent)


def _with(history: History, mechanism: Mechanism, steps: int) -> dict[Mechanism, int]:
    limits.derived_from("mechanism", mechanism, Mechanism)
    steps = limits.whole("steps", steps, 1, "a charge is for steps to be taken")
    return {**history, mechanism: history.get(mechanism, 0) + steps}
