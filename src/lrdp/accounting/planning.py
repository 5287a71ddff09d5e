"""A plan: every mechanism and accountant side by side for one training run, and which to take.

Every option keeps the same budget over the same rounds and holds at most ``batch_size`` rows, except plain Poisson,
which cannot promise that and is shown as the baseline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from lrdp import limits
from lrdp.accounting.accountants import Accountant, PldAccountant, PrivacySpent, RenyiAccountant, TaylorAccountant
from lrdp.accounting.calibration import Budget, Calibrated, least_noise, most_rounds, quietest_batch
from lrdp.accounting.mechanisms import MECHANISMS, Adjacency, FixedSizeGaussian, PublicSizes, SizedGaussian
from lrdp.errors import InvalidInput, Unsupported
from lrdp.figures import AtMost

_ANY_DELTA = 0.5


@dataclass(frozen=True, kw_only=True)
class Training:
    """The public constants of a training run, and its budget.

    >>> budget = Budget(epsilon=8, delta=1e-5)
    >>> Training(dataset_size=5000, batch_size=128, rounds=50, local_steps=39, budget=budget).steps
    1950
    """

    dataset_size: int
    batch_size: int
    rounds: int
    local_steps: int
    budget: Budget

    def __post_init__(self) -> None:
        step = FixedSizeGaussian(dataset_size=self.dataset_size, batch_size=self.batch_size, noise_multiplier=1.0)
        limits.keep(
            self,
            dataset_size=step.dataset_size,
            batch_size=step.batch_size,
            rounds=limits.whole("rounds", self.rounds, 1, "a plan without a round costs nothing"),
            local_steps=limits.whole("local_steps", self.local_steps, 1, "a round without a step is no round"),
            budget=limits.made_by("budget", self.budget, Budget),
        )

    @property
    def steps(self) -> int:
        """Local steps over all rounds: the unit that is charged."""
        return self.rounds * self.local_steps

    @property
    def sizes(self) -> PublicSizes:
        """What a step is taken on, and the rows that it may hold."""
        return PublicSizes(dataset_size=self.dataset_size, rows=self.batch_size)


@dataclass(frozen=True, kw_only=True)
class Option:
    """One mechanism under one accountant, calibrated to the budget."""

    accountant: Accountant
    mechanism: SizedGaussian
    spent: PrivacySpent
    one_round: PrivacySpent
    rounds_affordable: int
    rounds_at_equal_noise: int  # with as much noise on the mean as the plan's first option

    def __post_init__(self) -> None:
        limits.derived_from("accountant", self.accountant, Accountant)  # type: ignore[type-abstract]
        limits.derived_from("mechanism", self.mechanism, SizedGaussian)
        for name in ("spent", "one_round"):
            limits.made_by(name, getattr(self, name), PrivacySpent)
        for name in ("rounds_affordable", "rounds_at_equal_noise"):
            limits.keep(self, **{name: limits.whole(name, getattr(self, name), 0, "rounds are counted")})

    @property
    def label(self) -> str:
        """Mechanism, accountant and, where it is not the usual one, adjacency."""
        words = [self.mechanism.name, self.accountant.name]
        if self.accountant.adjacency is not Adjacency.ADD_REMOVE:
            words.append(self.accountant.adjacency.value)
        return " / ".join(words)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All options of a training run; the first is the paper's.

    >>> training = Training(
    ...     dataset_size=300, batch_size=16, rounds=4, local_steps=5, budget=Budget(epsilon=8, delta=1e-4)
    ... )
    >>> Plan(training=training, options=(next(options(training)),)).recommended.label  # all of them take ten seconds
    'fixed-size / rdp'
    """

    training: Training
    options: tuple[Option, ...]

    def __post_init__(self) -> None:
        limits.made_by("training", self.training, Training)
        options = limits.made_by("options", self.options, tuple)
        if not options:
            raise InvalidInput("options must hold at least the paper's, got none: a plan compares with it.")
        for option in options:
            limits.made_by("option", option, Option)

    @property
    def recommended(self) -> Option:
        """The least noise on the mean among those that a policy can state, with the usual adjacency.

        What a policy can state (it has ``bounds``) holds a constant number of rows in memory.
        """
        eligible = [
            option
            for option in self.options
            if option.mechanism.bounds and option.accountant.adjacency is Adjacency.ADD_REMOVE
        ]
        return min(eligible, key=lambda option: option.mechanism.noise_on_mean)

    @property
    def reason(self) -> str:
        """Why that one, in a sentence or two."""
        best, paper = self.recommended, self.options[0]
        share = best.mechanism.noise_on_mean / paper.mechanism.noise_on_mean
        why = (
            f"{best.label} puts the least noise on the mean ({AtMost(best.mechanism.noise_on_mean):.4g}, "
            f"{AtMost(share):.0%} of {paper.label}) at a constant {best.mechanism.rows} rows in memory."
        )
        if best.mechanism.scope != paper.mechanism.scope:
            why += f" It holds for {best.mechanism.scope}."
        return why

    def at_equal_noise(self, option: Option) -> SizedGaussian:
        """``option``'s mechanism with as much noise on the mean as the paper's: what still differs is ε."""
        return _with_noise_on_mean(option.mechanism, self.options[0].mechanism.noise_on_mean)


