"""Noise multipliers: against an oracle by quadrature, the paper's own numbers, and what must be refused."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from lrdp.accounting import Budget
from lrdp.errors import InvalidInput
from lrdp.experiments.noise import study
from lrdp.experiments.noise.calibrating import NoiseTask, NoiseWay, cap_for, in_clip_norms, noise_for
from lrdp.experiments.study import Places, conduct, read_settings
from lrdp.experiments.study.settings import laid_over, shipped

TASK = NoiseTask(title="t", setting="s", records=5000, batch_size=250, steps=40, parameters=1000)
BUDGET = Budget(epsilon=3.0, delta=1e-5)


def renyi_epsilon(rate, sigma, steps, delta):
    """By a sum over binomials at whole orders, and the usual conversion: Mironov, Talwar and Zhang (1908.10530)."""
    best = math.inf
    for order in range(2, 200):
        terms = [
            math.lgamma(order + 1)
            - math.lgamma(k + 1)
            - math.lgamma(order - k + 1)
            + k * math.log(rate)
            + (order - k) * math.log1p(-rate)
            + (k * k - k) / (2 * sigma**2)
            for k in range(order + 1)
        ]
        spent = steps * np.logaddexp.reduce(terms) / (order - 1)
        epsilon = spent + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)
        best = min(best, epsilon)
    return best


def test_poisson_noise_keeps_the_budget_by_an_independent_sum_and_a_little_less_does_not():
    found = noise_for(TASK, NoiseWay(sampling="poisson", accountant="rdp"), BUDGET)
    assert renyi_epsilon(0.05, found.noise_multiplier, 40, 1e-5) == pytest.approx(3.0, rel=1e-2)  # whole orders only
    assert renyi_epsilon(0.05, found.noise_multiplier * 0.95, 40, 1e-5) > 3.1
    assert found.rows == 0


def test_fixed_size_needs_twice_the_noise_of_poisson_under_the_same_accountant():
    fixed, poisson = (
        noise_for(TASK, NoiseWay(sampling=kind, accountant="rdp"), BUDGET) for kind in ("fixed-size", "poisson")
    )
    assert fixed.noise_multiplier / poisson.noise_multiplier == pytest.approx(2.0, rel=1e-4)
    assert fixed.rows == 250


@pytest.mark.parametrize(
    ("theirs", "ours", "within"),
    [("opacus-rdp", "rdp", 1e-3), pytest.param("opacus-prv", "pld", 3e-3, marks=pytest.mark.slow)],
)
def test_opacus_and_we_agree_on_poisson(theirs, ours, within):
    found = [noise_for(TASK, NoiseWay(sampling="poisson", accountant=name), BUDGET) for name in (theirs, ours)]
    assert found[0].noise_multiplier / found[1].noise_multiplier == pytest.approx(1.0, abs=within)
    assert found[0].spent <= 3.0


def test_a_cap_costs_noise_and_a_generous_one_none():
    caps = [
        noise_for(TASK, NoiseWay(sampling="truncated-poisson", accountant="pld", cap_deviations=k), BUDGET)
        for k in (0, 2, 6)
    ]
    free = noise_for(TASK, NoiseWay(sampling="poisson", accountant="pld"), BUDGET)
    sigmas = [each.noise_multiplier for each in caps]
    assert sigmas[0] > 1.5 * sigmas[2]
    assert sigmas[0] > sigmas[1] > sigmas[2]
    assert sigmas[2] == pytest.approx(free.noise_multiplier, rel=1e-3)
    assert caps[1].cut_probability == pytest.approx(float(binom.sf(caps[1].rows - 1, 4999, 0.05)), rel=1e-6)


def test_caps_are_so_many_deviations_above_the_expected_batch():
    assert cap_for(TASK, 0) == 250
    assert cap_for(TASK, 5) == math.ceil(250 + 5 * math.sqrt(5000 * 0.05 * 0.95)) == 328


def test_the_noise_on_the_paper_s_mean_is_many_clip_norms():
    """σ√d/(B√clients) by drawing it: 4,000 coordinates in place of nine million."""
    task = NoiseTask(title="t", setting="s", records=5000, batch_size=128, steps=1, parameters=4000)
    drawn = np.random.default_rng(3).normal(size=(10, 4000)) * 11.0 / 128
    assert in_clip_norms(task, 11.0, 10) == pytest.approx(float(np.linalg.norm(drawn.mean(axis=0))), rel=0.05)


def test_opacus_is_not_asked_about_other_samplings():
    with pytest.raises(InvalidInput, match="Poisson sampling only, got fixed-size"):
        noise_for(TASK, NoiseWay(sampling="fixed-size", accountant="opacus-prv"), BUDGET)


def tables(**changes):
    return laid_over(read_settings(shipped("noise"), quick=True), changes)


def test_unknown_names_are_sentences_before_anything_runs():
    with pytest.raises(InvalidInput, match=r"accountant must be one of rdp, .*got 'moments'"):
        study(tables(accountants={"new": {"sampling": "poisson", "accountant": "moments"}}))
    with pytest.raises(InvalidInput, match="got 'imagenet': nothing was run"):
        study(tables(only_tasks=["imagenet"]))


def test_the_paper_s_tasks_take_as_many_steps_as_it_states():
    """Rounds times epochs times the batches of an epoch."""
    stated = {"mnist": 25 * 5, "emnist": 25 * 2, "cifar10": 50 * 5, "sst2": 5 * 3, "qnli": 5 * 3, "qqp": 5 * 3}
    tasks = study(read_settings(shipped("noise"), quick=False)).plan.tasks
    for name, epochs in stated.items():
        task = tasks[f"{name}-paper"]
        assert task.steps == epochs * math.ceil(task.records / task.batch_size)


@pytest.mark.skipif(not shipped("utility").exists(), reason="the settings of utility are not here")
def test_the_other_tasks_are_those_that_utility_trains():
    tasks = study(read_settings(shipped("noise"), quick=False)).plan.tasks
    trained = read_settings(shipped("utility"), quick=False)["tasks"]
    ours = {name: task for name, task in tasks.items() if task.setting != "paper"}
    assert set(ours) == set(trained)
    for name, task in ours.items():
        expected = trained[name]["batch_size"], trained[name]["rounds"] * trained[name]["local_steps"]
        assert (task.batch_size, task.steps) == expected


class Quiet:
    def stage(self, cells, kept):
        pass

    def done(self, cell, seconds):
        pass


@pytest.mark.slow
def test_the_quick_study_ends_in_tables_and_pictures(tmp_path):
    places = Places(data=Path(), features=Path(), results=tmp_path)
    written = conduct(study(tables()), places, 1, Quiet())
    assert {path.suffix for path in written} == {".json", ".csv", ".svg", ".png"}
    lines = (tmp_path / "noise.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1 + 11 + 3
