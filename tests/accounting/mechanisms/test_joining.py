"""One step for many: what stands for steps of several kinds costs at least as much as each of them."""

from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import pytest

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    SampledGaussian,
    TruncatedPoissonGaussian,
    costliest_of,
)
from lrdp.errors import InvalidInput, Unsupported

ORDERS = np.array([1.05, 1.5, 2.0, 3.7, 11.0, 64.0])
STEPS: list[Mechanism] = [
    FixedSizeGaussian(dataset_size=5003, batch_size=127, noise_multiplier=1.3),
    FixedSizeGaussian(dataset_size=911, batch_size=41, noise_multiplier=3.1),
    TruncatedPoissonGaussian(dataset_size=4999, batch_size=97, cap=131, noise_multiplier=0.9),
    PoissonGaussian(dataset_size=700, batch_size=90, noise_multiplier=1.7),
    Gaussian(noise_multiplier=2.3),
]


def costs_no_more(step: Mechanism, bound: Mechanism, adjacency: Adjacency) -> bool:
    exact, loss = RenyiAccountant(adjacency=adjacency), PldAccountant(adjacency=adjacency)
    below = exact.divergence({step: 1}, ORDERS) <= exact.divergence({bound: 1}, ORDERS) * (1 + 1e-8)
    deltas = [(loss.delta({each: 1}, epsilon).delta for each in (step, bound)) for epsilon in (0.2, 0.7, 1.5)]
    return bool(below.all()) and all(mine <= limit * 1.01 + 1e-12 for mine, limit in deltas)


@pytest.mark.parametrize("pair", list(combinations(STEPS, 2)), ids=lambda pair: " ".join(each.name for each in pair))
def test_one_step_costs_at_least_as_much_as_each_of_two(pair: tuple[Mechanism, Mechanism]) -> None:
    bound = costliest_of(pair)
    assert all(costs_no_more(step, bound, Adjacency.ADD_REMOVE) for step in pair)


def test_also_under_replace_one() -> None:
    steps = [STEPS[0], STEPS[1], STEPS[4]]
    assert all(costs_no_more(step, costliest_of(steps), Adjacency.REPLACE_ONE) for step in steps)


def test_control_the_one_with_the_least_noise_alone_would_not_do() -> None:
    noisy_but_likely = FixedSizeGaussian(dataset_size=911, batch_size=410, noise_multiplier=1.4)
    assert not costs_no_more(noisy_but_likely, STEPS[0], Adjacency.ADD_REMOVE)


def test_control_the_whole_data_set_with_all_of_the_noise_would_not_do() -> None:
    nearly_all = FixedSizeGaussian(dataset_size=1000, batch_size=999, noise_multiplier=2.3)
    assert not costs_no_more(nearly_all, Gaussian(noise_multiplier=2.3), Adjacency.ADD_REMOVE)
    assert costs_no_more(nearly_all, costliest_of([nearly_all, STEPS[4]]), Adjacency.ADD_REMOVE)


def test_a_single_step_stands_for_itself() -> None:
    assert costliest_of([STEPS[2], STEPS[2]]) == STEPS[2]


def test_what_was_not_proved_is_refused() -> None:
    with pytest.raises(Unsupported, match="no bound is proved"):
        costliest_of(
            [STEPS[0], FixedSizeWithReplacementGaussian(dataset_size=500, batch_size=20, noise_multiplier=2.0)]
        )
    with pytest.raises(InvalidInput, match="at least one step"):
        costliest_of([])


def test_a_new_kind_is_compared_with_no_other_until_it_says_how_far_a_record_moves_the_sum() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Louder(SampledGaussian):
        name: ClassVar[str] = "louder"

    sizes = {"dataset_size": 5000, "batch_size": 128}
    with pytest.raises(Unsupported, match="cannot be compared"):
        costliest_of([Louder(noise_multiplier=8.0, **sizes), FixedSizeGaussian(noise_multiplier=9.0, **sizes)])
