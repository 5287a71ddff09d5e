"""What a task may say of its trials: at which ε, with which methods, and by whose rates. Each with its control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lrdp.errors import InvalidInput
from lrdp.experiments import utility
from lrdp.experiments.study import Results, read_settings
from lrdp.experiments.study.settings import laid_over

SETTINGS = Path(__file__).parents[3] / "experiments" / "models.toml"


def planned(model="cnn", **changes):
    """A plan, and results as if data and noise were known and the larger rate were the better one."""
    tables = laid_over(read_settings(SETTINGS, quick=False), {"only_models": [model], **changes})
    study: Any = utility.study(tables)
    plan, results = study.plan, Results()
    for cell in plan.data(results):
        results.add(cell, {"train": 66_670})
    for cell in plan.noise(results):
        results.add(cell, {"noise_multiplier": 1.5})
    for cell in plan.tuning(results):
        results.add(cell, {"validation": cell["rate"] if cell["private"] else -cell["rate"]})
    return plan, results


def tried(plan, results):
    return {(cell["method"], cell["epsilon"], cell["rate"]) for cell in plan.tuning(results)}


def test_rates_that_are_tried_at_one_epsilon_are_taken_at_all():
    plan, results = planned()
    assert tried(plan, results) == {
        *(("none", 0.0, rate) for rate in (0.5, 4.0)),
        *((method, 4.0, rate) for method in ("l-rdp", "truncated") for rate in (0.5, 4.0)),
    }
    rates = {(cell["method"], cell["epsilon"]): cell["rate"] for cell in plan.final(results)}
    assert rates.pop(("none", 0.0)) == 0.5
    assert len(rates) == 10
    assert set(rates.values()) == {4.0}


def test_without_that_each_epsilon_has_its_own_trials():
    plan, results = planned(tasks={"mnist-cnn": {"tuned_at": 0.0}})
    assert len(tried(plan, results)) == 2 * (1 + 2 * 5)


def test_a_method_that_takes_anothers_rates_tries_its_own_where_the_other_is_not_run():
    own = {"methods": {"truncated": {"rates_of": "l-rdp"}}}
    plan, results = planned(**own)
    assert {method for method, _, _ in tried(plan, results)} == {"none", "l-rdp"}
    plan, results = planned(**own, only_methods=["none", "truncated"])
    assert {method for method, _, _ in tried(plan, results)} == {"none", "truncated"}


def test_a_single_rate_is_not_tried():
    plan, results = planned("minilm-lora")
    assert not tried(plan, results)
    lines = {(cell["method"], cell["epsilon"], cell["rate"]) for cell in plan.final(results)}
    private = {(method, epsilon, 3.0) for method in ("l-rdp", "truncated") for epsilon in (2.0, 8.0)}
    assert lines == {("none", 0.0, 3.0), *private}


def test_a_task_with_a_method_that_there_is_not_is_refused():
    with pytest.raises(InvalidInput, match="methods names 'l-rpd'"):
        planned(tasks={"mnist-cnn": {"methods": ["l-rpd"]}})
