"""Small data sets, every batch listed: no pair of neighbours is ever easier to tell apart than the accountant says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    TruncatedPoissonGaussian,
)
from oracles.brute_force import (
    Mixture,
    Neighbours,
    Relation,
    composed_hockey_stick,
    fixed_size_batches,
    poisson_batches,
    truncated_poisson_batches,
    with_replacement_batches,
    worst_case_neighbours,
)

from .given import ADD_REMOVE, REPLACE_ONE

EPSILONS = [0.004, 0.11, 0.29, 0.57, 1.4, 2.9, 5.2]
NOISES = [0.61, 1.37, 3.9]
ORACLE_ERROR = 1e-8  # of two steps; one step is good to 1e-13


@dataclass(frozen=True, kw_only=True)
class Case:
    """A mechanism as the accountant sees it, and what it does to a data set of ``records`` records."""

    mechanism: Mechanism
    batches: Callable[[tuple[float, ...]], Mixture]
    records: int
    adjacency: Adjacency = ADD_REMOVE
    relations: tuple[Relation, ...] = (Relation.ADD_REMOVE,)

    def neighbours(self) -> list[Neighbours]:
        return [pair for pair in worst_case_neighbours(self.records) if pair.relation in self.relations]

    def mixtures(self, pair: Neighbours) -> tuple[Mixture, Mixture]:
        return self.batches(pair.first), self.batches(pair.second)


@cache
def allowed(mechanism: Mechanism, adjacency: Adjacency, steps: int, epsilon: float) -> float:
    return PldAccountant(adjacency=adjacency).delta({mechanism: steps}, epsilon).delta


def attained(case: Case, steps: int, epsilon: float, pairs: list[Neighbours]) -> float:
    """The largest divergence over all neighbours and both directions."""
    ends = [case.mixtures(pair) for pair in pairs]
    return max(composed_hockey_stick(*way, epsilon, steps) for pair in ends for way in (pair, pair[::-1]))


def broken(case: Case, mechanism: Mechanism, steps: int, epsilons: list[float], pairs: list[Neighbours]) -> list[float]:
    """The epsilons at which some neighbours exceed what the accountant says of ``mechanism``."""
    error = ORACLE_ERROR if steps > 1 else 1e-13
    return [
        epsilon
        for epsilon in epsilons
        if attained(case, steps, epsilon, pairs) > allowed(mechanism, case.adjacency, steps, epsilon) + error
    ]


def fixed(noise: float, *, records: int = 7, said: int = 7, batch: int = 3) -> Case:
    return Case(
        mechanism=FixedSizeGaussian(dataset_size=said, batch_size=batch, noise_multiplier=noise),
        batches=lambda gradients: fixed_size_batches(gradients, batch, noise),
        records=records,
    )


def replaced(noise: float, *, records: int = 7, said: int = 7, batch: int = 3) -> Case:
    return Case(
        mechanism=FixedSizeGaussian(dataset_size=said, batch_size=batch, noise_multiplier=noise),
        batches=lambda gradients: fixed_size_batches(gradients, batch, noise),
        records=records,
        adjacency=REPLACE_ONE,
        relations=(Relation.REPLACE_ONE, Relation.ZERO_OUT),
    )


def redrawn(noise: float, *, records: int = 6, said: int = 6, batch: int = 4) -> Case:
    return Case(
        mechanism=FixedSizeWithReplacementGaussian(dataset_size=said, batch_size=batch, noise_multiplier=noise),
        batches=lambda gradients: with_replacement_batches(gradients, batch, noise),
        records=records,
    )


def poisson(noise: float, *, records: int = 6, said: int = 7, batch: int = 3) -> Case:
    return Case(
        mechanism=PoissonGaussian(dataset_size=said, batch_size=batch, noise_multiplier=noise),
        batches=lambda gradients: poisson_batches(gradients, batch / said, noise),
        records=records,
        relations=(Relation.ADD_REMOVE, Relation.ZERO_OUT),
    )


def truncated(noise: float, *, records: int = 7, said: int = 7, batch: int = 2, cap: int = 3) -> Case:
    return Case(
        mechanism=TruncatedPoissonGaussian(dataset_size=said, batch_size=batch, cap=cap, noise_multiplier=noise),
        batches=lambda gradients: truncated_poisson_batches(gradients, batch / said, cap, noise),
        records=records,
        relations=(Relation.ADD_REMOVE, Relation.ZERO_OUT),
    )


KINDS = [fixed, replaced, redrawn, poisson, truncated]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_neighbours_attain_what_one_step_is_said_to_cost_and_none_exceed_it(
    kind: Callable[..., Case], noise: float
) -> None:
    case = kind(noise)
    for epsilon in EPSILONS:
        worst, said = attained(case, 1, epsilon, case.neighbours()), allowed(case.mechanism, case.adjacency, 1, epsilon)
        assert worst <= said + 1e-13
        # Truncation is bounded from above only: the attacker is told whether the cap was reached.
        if kind is not truncated:
            assert said <= worst * (1 + 1e-3) + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbours_are_easier_to_tell_apart_than_two_steps_are_said_to_make_them(kind: Callable[..., Case]) -> None:
    case = kind(1.37)
    hardest = [pair for pair in case.neighbours() if pair.first[0] == -1.0 and pair.first[-1] != 0.0][:4]
    assert len(hardest) == 4
    assert broken(case, case.mechanism, 2, [0.11, 1.4], hardest) == []


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", [fixed, replaced, redrawn])
def test_a_larger_data_set_than_was_said_keeps_the_guarantee_of_fixed_size(
    kind: Callable[..., Case], noise: float
) -> None:
    case = kind(noise, records=7, said=5)
    assert broken(case, case.mechanism, 1, EPSILONS[::2], case.neighbours()) == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("records", [2, 4, 6])
@pytest.mark.parametrize("cap", [2, 3])
def test_a_smaller_data_set_than_was_said_keeps_the_guarantee_of_truncated_poisson(cap: int, records: int) -> None:
    for noise in NOISES:
        case = truncated(noise, records=records, said=8, cap=cap)
        assert broken(case, case.mechanism, 1, EPSILONS[::2], case.neighbours()) == []


@pytest.mark.parametrize("records", [2, 5, 8])
def test_poisson_sampling_keeps_its_guarantee_for_every_size(records: int) -> None:
    case = poisson(1.37, records=records)
    assert broken(case, case.mechanism, 1, EPSILONS[::2], case.neighbours()) == []


def test_two_steps_of_the_attained_worst_case_cost_what_the_accountant_says() -> None:
    case = fixed(1.37)
    worst = Neighbours(relation=Relation.ADD_REMOVE, first=(-1.0,) * 6 + (1.0,), second=(-1.0,) * 6)
    for epsilon in (0.11, 1.4):
        said = allowed(case.mechanism, ADD_REMOVE, 2, epsilon)
        assert said == pytest.approx(attained(case, 2, epsilon, [worst]), rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "steps"), [(fixed, 1), (fixed, 2), (replaced, 1), (redrawn, 1), (redrawn, 2), (poisson, 1), (poisson, 2)]
)
def test_the_check_would_catch_an_accountant_that_believes_in_two_percent_more_noise(
    kind: Callable[..., Case], steps: int
) -> None:
    case = kind(1.37)
    believed = case.mechanism.with_noise(1.37 * 1.02)
    background = 0.0 if kind is poisson else -1.0  # where the others hide nothing
    worst = [pair for pair in case.neighbours() if set(pair.first[:-1]) == {background} and pair.first[-1] == 1.0]
    assert broken(case, believed, steps, [0.57], worst) == [0.57]


def test_the_check_would_catch_fixed_size_batches_said_to_come_from_a_larger_data_set() -> None:
    case = fixed(1.37, records=6, said=7)
    assert broken(case, case.mechanism, 1, EPSILONS[:3], case.neighbours()) == EPSILONS[:3]


def test_the_check_would_catch_truncated_poisson_batches_accounted_as_plain_ones() -> None:
    case = truncated(1.37, records=5, said=5, batch=4, cap=4)
    believed = PoissonGaussian(dataset_size=5, batch_size=4, noise_multiplier=1.37)
    assert broken(case, case.mechanism, 1, EPSILONS, case.neighbours()) == []
    assert broken(case, believed, 1, EPSILONS, case.neighbours()) != []
