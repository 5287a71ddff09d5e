"""The third axis of a plan: batches larger than memory holds, computed in passes of a few rows.

Privacy follows from the batch and the number of steps, memory from the rows that are computed at a time, time from the
rows that are computed in all. At equal passes over the data a larger batch needs fewer steps, and the noise that
training gathers, σ/(B√T), falls or stays equal. The case against the largest is that an optimiser needs some steps.

>>> aim = TrainingAim(dataset_size=600, passes=3, rows=64, budget=Budget(epsilon=8, delta=1e-4), least_steps=6)
>>> searched = kept(calibrated(aim, trial) for trial in trials(aim))
>>> finalists = kept(calibrated(aim, trial) for trial in finals(aim, searched))
>>> frontier = BatchFrontier(aim=aim, searched=searched, finalists=finalists)
>>> best = frontier.recommended
>>> best.label, best.mechanism.normaliser, best.steps
('truncated-poisson / pld', 300, 6)
>>> [trial.step.name for trial in baselines(aim, searched, best)]
['fixed-size', 'poisson', 'truncated-poisson']
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from lrdp import limits
from lrdp.accounting.accountants import Accountant, PldAccountant, PrivacySpent, RenyiAccountant
from lrdp.accounting.calibration import Budget, least_noise
from lrdp.accounting.mechanisms import Adjacency, FixedSizeGaussian, PoissonGaussian, PublicSizes, SizedGaussian
from lrdp.accounting.planning import PlanRecipe, trained_kinds
from lrdp.errors import InvalidInput, OutOfReach, Unsupported

LEAST_STEPS: Final = 60
"""The fewest steps of a training run, unless told otherwise: as many as the utility study took (docs/results/paper)."""
_MOST_ROUNDS: Final = 50
_SMALLEST_GAIN: Final = 0.01  # noise that is this close counts as equal: time decides
_NEAR: Final = 0.1
_CLOSE: Final = 0.05  # searched by Rényi orders and decided by loss distributions, which differ by less than this
_STRIDE: Final = math.sqrt(2)
_MOST_PASSES: Final = 1e6


@dataclass(frozen=True, kw_only=True)
class TrainingAim:
    """What is asked of a training run: a number of passes over the data in a budget, a number of rows at a time.

    ``least_steps`` is the fewest steps that the optimiser needs. Without ``local_steps`` a round has as few as keep
    the training within 50 rounds.
    """

    dataset_size: int
    passes: float
    rows: int
    budget: Budget
    least_steps: int = LEAST_STEPS
    local_steps: int | None = None

    def __post_init__(self) -> None:
        size = limits.whole("dataset_size", self.dataset_size, 2, "a single record has nobody to hide among")
        rows = limits.whole("rows", self.rows, 1, "a pass has at least one row")
        limits.keep(
            self,
            dataset_size=size,
            rows=min(rows, size - 1),
            passes=limits.between("passes", self.passes, 1 / size, _MOST_PASSES, "a step reads at least one record"),
            budget=limits.made_by("budget", self.budget, Budget),
            least_steps=limits.whole("least_steps", self.least_steps, 1, "without a step nothing is learnt"),
        )
        if self.local_steps is not None:
            local_steps = limits.whole("local_steps", self.local_steps, 1, "a round without a step is no round")
            limits.keep(self, local_steps=local_steps)

    def schedule(self, batch_size: int) -> tuple[int, int] | None:
        """Rounds, and steps in each, that make these passes with such batches; None where they fill no round."""
        batch_size = limits.whole("batch_size", batch_size, 1, "an empty batch trains nothing")
        steps = self.passes * self.dataset_size / batch_size * (1 + 1e-12)
        local_steps = self.local_steps or max(1, math.ceil(steps / _MOST_ROUNDS - 1e-9))
        rounds = int(steps // local_steps)
        return (rounds, local_steps) if rounds else None

    @property
    def batch_sizes(self) -> list[int]:
        """What is tried: by half-octaves from the rows of a pass to all records, and the last with enough steps."""
        local_steps = self.local_steps or math.ceil(self.least_steps / _MOST_ROUNDS)
        enough = -(-self.least_steps // local_steps) * local_steps
        last = max(1, min(self.dataset_size, int(self.passes * self.dataset_size / enough * (1 + 1e-12))))
        while last > 1 and math.prod(self.schedule(last) or (0,)) < self.least_steps:  # whole rounds lose a few
            last -= max(1, last // 256)
        first = min(self.rows, last)
        octaves = math.ceil(math.log(self.dataset_size / first, _STRIDE))
        tried = {last, self.dataset_size, *(round(first * _STRIDE**step) for step in range(octaves))}
        return sorted(size for size in tried if size <= self.dataset_size and self.schedule(size))


class PlanTrial(NamedTuple):
    """A step that is to be calibrated for its training, and the accountant to calibrate it by."""

    step: SizedGaussian
    accountant: Accountant


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A step with the least noise that keeps the budget over its training."""

    mechanism: SizedGaussian
    accountant: Accountant
    spent: PrivacySpent
    rounds: int
    local_steps: int

    def __post_init__(self) -> None:
        limits.derived_from("mechanism", self.mechanism, SizedGaussian)
        limits.derived_from("accountant", self.accountant, Accountant)  # type: ignore[type-abstract]
        limits.made_by("spent", self.spent, PrivacySpent)
        for name in ("rounds", "local_steps"):
            limits.keep(self, **{name: limits.whole(name, getattr(self, name), 1, "it counts what is done")})

    @property
    def steps(self) -> int:
        """T: what is charged in all."""
        return self.rounds * self.local_steps

    @property
    def noise_over_training(self) -> float:
        """σ/(B√T): the noise that training gathers, over the clip norm; comparable only at equal passes."""
        return self.mechanism.noise_on_mean / math.sqrt(self.steps)

    @property
    def rows_computed(self) -> int | None:
        """Time: rows of all steps, padding included; None where nobody can promise it."""
        return None if self.mechanism.rows is None else self.mechanism.rows * self.steps

    @property
    def label(self) -> str:
        """Mechanism and accountant."""
        return f"{self.mechanism.name} / {self.accountant.name}"


