"""The rules behind starting values, computed again from the study that they quote."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from pathlib import Path
from statistics import fmean, geometric_mean, stdev

import numpy as np
import pytest

from lrdp.accounting import FullBatchGaussian
from lrdp.report.starting_values import starting_values

STUDY = Path(__file__).parents[2] / "docs/results/paper/utility.json"
STEP = FullBatchGaussian(dataset_size=304, noise_multiplier=15.2)

Scores = dict[float, float]


@pytest.fixture(scope="module")
def tuned() -> list[tuple[str, float, Scores]]:
    """Task, noise on a weight at rate 1 over the whole training, and the validation accuracy of every rate."""
    scores: dict[tuple[str, str, float], dict[float, list[float]]] = defaultdict(lambda: defaultdict(list))
    noises = {}
    for each in json.loads(STUDY.read_text(encoding="utf-8"))["cells"]:
        cell = each["cell"]
        if cell["stage"] == "tuning" and cell["private"]:
            line = cell["task"], cell["method"], cell["epsilon"]
            step, steps = cell["mechanism"], cell["rounds"] * cell["local_steps"]
            assert steps == 60
            noises[line] = step["noise_multiplier"] / step["batch_size"] * math.sqrt(steps)
            scores[line][cell["rate"]].append(100 * each["result"]["validation"])
    return [(line[0], noises[line], {rate: fmean(v) for rate, v in scores[line].items()}) for line in noises]


def best(scores: Scores) -> float:
    return max(sorted(scores), key=lambda rate: scores[rate])


def test_the_rule_for_the_rate_is_the_mean_of_six_tasks_and_its_spread_is_theirs(
    tuned: list[tuple[str, float, Scores]],
) -> None:
    assert len(tuned) == 150
    moves: dict[str, list[float]] = defaultdict(list)
    for task, noise, scores in tuned:
        moves[task].append(best(scores) * noise)
    means = [geometric_mean(values) for values in moves.values()]
    assert len(means) == 6
    assert geometric_mean(means) == pytest.approx(1.465, abs=0.01)
    assert math.exp(stdev(math.log(mean) for mean in means)) == pytest.approx(2.35, abs=0.02)


def test_what_one_rate_for_all_tasks_costs_in_accuracy_is_what_the_rule_says(
    tuned: list[tuple[str, float, Scores]],
) -> None:
    lost: dict[str, list[float]] = defaultdict(list)
    for task, noise, scores in tuned:
        rates = sorted(scores)
        at = np.interp(math.log(1.5 / noise), np.log(rates), [scores[rate] for rate in rates])
        lost[task].append(scores[best(scores)] - float(at))
    means = {task: fmean(values) for task, values in lost.items()}
    assert 2.1 < means.pop("emnist") < 2.3
    assert min(means.values()) < 0.1
    assert max(means.values()) < 0.7


def test_noise_alone_moves_a_weight_by_as_much_whatever_the_step() -> None:
    for step, steps in ((STEP, 60), (STEP.with_noise(3.3), 417)):
        rate, clip, local, normaliser = starting_values(step, steps, 3)
        assert rate.value * step.noise_on_mean * math.sqrt(steps) == pytest.approx(1.5, rel=0.05)
        assert rate.high / rate.value == pytest.approx(2.4, rel=0.06)
        assert (clip.value, local.value, normaliser.value) == (1.0, 3, 304)


def test_a_line_names_value_range_rule_and_source() -> None:
    rate, clip, *_ = starting_values(STEP, 60, 3)
    assert rate.text.startswith("learning rate 3.9 (1.6 to 9.3): 1.5 B/(σ√T)")
    assert rate.text.endswith("[utility study, six tasks, 150 tuned rates at 60 steps]")
    assert clip.text.startswith("clip norm 1: ")
