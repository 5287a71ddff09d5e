"""A fleet is many accountants at once: the same numbers, and books that cannot be mixed up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lrdp.accounting import Adjacency, Fleet, Mechanism, PldAccountant, RenyiAccountant
from lrdp.accounting.conversion import ORDERS, epsilon_at
from lrdp.errors import InvalidInput

from .given import ADD_REMOVE, NEVER_A_PROBABILITY, REPLACE_ONE, deltas, fixed_size, histories, sampled

BOOKS = {"starts": [0, 2, 2, 3], "numbers": [0, 1, 0], "steps": [5, 7, 11]}


def fleet(**changes: Any) -> Fleet:
    arrays = {name: np.array(value) for name, value in {**BOOKS, **changes}.items()}
    return Fleet(adjacency=ADD_REMOVE, mechanisms=(fixed_size(1.3), fixed_size(2.9)), **arrays)


@pytest.mark.parametrize("adjacency", [ADD_REMOVE, REPLACE_ONE])
@settings(max_examples=25)
@given(data=st.data(), delta=deltas)
def test_every_client_costs_what_an_accountant_says_on_the_fleets_orders(
    adjacency: Adjacency, data: st.DataObject, delta: float
) -> None:
    clients = data.draw(st.lists(st.one_of(st.just({}), histories(adjacency=adjacency, most=3)), max_size=5))
    accountant = RenyiAccountant(adjacency=adjacency)
    epsilons = Fleet.from_histories(clients, adjacency).epsilons(delta)
    assert len(epsilons) == len(clients)
    for epsilon, history in zip(epsilons, clients, strict=True):
        if not history:
            assert epsilon == 0.0
            continue
        on_grid = epsilon_at(accountant.divergence(history, ORDERS), ORDERS, delta).min()
        assert epsilon == pytest.approx(on_grid, rel=1e-9, abs=1e-12)
        searched = accountant.epsilon(history, delta).epsilon
        assert searched * (1 - 2e-4) - 1e-12 <= epsilon <= searched * 1.1 + 0.02


def test_mechanisms_are_kept_once_however_many_clients_run_them() -> None:
    books = Fleet.from_histories([{fixed_size(1.3): 5, fixed_size(2.9): 7}, {}, {fixed_size(1.3): 11}], ADD_REMOVE)
    assert books.mechanisms == (fixed_size(1.3), fixed_size(2.9))
    assert len(books) == 3
    for name, expected in BOOKS.items():
        assert getattr(books, name).tolist() == expected
    assert books.curves().shape == (2, len(ORDERS))


def test_a_client_that_lists_a_mechanism_twice_pays_for_both() -> None:
    twice = fleet(starts=[0, 2], numbers=[1, 1], steps=[30, 12])
    once = fleet(starts=[0, 1], numbers=[1], steps=[42])
    assert twice.epsilons(1e-5) == pytest.approx(once.epsilons(1e-5), rel=1e-12)


def test_a_fleet_larger_than_one_chunk_is_the_sum_of_its_clients() -> None:
    kinds = tuple(fixed_size(noise) for noise in (1.3, 2.9, 7.7))
    generator = np.random.default_rng(20240229)
    sizes = generator.integers(0, 4, 40_000)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    numbers, steps = generator.integers(0, 3, starts[-1]), generator.integers(1, 5000, starts[-1])
    books = Fleet(adjacency=ADD_REMOVE, mechanisms=kinds, starts=starts, numbers=numbers, steps=steps)
    epsilons = books.epsilons(1e-6)
    assert (epsilons[sizes == 0] == 0).all()
    assert (epsilons[sizes > 0] > 0).all()
    for client in (0, 1, 16_383, 16_384, 16_385, 32_768, 39_999):
        history: dict[Mechanism, int] = {}
        for entry in range(starts[client], starts[client + 1]):
            history[kinds[numbers[entry]]] = history.get(kinds[numbers[entry]], 0) + int(steps[entry])
        (alone,) = Fleet.from_histories([history], ADD_REMOVE).epsilons(1e-6)
        assert epsilons[client] == pytest.approx(alone, rel=1e-12)


def test_a_fleet_without_clients_or_without_steps_costs_nothing() -> None:
    assert Fleet.from_histories([], ADD_REMOVE).epsilons(1e-5).tolist() == []
    assert Fleet.from_histories([{}, {}], ADD_REMOVE).epsilons(1e-5).tolist() == [0.0, 0.0]
    assert len(Fleet.from_histories([], ADD_REMOVE)) == 0


@pytest.mark.parametrize(
    "changes",
    [
        {"starts": []},
        {"starts": [1, 2, 2, 3]},
        {"starts": [0, 2, 2, 2]},
        {"starts": [0, 2, 2, 4]},
        {"starts": [0, 3, 2, 3]},
        {"numbers": [0, 1]},
        {"steps": [5, 7]},
        {"numbers": [0, 2, 0]},
        {"numbers": [0, -1, 0]},
        {"steps": [5, 0, 11]},
        {"steps": [5, -7, 11]},
    ],
)
def test_books_that_do_not_add_up_are_refused(changes: dict) -> None:
    with pytest.raises(InvalidInput, match=r"starts must|numbers must|steps must"):
        fleet(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"steps": [5.0, 7.5, 11.0]},
        {"steps": [5.0, float("nan"), 11.0]},
        {"steps": [5.0, float("inf"), 11.0]},
        {"numbers": [0.0, 0.5, 0.0]},
        {"numbers": [0.0, float("nan"), 0.0]},
        {"starts": [0.0, 1.5, 2.0, 3.0]},
        {"starts": [0.0, float("nan"), 2.0, 3.0]},
    ],
)
def test_books_of_fractions_are_refused(changes: dict) -> None:
    with pytest.raises(InvalidInput, match=r"starts|numbers|steps"):
        fleet(**changes)


@pytest.mark.parametrize("steps", [0, -3, 2.7, float("nan"), float("inf"), "11", None])
def test_histories_of_steps_that_are_no_count_are_refused_and_never_rounded_down(steps: Any) -> None:
    with pytest.raises(InvalidInput, match="steps must"):
        Fleet.from_histories([{fixed_size(1.3): steps}], ADD_REMOVE)


@pytest.mark.parametrize("value", NEVER_A_PROBABILITY)
def test_a_delta_that_is_no_probability_is_refused_with_the_value(value: float) -> None:
    with pytest.raises(InvalidInput, match=f"got {value}"):
        fleet().epsilons(value)


def test_a_step_without_a_bound_costs_infinity_and_hides_nobody_elses_figure() -> None:
    bounded: dict[Mechanism, int] = {fixed_size(1.3): 3}
    for adjacency, unbounded in ((ADD_REMOVE, sampled(1.3)[1]), (REPLACE_ONE, sampled(1.3)[2])):
        alone = Fleet.from_histories([bounded], adjacency).epsilons(1e-5)
        histories: list[dict[Mechanism, int]] = [{unbounded: 3}, bounded, {**bounded, unbounded: 1}, {}]
        epsilons = Fleet.from_histories(histories, adjacency).epsilons(1e-5)
        assert epsilons.tolist() == [np.inf, alone[0], np.inf, 0.0]


def test_a_fleets_epsilon_holds_because_it_is_never_below_the_loss_distributions() -> None:
    clients: list[dict[Mechanism, int]] = [
        {fixed_size(4.427): 10_000},
        {fixed_size(1.9, n=6734, batch=32): 3165, fixed_size(6.1): 500},
    ]
    epsilons = Fleet.from_histories(clients, ADD_REMOVE).epsilons(1e-5)
    for epsilon, history in zip(epsilons, clients, strict=True):
        assert epsilon >= PldAccountant(adjacency=ADD_REMOVE).epsilon(history, 1e-5).epsilon