def trials(aim: TrainingAim) -> list[PlanTrial]:
    """Every kind that a policy can state, at every batch size: to be searched by Rényi orders, which is quick."""
    sizes = PublicSizes(limits.made_by("aim", aim, TrainingAim).dataset_size)
    exact, tight = _accountants()
    found = []
    for kind in trained_kinds():
        batches = kind.batch_sizes(sizes) if kind.bounds else range(0)
        accountant = exact if PlanRecipe(kind, exact).has_bound(sizes) else tight
        found += [PlanTrial(kind.drawing(size, sizes), accountant) for size in aim.batch_sizes if size in batches]
    return found


def calibrated(aim: TrainingAim, trial: PlanTrial) -> Candidate | None:
    """The trial with the least noise that keeps the budget; None where none does, or nobody can tell."""
    planned = aim.schedule(trial.step.normaliser)
    if planned is None:
        return None
    with suppress(Unsupported, OutOfReach):
        found = least_noise(trial.step, math.prod(planned), aim.budget, trial.accountant)
        return Candidate(
            mechanism=found.mechanism,
            accountant=trial.accountant,
            spent=found.spent,
            rounds=planned[0],
            local_steps=planned[1],
        )
    return None


def close(aim: TrainingAim, searched: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those with enough steps whose noise is near the least; where none has enough, of those with the most."""
    enough = min(aim.least_steps, max(candidate.steps for candidate in searched))
    able = [candidate for candidate in searched if candidate.steps >= enough]
    least = min(candidate.noise_over_training for candidate in able)
    return tuple(each for each in able if each.noise_over_training <= least * (1 + _CLOSE))


def finals(aim: TrainingAim, searched: Sequence[Candidate]) -> list[PlanTrial]:
    """What loss distributions, which are tighter and slower, have to decide between."""
    return [PlanTrial(each.mechanism.with_noise(1.0), _accountants()[1]) for each in close(aim, searched)]


def baselines(aim: TrainingAim, searched: Sequence[Candidate], best: Candidate) -> list[PlanTrial]:
    """What the best is measured against: the paper's mechanism and plain Poisson with its batch, and small batches."""
    exact, tight = _accountants()
    sizes, same = PublicSizes(aim.dataset_size), min(best.mechanism.normaliser, aim.dataset_size - 1)
    small = min(searched, key=lambda each: (each.mechanism.normaliser, each.noise_over_training)).mechanism
    return [
        PlanTrial(FixedSizeGaussian.drawing(same, sizes), exact),
        PlanTrial(PoissonGaussian.drawing(same, sizes), tight),
        *([PlanTrial(small.with_noise(1.0), tight)] if small.normaliser < same else []),
    ]


@dataclass(frozen=True, kw_only=True)
class BatchFrontier:
    """What was searched, what was decided between, and what the best is measured against."""

    aim: TrainingAim
    searched: tuple[Candidate, ...]
    finalists: tuple[Candidate, ...]
    measures: tuple[Candidate, ...] = ()

    def __post_init__(self) -> None:
        limits.made_by("aim", self.aim, TrainingAim)
        for name in ("searched", "finalists", "measures"):
            for candidate in limits.made_by(name, getattr(self, name), tuple):
                limits.made_by("candidate", candidate, Candidate)
        if not self.finalists:
            raise InvalidInput("finalists must hold at least one candidate, got none: there is nothing to recommend.")

    @property
    def small(self) -> Candidate | None:
        """What the recommended one is measured against with a smaller batch; None where it is the smallest."""
        same = min(self.recommended.mechanism.normaliser, self.aim.dataset_size - 1)
        return next((each for each in self.measures if each.mechanism.normaliser < same), None)

    @property
    def closest(self) -> Candidate:
        """The smallest batch of those searched that comes within a tenth of the recommended one's noise."""
        best = self.recommended.mechanism.with_noise(1.0)
        least = next((each for each in self.searched if each.mechanism.with_noise(1.0) == best), self.recommended)
        near = [each for each in self.searched if each.noise_over_training <= least.noise_over_training * (1 + _NEAR)]
        return min(near, key=lambda each: each.mechanism.normaliser, default=self.recommended)

    @property
    def recommended(self) -> Candidate:
        """The least noise over training; among those that come within a hundredth of it, the least time."""
        least = min(each.noise_over_training for each in self.finalists)
        equal = [each for each in self.finalists if each.noise_over_training <= least * (1 + _SMALLEST_GAIN)]
        return min(equal, key=lambda each: (each.rows_computed or math.inf, each.noise_over_training))


def kept(candidates: Iterable[Candidate | None]) -> tuple[Candidate, ...]:
    """Those that keep the budget.

    Raises:
        OutOfReach: where none does.
    """
    found = tuple(candidate for candidate in candidates if candidate is not None)
    if not found:
        raise OutOfReach("no step keeps this budget over this many passes: take fewer, or a larger epsilon or delta.")
    return found


def _accountants() -> tuple[Accountant, Accountant]:
    return RenyiAccountant(adjacency=Adjacency.ADD_REMOVE), PldAccountant(adjacency=Adjacency.ADD_REMOVE)
