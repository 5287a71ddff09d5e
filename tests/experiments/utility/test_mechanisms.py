"""What a method's parts stand for, held against numbers that other code gives."""

import math

import pytest
from scipy.stats import binom

from lrdp.accounting import FixedSizeGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput
from lrdp.experiments.utility import opacus_noise
from lrdp.experiments.utility.mechanisms import calibrated, check_parts, records_held, step_of
from lrdp.training.sampling import check_room

PARTS = {
    "sampling": "fixed-size",
    "accountant": "rdp",
    "cap_deviations": 0.0,
    "most_cut": 1.0,
    "decimals": 0,
    "dataset_size": 1499,
    "batch_size": 300,
    "steps": 20,
    "epsilon": 4.0,
    "delta": 1e-5,
}
POISSON = {"sampling": "truncated-poisson", "accountant": "pld", "cap_deviations": 5.0}


def parts(**changes):
    return {**PARTS, **changes}


@pytest.fixture(autouse=True)
def _as_coarse_as_opacus_is(monkeypatch):
    """The study asks it for more digits, which takes ten times as long."""
    monkeypatch.setattr(opacus_noise, "FINE", opacus_noise.Fineness(tolerance=0.01, prv_error=0.01))


def delta_of_others(noise, epsilon):
    """By the accountant of another library, for plain Poisson sampling."""
    from dp_accounting.pld import privacy_loss_distribution as others

    step = others.from_gaussian_mechanism(noise, sampling_prob=300 / 1499, value_discretization_interval=1e-3)
    return step.self_compose(20).get_delta_for_epsilon(epsilon)


@pytest.mark.parametrize("accountant", ["opacus-prv", "pld"])
def test_poisson_noise_is_what_another_library_asks_for(accountant):
    found = calibrated(parts(**{**POISSON, "cap_deviations": 8.0, "accountant": accountant}))
    assert 0.9e-5 < delta_of_others(found["noise_multiplier"], 4.0) < 1.02e-5
    assert delta_of_others(found["noise_multiplier"] * 0.95, 4.0) > 1.5e-5  # control: a twentieth less is told apart


def test_truncated_poisson_needs_the_noise_of_opacuss_prv_and_fixed_size_twice_that():
    prv = calibrated(parts(**{**POISSON, "cap_deviations": 8.0, "accountant": "opacus-prv"}))
    truncated, fixed = calibrated(parts(**POISSON)), calibrated(parts(accountant="pld"))
    assert truncated["noise_multiplier"] <= 1.001 * prv["noise_multiplier"]
    assert truncated["noise_multiplier"] >= 0.99 * prv["noise_multiplier"]
    assert fixed["noise_multiplier"] == pytest.approx(2 * truncated["noise_multiplier"], rel=1e-3)


@pytest.mark.parametrize("changes", [{}, {"accountant": "pld"}, POISSON, {**POISSON, "accountant": "opacus-rdp"}])
def test_nobody_spends_more_than_the_budget_by_its_own_books(changes):
    found = calibrated(parts(**changes))
    assert 3.99 < found["epsilon_own"] <= 4.0
    assert found["epsilon_pld"] <= 4.0 + 1e-3
    assert found["epsilon_rdp"] >= found["epsilon_pld"]


def test_noise_of_so_many_decimals_is_rounded_up_and_judged_as_it_is():
    exact, stated = calibrated(parts()), calibrated(parts(decimals=2))
    assert stated["noise_multiplier"] == math.ceil(exact["noise_multiplier"] * 100) / 100
    assert stated["epsilon_own"] < exact["epsilon_own"]


def test_the_cap_is_so_many_deviations_above_the_batch_and_its_cut_is_the_binomial_tail():
    found = calibrated(parts(**POISSON))
    assert found["rows"] == math.ceil(300 + 5 * math.sqrt(300))
    assert found["cut_probability"] == pytest.approx(binom.sf(found["rows"] - 1, 1498, 300 / 1499), rel=1e-6)


def test_a_cap_that_cuts_more_often_than_asked_for_is_refused():
    with pytest.raises(InvalidInput, match="take more cap_deviations"):
        calibrated(parts(**POISSON, most_cut=1e-12))


@pytest.mark.parametrize("sampling", ["fixed-size", "truncated-poisson"])
def test_a_neighbour_of_every_clients_data_set_would_be_trained_as_well(sampling):
    step = step_of(parts(sampling=sampling, cap_deviations=5.0, noise_multiplier=1.3))
    held = records_held(sampling, 1499)
    check_room(step, held)
    with pytest.raises(InvalidInput):
        check_room(step, 1499)  # control: the stated size itself leaves no record to spare


def test_steps_are_of_the_kind_that_is_named():
    assert isinstance(step_of(parts(noise_multiplier=1.0)), FixedSizeGaussian)
    assert isinstance(step_of(parts(**POISSON, noise_multiplier=1.0)), TruncatedPoissonGaussian)


@pytest.mark.parametrize(("sampling", "accountant"), [("shuffling", "rdp"), ("fixed-size", "moments")])
def test_a_part_that_nothing_stands_for_is_named(sampling, accountant):
    with pytest.raises(InvalidInput, match="must be one of"):
        check_parts(sampling, accountant)
