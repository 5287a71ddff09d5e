"""A person with several rows: every batch listed, none of their data sets is easier to tell apart than is said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lrdp.accounting import (
    Adjacency,
    Budget,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    GroupAccountant,
    History,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    PrivacySpent,
    RenyiAccountant,
    RenyiOrders,
    ReservedSlots,
    TruncatedPoissonGaussian,
    for_group,
)
from lrdp.accounting.mechanisms.rows_drawn import among_draws, among_subsets
from lrdp.accounting.privacy_loss import LossDistribution
from lrdp.errors import InvalidInput, Unsupported
from oracles.brute_force import (
    Mixture,
    fixed_size_batches,
    hockey_sticks,
    poisson_batches,
    truncated_poisson_batches,
    with_replacement_batches,
)

from .given import ADD_REMOVE, REPLACE_ONE, Bare, fixed_size, mechanisms

EPSILONS = (1e-3, 0.07, 0.41, 1.3, 3.7)
DELTA = 1e-5
PERSONS = [(1.0, 1.0), (1.0, -1.0), (1.0, 0.0), (1.0, 1.0, 1.0), (1.0, 1.0, -1.0)]
Batches = Callable[[tuple[float, ...]], Mixture]


def listed(kind: str, size: int, noise: float) -> tuple[Mechanism, Batches]:
    """A mechanism as it is accounted, and what it really does."""
    common: dict[str, Any] = {"dataset_size": size, "noise_multiplier": noise}
    if kind == "fixed":
        return FixedSizeGaussian(batch_size=3, **common), lambda rows: fixed_size_batches(rows, 3, noise)
    if kind == "redrawn":
        step = FixedSizeWithReplacementGaussian(batch_size=3, **common)
        return step, lambda rows: with_replacement_batches(rows, 3, noise)
    if kind == "poisson":
        return PoissonGaussian(batch_size=2, **common), lambda rows: poisson_batches(rows, 2 / size, noise)
    truncated = TruncatedPoissonGaussian(batch_size=2, cap=2 if kind == "cut" else 4, **common)
    return truncated, lambda rows: truncated_poisson_batches(rows, 2 / size, truncated.cap, noise)


@cache
def said(mechanism: Mechanism, rows: int) -> tuple[LossDistribution, LossDistribution]:
    pair = mechanism.group_pair(ADD_REMOVE, rows)
    return PldAccountant(adjacency=ADD_REMOVE).directions({Bare(pair=pair): 1}, 1e-15)


def compared(
    kind: str, noise: float, *, records: int = 7, believed_rows: int = 0, believed_noise: float = 1.0
) -> np.ndarray:
    """What is attained over what is said, for each person, background, direction and ε; data sets of ``records``."""
    mechanism, batches = listed(kind, 7, noise)
    found = []
    for person, other in itertools.product(PERSONS, (-1.0, 0.0)):
        background = (other,) * (records - len(person))
        if len(background) < 3:
            continue
        pair = batches((*background, *person)), batches(background)
        allowed = said(mechanism.with_noise(noise * believed_noise), believed_rows or len(person))
        for (first, second), distribution in zip((pair, pair[::-1]), allowed, strict=True):
            bounds = np.array([distribution.delta(epsilon) for epsilon in EPSILONS])
            found.append(hockey_sticks(first, second, EPSILONS) - bounds)
    return np.concatenate(found)


KINDS = ["fixed", "redrawn", "poisson", "cut", "seldom cut"]


@pytest.mark.parametrize("noise", [0.5, 1.7, 5.0])
@pytest.mark.parametrize("kind", KINDS)
def test_no_person_costs_more_than_is_said_of_as_many_rows(kind: str, noise: float) -> None:
    assert compared(kind, noise).max() <= 1e-13


@pytest.mark.parametrize("records", [5, 6])
@pytest.mark.parametrize("kind", ["poisson", "cut", "seldom cut"])
def test_nor_in_a_smaller_data_set_where_records_are_drawn_on_their_own(kind: str, records: int) -> None:
    assert compared(kind, 1.7, records=records).max() <= 1e-13


@pytest.mark.parametrize("kind", ["fixed", "redrawn"])
def test_nor_in_a_larger_one_where_the_size_is_fixed(kind: str) -> None:
    assert compared(kind, 1.7, records=8).max() <= 1e-13


@pytest.mark.parametrize("kind", ["fixed", "redrawn", "poisson", "seldom cut"])
def test_the_check_would_catch_a_pair_for_one_row_fewer(kind: str) -> None:
    assert compared(kind, 5.0, believed_rows=2).max() > 1e-4


@pytest.mark.parametrize("kind", ["fixed", "redrawn", "poisson"])
def test_the_pair_is_attained_so_the_check_would_catch_two_percent_more_noise(kind: str) -> None:
    assert compared(kind, 1.7, believed_noise=1.02).max() > 1e-5


def test_a_size_of_fixed_batches_that_is_not_kept_is_caught() -> None:
    assert compared("fixed", 1.7, records=6).max() > 1e-3


@given(rows=st.integers(1, 30), others=st.integers(1, 200), data=st.data())
def test_weights_of_subsets_are_hypergeometric_and_rounded_up(rows: int, others: int, data: st.DataObject) -> None:
    batch = data.draw(st.integers(1, others))
    size = rows + others
    truth = [
        Fraction(math.comb(rows, j) * math.comb(others, batch - j), math.comb(size, batch))
        for j in range(1, min(rows, batch) + 1)
    ]
    assume(sum(truth) < 1 - 2e-6)
    weights = among_subsets(rows, size, batch)
    assert all(each < 3e-22 for each in truth[len(weights) :])
    for weight, exact in zip(weights, truth, strict=False):
        assert exact <= Fraction(weight) <= exact * (1 + Fraction(1, 10**10))


@given(rows=st.integers(1, 60), probability=st.floats(1e-5, 0.2))
def test_weights_of_draws_are_binomial_and_rounded_up(rows: int, probability: float) -> None:
    chance = Fraction(probability)
    for j, weight in enumerate(among_draws(rows, probability), start=1):
        exact = math.comb(rows, j) * chance**j * (1 - chance) ** (rows - j)
        assert exact <= Fraction(weight) <= exact * (1 + Fraction(1, 10**10))


@settings(max_examples=8)
@given(mechanism=mechanisms(renyi=False), rows=st.integers(2, 4), steps=st.integers(1, 40))
def test_more_rows_never_cost_less_and_one_row_costs_what_a_record_does(
    mechanism: Mechanism, rows: int, steps: int
) -> None:
    history = {mechanism: steps}
    fewer, more = (GroupAccountant(adjacency=ADD_REMOVE, rows=k).epsilon(history, DELTA).epsilon for k in (1, rows))
    assert fewer <= PldAccountant(adjacency=ADD_REMOVE).epsilon(history, DELTA).epsilon
    # Truncated Poisson's pair of one row is finer than that of several: compare what is said of the same kind of pair.
    assert more >= fewer * (1 - 1e-6)


def test_the_pair_costs_much_less_than_the_formula() -> None:
    history: dict[Mechanism, int] = {fixed_size(6.0): 10_000}
    for rows, pair, formula in ((3, 14.199, 18.861), (5, 27.847, 44.320)):
        group = GroupAccountant(adjacency=ADD_REMOVE, rows=rows)
        assert group.epsilon(history, DELTA).epsilon == pytest.approx(pair, abs=1e-3)
        assert group.by_formula(history, DELTA).epsilon == pytest.approx(formula, abs=1e-3)


def test_the_formula_at_one_delta_is_the_definition_applied_k_times() -> None:
    history: dict[Mechanism, int] = {fixed_size(6.0): 10_000}
    found = GroupAccountant(adjacency=ADD_REMOVE, rows=3).by_formula(history, DELTA)
    one = RenyiAccountant(adjacency=ADD_REMOVE).delta(history, found.epsilon / 3)
    again = for_group(one, 3)
    assert again.epsilon == pytest.approx(found.epsilon)
    assert again.delta <= DELTA * (1 + 1e-6)


def test_replaced_rows_are_accounted_by_the_formula_and_whole_data_sets_by_their_shift() -> None:
    group = GroupAccountant(adjacency=REPLACE_ONE, rows=3)
    history: dict[Mechanism, int] = {fixed_size(9.0): 100}
    assert group.epsilon(history, DELTA) == group.by_formula(history, DELTA)
    whole: dict[Mechanism, int] = {Gaussian(noise_multiplier=60.0): 100}
    shifted: dict[Mechanism, int] = {Gaussian(noise_multiplier=20.0): 100}
    for adjacency in Adjacency:
        together = GroupAccountant(adjacency=adjacency, rows=3).epsilon(whole, DELTA).epsilon
        assert together == pytest.approx(PldAccountant(adjacency=adjacency).epsilon(shifted, DELTA).epsilon, rel=1e-9)


def test_where_no_way_is_open_the_answer_is_infinity_and_what_has_no_bound_is_refused() -> None:
    half = FixedSizeWithReplacementGaussian(dataset_size=40, batch_size=30, noise_multiplier=3.0)
    group = GroupAccountant(adjacency=ADD_REMOVE, rows=39)
    assert group.epsilon({half: 3}, DELTA).epsilon == math.inf
    assert group.delta({half: 3}, 1.0).delta == 1.0
    with pytest.raises(Unsupported, match="replace-one"):
        GroupAccountant(adjacency=REPLACE_ONE, rows=2).epsilon({half: 3}, DELTA)
    with pytest.raises(Unsupported, match="too few for a batch"):
        among_subsets(5, 9, 5)
    with pytest.raises(InvalidInput, match="rows"):
        GroupAccountant(adjacency=ADD_REMOVE, rows=0)


def test_slots_are_paid_for_by_all_rows_together_and_orders_by_the_formula() -> None:
    budget, step = Budget(epsilon=8.0, delta=DELTA), fixed_size(6.0)
    slots = ReservedSlots(slots={step: 1000})
    used: History = {step: 10}
    together = slots.guaranteed_to_group(budget, ADD_REMOVE, used, 3)
    assert together == GroupAccountant(adjacency=ADD_REMOVE, rows=3).epsilon({step: 1000}, DELTA)
    assert slots.guaranteed_to_group(budget, ADD_REMOVE, used, 1) == slots.guaranteed(budget, ADD_REMOVE, used)
    beyond: History = {step: 1001}
    assert slots.guaranteed_to_group(budget, ADD_REMOVE, beyond, 3).epsilon > together.epsilon
    orders = RenyiOrders(weights={9.0: 1.0})
    one: PrivacySpent = orders.guaranteed(budget, ADD_REMOVE, used)
    assert orders.guaranteed_to_group(budget, ADD_REMOVE, used, 3) == for_group(one, 3)
