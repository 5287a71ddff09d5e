"""Who pays for which rounds: each client's own count, and what one account for all would make of it."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

from lrdp.accounting import Adjacency, FixedSizeGaussian, PldAccountant, RenyiAccountant, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput
from lrdp.experiments.sensitivity import ledgers
from lrdp.experiments.sensitivity.claims import CLAIMS, Compared, Meter
from lrdp.experiments.sensitivity.participation import Attendance, Pattern, attend

ALIKE = Pattern(rate_least=0.3, rate_most=0.3)
UNEQUAL = Pattern(rate_least=0.05, rate_most=0.95)
COMING = Pattern(rate_least=0.9, rate_most=0.9, stay=20, pause=40, lost=0.25)
FIXED = Meter(
    mechanism=FixedSizeGaussian(dataset_size=811, batch_size=37, noise_multiplier=2.3),
    accountant=RenyiAccountant(adjacency=Adjacency.ADD_REMOVE),
    local_steps=3,
    delta=1e-5,
)
SEEN = Attendance(rounds=40, charged=np.array([0, 7, 20, 33, 40]), arrived=np.array([0, 7, 19, 30, 40]))


def gap(name, meter=FIXED, seen=SEEN):
    return CLAIMS[name](meter, seen) - meter.of(seen.charged)


def test_rounds_are_taken_as_often_as_the_pattern_says():
    clients, rounds = 2000, 150
    seen = attend(ALIKE, clients, rounds, 5)
    assert seen.charged.mean() == pytest.approx(0.3 * rounds, abs=5 * math.sqrt(rounds * 0.21 / clients))
    assert (seen.arrived == seen.charged).all()
    coming = attend(COMING, clients, rounds, 5)
    assert coming.rate == pytest.approx(0.9 * 20 / 60, rel=0.05)
    assert coming.arrived.sum() == pytest.approx(0.75 * coming.charged.sum(), rel=0.02)
    assert (coming.arrived <= coming.charged).all()


def test_control_whoever_comes_and_goes_is_more_unequal_than_chance_in_each_round_would_make_it():
    assert attend(ALIKE, 2000, 150, 5).charged.var() == pytest.approx(150 * 0.21, rel=0.15)
    assert attend(COMING, 2000, 150, 5).charged.var() > 5 * 150 * 0.21


def test_the_average_undercharges_those_who_came_more_often_than_it():
    """By counting alone: ε grows with the rounds."""
    assert (np.sign(gap("average participation")) == [1, 1, 0, -1, -1]).all()


def test_every_round_undercharges_nobody():
    assert (gap("every round")[:-1] > 0).all()
    assert gap("every round")[-1] == 0


def test_amplification_undercharges_whoever_was_there_and_most_those_who_always_were():
    found = gap("amplified by client sampling")
    assert found[-1] == found.min() < -0.5
    assert found[0] > 0


def test_updates_that_arrived_forget_what_was_lost():
    assert (np.sign(gap("updates that arrived")) == [0, 0, -1, -1, 0]).all()


def test_control_with_full_participation_every_claim_is_true():
    full = Attendance(rounds=40, charged=np.full(3, 40), arrived=np.full(3, 40))
    for name in CLAIMS:
        assert (gap(name, seen=full) == 0).all(), name


def test_shares_of_clients_are_counted():
    found = Compared.of(np.array([1.0, 2.0, 5.0, 3.0]), np.array([2.0, 2.0, 2.0, 2.5]))
    assert (found.under, found.over, found.mean, found.least, found.most) == (0.25, 0.5, 0.625, -1.0, 3.0)


def test_the_meter_agrees_with_googles_accountant_where_both_know_the_mechanism():
    """A cap that is never reached is plain Poisson sampling."""
    step = TruncatedPoissonGaussian(dataset_size=811, batch_size=37, cap=811, noise_multiplier=1.1)
    ours = Meter(
        mechanism=step, accountant=PldAccountant(adjacency=Adjacency.ADD_REMOVE), local_steps=3, delta=1e-5
    ).one(20)
    theirs = PLDAccountant()
    theirs.compose(SelfComposedDpEvent(PoissonSampledDpEvent(37 / 811, GaussianDpEvent(1.1)), 60))
    assert ours == pytest.approx(theirs.get_epsilon(1e-5), rel=2e-3)


def test_patterns_that_make_no_sense_are_refused():
    with pytest.raises(InvalidInput, match="rate_least ≤ rate_most"):
        Pattern(rate_least=0.5, rate_most=0.4)
    with pytest.raises(InvalidInput, match="lost in"):
        Pattern(rate_least=0.5, rate_most=0.5, lost=1.0)


def test_real_ledgers_say_what_the_accountant_says_of_the_updates_that_left_each_client():
    small = ledgers.Small(clients=4, rounds=3, local_steps=2, epsilon=8.0)
    found = ledgers.run(small, Pattern(rate_least=0.5, rate_most=1.0, lost=0.3), 3)
    assert found["agreeing"] == 4
    assert found["verified"] >= 1
    assert sum(book["lost"] for book in found["books"]) > 0
    for book in found["books"]:
        assert book["charged_steps"] == 2 * book["trained"]
        assert book["guaranteed"] >= book["epsilon"]


def test_control_a_ledger_that_missed_a_round_would_not_agree():
    book = ledgers.Book(
        client="a",
        trained=5,
        lost=0,
        charged_steps=8,
        epsilon=FIXED.one(4),
        guaranteed=FIXED.one(4),
        expected=FIXED.one(5),
    )
    assert not book.agrees
