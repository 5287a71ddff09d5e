"""Truncated Poisson where sizes are held together in runs: in one step, in several, and at Rényi orders.

Up to nine records (test_every_size.py) nearly every size has a row of its own; here a run has up to a dozen, and
batches are counted instead of listed. Sizes, others and directions are all tried; at none is less said than is true.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from lrdp.accounting import Mechanism, RenyiAccountant
from lrdp.accounting.mechanisms.cut_batches import cuts
from oracles.brute_force import Mixture, Values, hockey_sticks
from oracles.cut_batches import (
    Masses,
    counted_batches,
    hockey_sticks_from_below,
    in_pieces,
    renyi_divergence,
    taken_together,
)

from .given import ADD_REMOVE
from .test_every_size import EPSILONS, believing, said, truncated

Setting = tuple[int, int, int]
SETTINGS: list[Setting] = [(16, 1, 1), (15, 2, 2), (14, 3, 4), (13, 5, 5), (12, 2, 4), (16, 6, 8)]
SETTINGS += [(60, 1, 1), (48, 5, 6)]
NOISES = (0.33, 0.8, 1.9, 6.0)
CASES = list(itertools.product(SETTINGS, NOISES))
ORDERS = (1.25, 2.0, 3.7, 8.0, 21.0)
OTHERS = ({-1.0: 1}, {0.0: 1}, {-1.0: 1, 0.0: 1}, {-1.0: 3, 1.0: 1})
"""Of what the other records are, in shares."""
ORACLE_ERROR = 1e-13


@cache
def ends(records: int, lot: int, setting: Setting, noise: float) -> tuple[Mixture, Mixture]:
    """With and without a record of +1 among others of that lot."""
    size, batch, cap = setting
    shares = list(Counter(OTHERS[lot]).elements())
    others = Counter(shares[index % len(shares)] for index in range(records - 1))
    without, present = dict(others), dict(others + Counter([1.0]))
    return tuple(counted_batches(each, batch / size, cap, noise) for each in (present, without))  # type: ignore[return-value]


def neighbours(setting: Setting, noise: float, sizes: range) -> Iterator[tuple[Mixture, Mixture]]:
    for records, lot in itertools.product(sizes, range(len(OTHERS))):
        yield ends(records, lot, setting, noise)


def every(setting: Setting) -> range:
    return range(2, setting[0] + 1)


# ---------------------------------------- one step
def shortfalls(believed: Mechanism, setting: Setting, noise: float) -> Values:
    """What some data set attains beyond what is said, at each ε in both directions."""
    allowed = [np.array([one.delta(epsilon) for epsilon in EPSILONS]) for one in said(believed)]
    return np.array(
        [
            hockey_sticks(*way, EPSILONS) - bounds
            for pair in neighbours(setting, noise, every(setting))
            for way, bounds in zip((pair, pair[::-1]), allowed, strict=True)
        ]
    )


@pytest.mark.one_in(16, begin=2)
@pytest.mark.parametrize(("setting", "noise"), CASES)
def test_no_data_set_costs_more_than_is_said_in_one_step(setting: Setting, noise: float) -> None:
    short = shortfalls(truncated(setting, noise), setting, noise)
    assert short.size == 40 * (setting[0] - 1)
    assert short.max() <= ORACLE_ERROR


# ---------------------------------------- Rényi orders
def moments_below(believed: Mechanism, setting: Setting, noise: float) -> Values:
    """By how much what is said of log A, (order - 1) times the divergence, is exceeded."""
    orders = np.array(ORDERS)
    allowed = RenyiAccountant(adjacency=ADD_REMOVE).divergence({believed: 1}, orders)
    found = [
        [renyi_divergence(*way, order) for order in ORDERS]
        for pair in neighbours(setting, noise, every(setting))
        for way in (pair, pair[::-1])
    ]
    return (np.array(found) - allowed) * (orders - 1)


@pytest.mark.one_in(16, begin=3)
@pytest.mark.parametrize(("setting", "noise"), CASES)
def test_no_data_set_has_a_larger_moment_than_is_said(setting: Setting, noise: float) -> None:
    short = moments_below(truncated(setting, noise), setting, noise)
    assert short.size == 40 * (setting[0] - 1)
    assert short.max() <= ORACLE_ERROR


# ---------------------------------------- two and three steps
COMPOSED = list(itertools.product(SETTINGS[:6], (0.33, 0.8, 1.9)))


def composed_shortfalls(believed: Mechanism, setting: Setting, noise: float) -> Values:
    """The same for two and three steps; what is attained is counted from below, so nothing is allowed for."""
    allowed = {steps: [one.deltas(np.array(EPSILONS)) for one in said(believed, steps)] for steps in (2, 3)}
    found = []
    for pair in neighbours(setting, noise, every(setting)):
        one = in_pieces(*pair)
        two = taken_together(one, one)
        for steps, seen in ((2, two), (3, taken_together(two, one))):
            for way, bounds in zip((seen, Masses(*seen[::-1])), allowed[steps], strict=True):
                found.append(hockey_sticks_from_below(way, EPSILONS) - bounds)
    return np.array(found)


@pytest.mark.one_in(18, begin=10)
@pytest.mark.parametrize(("setting", "noise"), COMPOSED)
def test_nor_in_two_or_three_steps(setting: Setting, noise: float) -> None:
    short = composed_shortfalls(truncated(setting, noise), setting, noise)
    assert short.size == 80 * (setting[0] - 1)
    assert short.max() <= ORACLE_ERROR


def test_the_points_are_as_many_as_the_page_of_results_says() -> None:
    assert 40 * sum(setting[0] - 1 for setting, _ in CASES) == 29_760
    assert 80 * sum(setting[0] - 1 for setting, _ in COMPOSED) == 19_200


@pytest.mark.parametrize("setting", SETTINGS)
def test_sizes_do_share_rows_here(setting: Setting) -> None:
    size, batch, cap = setting
    assert len(cuts(size, batch / size, cap).weights) - 1 < size - cap


# ---------------------------------------- what would be found
LOUD, QUIET = ((16, 1, 1), 0.33), ((16, 1, 1), 6.0)


@pytest.mark.parametrize(("setting", "noise"), [LOUD, ((13, 5, 5), 1.9), ((60, 1, 1), 0.8)])
def test_control_a_bound_for_the_stated_size_alone_is_found(setting: Setting, noise: float) -> None:
    alone = believing(truncated(setting, noise), rows=slice(1, 2))
    assert shortfalls(alone, setting, noise).max() > 1e-4


def test_control_so_it_is_in_several_steps_and_at_renyi_orders() -> None:
    alone = believing(truncated(*LOUD), rows=slice(1, 2))
    assert composed_shortfalls(alone, *LOUD).max() > 1e-4
    alone = believing(truncated(*QUIET), rows=slice(1, 2))
    assert moments_below(alone, *QUIET).max() > 1e-4


def test_control_the_stated_size_and_those_that_are_never_cut_are_not_enough() -> None:
    """What lies between them, in runs, is the worst where there is much noise."""
    forgetful = believing(truncated(*QUIET), rows=slice(0, 2))
    assert shortfalls(forgetful, *QUIET).max() > 1e-7
    assert moments_below(forgetful, *QUIET).max() > 1e-5


def test_control_a_record_that_enters_one_percent_less_often_is_found() -> None:
    believed = believing(truncated(*QUIET), enter=0.99)
    assert shortfalls(believed, *QUIET).max() > 1e-5
    assert moments_below(believed, *QUIET).max() > 1e-5
    assert composed_shortfalls(believed, *QUIET).max() > 1e-5


def test_control_a_record_that_displaces_others_three_percent_less_often_is_found() -> None:
    setting, noise = (13, 5, 5), 6.0
    believed = believing(truncated(setting, noise), swap=0.97)
    assert shortfalls(believed, setting, noise).max() > 1e-4
    assert composed_shortfalls(believed, setting, noise).max() > 1e-4
