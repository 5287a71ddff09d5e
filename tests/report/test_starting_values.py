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
        if cell["stage"] == "tuning" and cell["private"] and cell["local_steps"] == 5:
            line = cell["task"], cell["method"], cell["epsilon"]
            step, steps = cell["mechanism"], cell["rounds"] * cell["local_steps"]
            assert steps == 60
            noises[line] = step["noise_multiplier"] / step["batch_size"] * math.sqrt(steps)
            scores[line][cell["rate"]].append(100 * each["result"]["validation"])
    return [(line[0], noises[line], {rate: fmean(v) for rate, v in scores[line].items()}) for line in noises]


def best(scores: Scores) -> float:
    return max(sorted(scores), key=lambda rate: scores[rate])


Lines = list[tuple[str, float, Scores]]
KINDS = {"ten classes or more": {"mnist", "emnist", "cifar10"}, "two classes": {"sst2", "qnli", "qqp"}}


@pytest.mark.parametrize(("kind", "move", "spread"), [("ten classes or more", 0.94, 1.29), ("two classes", 0.23, 1.66)])
def test_a_rule_is_the_mean_of_the_tasks_of_its_kind_and_its_spread_is_theirs(
    tuned: Lines, kind: str, move: float, spread: float
) -> None:
    moves: dict[str, list[float]] = defaultdict(list)
    for task, noise, scores in tuned:
        moves[task].append(best(scores) * noise / math.sqrt(10))
    means = [geometric_mean(moves[task]) for task in KINDS[kind]]
    assert geometric_mean(means) == pytest.approx(move, abs=0.005)
    assert math.exp(stdev(math.log(mean) for mean in means)) == pytest.approx(spread, abs=0.01)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("ten classes or more", "cost 0.20 points of accuracy on average, 0.83 at most"),
        ("two classes", "cost 0.16 points of accuracy on average, 0.50 at most"),
    ],
)
def test_what_one_rate_for_a_kind_costs_in_accuracy_is_what_the_rule_says(tuned: Lines, kind: str, words: str) -> None:
    (value,) = [each for each in starting_values(STEP, 60, 3) if kind in each.name]
    assert words in value.rule
    move = float(value.rule.split()[0]) * math.sqrt(10)
    lost = []
    for task, noise, scores in tuned:
        if task in KINDS[kind]:
            rates = sorted(scores)
            at = np.interp(math.log(move / noise), np.log(rates), [scores[rate] for rate in rates])
            lost.append(scores[best(scores)] - float(at))
    assert len(lost) == 75
    assert f"cost {fmean(lost):.2f} points of accuracy on average, {max(lost):.2f} at most" == words


def test_noise_alone_moves_a_weight_by_as_much_whatever_the_step() -> None:
    for step, steps in ((STEP, 60), (STEP.with_noise(3.3), 417)):
        many, two, clip, local, normaliser = starting_values(step, steps, 3)
        for rate, move, spread in ((many, 0.94, 1.3), (two, 0.23, 1.7)):
            moved = rate.value * step.noise_on_mean * math.sqrt(steps / 10)
            assert moved == pytest.approx(move, rel=0.05)
            assert rate.high / rate.value == pytest.approx(spread, rel=0.06)
        assert (clip.value, local.value, normaliser.value) == (1.0, 3, 304)


def test_a_line_names_value_range_rule_and_source() -> None:
    rate, _, clip, *_ = starting_values(STEP, 60, 3)
    assert rate.text.startswith("learning rate, ten classes or more 7.7 (5.9 to 10): 0.94 B√K/(σ√T) for K = 10 clients")
    assert rate.text.endswith("[utility study, six tasks, 150 tuned rates at 60 steps]")
    assert clip.text.startswith("clip norm 1: ")
