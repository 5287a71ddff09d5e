"""A plan: every option keeps the budget, and the recommended one is the quietest with constant memory."""

from __future__ import annotations

from typing import Any

import pytest

from lrdp.accounting import Adjacency, Budget, Mechanism, Option, Plan, Training, TruncatedPoissonGaussian, options
from lrdp.errors import InvalidInput

from .given import NEVER_A_COUNT

BUDGET = Budget(epsilon=2.0, delta=1e-5)


@pytest.fixture(scope="module")
def plan() -> Plan:
    """The paper's CIFAR-10 client."""
    training = Training(dataset_size=5000, batch_size=128, rounds=250, local_steps=40, budget=BUDGET)
    return Plan(training=training, options=tuple(options(training)))


def steps_taken(plan: Plan, option: Option, rounds: int) -> float:
    history: dict[Mechanism, int] = {option.mechanism: rounds * plan.training.local_steps}
    return option.accountant.epsilon(history, plan.training.budget.delta).epsilon


def test_every_option_keeps_the_budget_over_the_planned_rounds(plan: Plan) -> None:
    assert plan.training.steps == 10_000
    for option in plan.options:
        assert 0 < option.spent.epsilon <= 2.0
        assert option.spent.delta == 1e-5
        assert option.rounds_affordable >= 250
        assert 0 < option.one_round.epsilon < option.spent.epsilon


def test_no_option_affords_a_round_more_than_it_says(plan: Plan) -> None:
    for option in plan.options:
        assert steps_taken(plan, option, option.rounds_affordable) <= 2.0
        assert steps_taken(plan, option, option.rounds_affordable + 1) > 2.0


def test_the_first_option_is_the_papers_and_the_table_says_what_it_needs(plan: Plan) -> None:
    paper = plan.options[0]
    assert paper.label == "fixed-size / rdp"
    assert paper.mechanism.noise_multiplier == pytest.approx(11.135, rel=0.005)
    assert paper.rounds_at_equal_noise == paper.rounds_affordable


def test_truncated_poisson_by_loss_distribution_is_recommended_and_halves_the_noise(plan: Plan) -> None:
    best, paper = plan.recommended, plan.options[0]
    assert best.label == "truncated-poisson / pld"
    assert best.mechanism.rows == 128
    assert best.mechanism.noise_on_mean < 0.55 * paper.mechanism.noise_on_mean
    assert best.rounds_at_equal_noise > 3 * paper.rounds_at_equal_noise
    for word in ("truncated-poisson / pld", "128 rows", "at most 5000 records"):
        assert word in plan.reason


def test_nothing_with_constant_memory_is_quieter_than_what_is_recommended(plan: Plan) -> None:
    bounded = [option for option in plan.options if option.mechanism.rows is not None]
    usual = [option.mechanism for option in bounded if option.accountant.adjacency is Adjacency.ADD_REMOVE]
    assert len(usual) > 1
    assert min(step.noise_on_mean for step in usual) == plan.recommended.mechanism.noise_on_mean


def test_no_option_holds_more_rows_than_the_batch_but_plain_poisson(plan: Plan) -> None:
    for option in plan.options:
        assert option.mechanism.rows == (None if option.mechanism.name == "poisson" else 128)


def test_the_plan_compares_every_mechanism_and_accountant_under_its_own_name(plan: Plan) -> None:
    labels = [option.label for option in plan.options]
    assert len(set(labels)) == len(labels)
    assert set(labels) >= {
        "fixed-size / rdp",
        "fixed-size / taylor",
        "fixed-size / pld",
        "fixed-size / rdp / replace-one",
        "fixed-size / pld / replace-one",
        "fixed-size-with-replacement / pld",
        "truncated-poisson / rdp",
        "truncated-poisson / pld",
        "poisson / rdp",
        "poisson / pld",
    }


def test_at_equal_noise_every_option_has_the_papers_noise_on_the_mean(plan: Plan) -> None:
    wanted = plan.options[0].mechanism.noise_on_mean
    for option in plan.options:
        equal = plan.at_equal_noise(option)
        assert equal.noise_on_mean == pytest.approx(wanted, rel=1e-12)
        assert equal.with_noise(1.0) == option.mechanism.with_noise(1.0)


def test_truncated_options_choose_an_expected_batch_below_the_cap(plan: Plan) -> None:
    chosen = [option.mechanism for option in plan.options if isinstance(option.mechanism, TruncatedPoissonGaussian)]
    assert len(chosen) == 2
    assert all(64 < mechanism.batch_size < mechanism.cap == 128 for mechanism in chosen)


@pytest.mark.parametrize("field", ["dataset_size", "batch_size", "rounds", "local_steps"])
@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_a_training_of_numbers_that_are_no_counts_is_refused(field: str, value: Any) -> None:
    numbers: dict[str, Any] = {"dataset_size": 5000, "batch_size": 128, "rounds": 250, "local_steps": 40}
    with pytest.raises(InvalidInput, match=f"{field} must"):
        Training(**{**numbers, field: value}, budget=BUDGET)


@pytest.mark.parametrize("batch_size", [5000, 6000])
def test_a_batch_of_all_records_is_refused(batch_size: int) -> None:
    with pytest.raises(InvalidInput, match="batch_size must be below dataset_size=5000"):
        Training(dataset_size=5000, batch_size=batch_size, rounds=1, local_steps=1, budget=BUDGET)