class PlanRecipe(NamedTuple):
    """A kind of step, and the accountant that counts it.

    >>> training = Training(
    ...     dataset_size=300, batch_size=16, rounds=4, local_steps=5, budget=Budget(epsilon=8, delta=1e-4)
    ... )
    >>> recipe = recipes(training)[0]
    >>> recipe.kind.__name__, recipe.accountant.name, recipe.calibrated(training).mechanism.noise_multiplier
    ('FixedSizeGaussian', 'rdp', 1.128)
    """

    kind: type[SizedGaussian]
    accountant: Accountant

    def calibrated(self, training: Training) -> Calibrated[SizedGaussian]:
        """The step of this kind with the least noise on the mean that keeps the training's budget over its steps."""
        sizes = limits.made_by("training", training, Training).sizes
        batches, drawing = self.kind.batch_sizes(sizes), partial(self.kind.drawing, sizes=sizes)
        if len(batches) == 1:
            return least_noise(drawing(batches[0]), training.steps, training.budget, self.accountant)
        return quietest_batch(drawing, batches[-1], training.steps, training.budget, self.accountant)

    def has_bound(self, sizes: PublicSizes) -> bool:
        """Whether this accountant has an answer for steps of this kind."""
        batches = self.kind.batch_sizes(sizes)
        if not batches:
            return False
        step = self.kind.drawing(batches[-1], sizes)
        try:
            step.dominating_pair(self.accountant.adjacency)
            if isinstance(self.accountant, RenyiAccountant):
                self.accountant.epsilon({step: 1}, _ANY_DELTA)
        except Unsupported:
            return False
        return True


def recipes(training: Training) -> tuple[PlanRecipe, ...]:
    """What a plan compares at equal rows, in the order shown.

    Every kind whose steps fit into the rows, by every accountant that has a bound for it; and the paper's own series
    for the paper's own mechanism.
    """
    sizes = limits.made_by("training", training, Training).sizes
    found = [PlanRecipe(kind, each) for kind in trained_kinds() for each in _accountants(kind)]
    return tuple(
        recipe
        for recipe in found
        if max(recipe.kind.batch_sizes(sizes), default=sizes.dataset_size) <= training.batch_size
        and recipe.has_bound(sizes)
    )


def trained_kinds() -> list[type[SizedGaussian]]:
    """The kinds that can be planned with: those that say what one of their steps holds."""
    return [kind for kind in MECHANISMS.values() if issubclass(kind, SizedGaussian)]


def _accountants(kind: type[SizedGaussian]) -> list[Accountant]:
    usual, replace_one = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE
    series = [TaylorAccountant(adjacency=usual)] if kind is FixedSizeGaussian else []
    return [
        RenyiAccountant(adjacency=usual),
        *series,
        PldAccountant(adjacency=usual),
        RenyiAccountant(adjacency=replace_one),
        PldAccountant(adjacency=replace_one),
    ]


def options(training: Training) -> Iterator[Option]:
    """Calibrate each recipe in turn; a generator, so that a caller can show progress.

    >>> training = Training(
    ...     dataset_size=300, batch_size=16, rounds=4, local_steps=5, budget=Budget(epsilon=8, delta=1e-4)
    ... )
    >>> first = next(options(training))
    >>> first.label, first.rounds_affordable
    ('fixed-size / rdp', 4)
    """
    return _calibrated(limits.made_by("training", training, Training))


def _calibrated(training: Training) -> Iterator[Option]:
    reference: float | None = None
    for recipe in recipes(training):
        accountant, calibrated = recipe.accountant, recipe.calibrated(training)
        mechanism = calibrated.mechanism
        reference = reference or mechanism.noise_on_mean
        equal = _with_noise_on_mean(mechanism, reference)
        yield Option(
            accountant=accountant,
            mechanism=mechanism,
            spent=calibrated.spent,
            one_round=accountant.epsilon({mechanism: training.local_steps}, training.budget.delta),
            rounds_affordable=most_rounds(mechanism, training.local_steps, training.budget, accountant),
            rounds_at_equal_noise=most_rounds(equal, training.local_steps, training.budget, accountant),
        )


def _with_noise_on_mean(mechanism: SizedGaussian, noise_on_mean: float) -> SizedGaussian:
    return mechanism.with_noise(noise_on_mean * mechanism.normaliser)
