"""A plan by passes: the batch that gathers the least noise over training, found again by a brute-force search."""

from __future__ import annotations

import json
import math
import tomllib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import gammaln, logsumexp

from lrdp.accounting import (
    Adjacency,
    BatchFrontier,
    Budget,
    Candidate,
    FixedSizeGaussian,
    PlanTrial,
    PldAccountant,
    PublicSizes,
    RenyiAccountant,
    TrainingAim,
    TruncatedPoissonGaussian,
    baselines,
    calibrated,
    finals,
    kept,
    least_noise,
    trials,
)
from lrdp.errors import InvalidInput, OutOfReach
from lrdp.report.frontier_table import reason

from .given import NEVER_A_COUNT

ROOT = Path(__file__).parents[2]
USUAL = Adjacency.ADD_REMOVE


def aimed(size: int, passes: float, epsilon: float = 8.0, **changes: int) -> TrainingAim:
    given_rows = {"rows": 32} | changes
    return TrainingAim(dataset_size=size, passes=passes, budget=Budget(epsilon=epsilon, delta=1e-5), **given_rows)


def searched(aim: TrainingAim) -> tuple[Candidate, ...]:
    return kept(calibrated(aim, trial) for trial in trials(aim))


@cache
def found(aim: TrainingAim) -> BatchFrontier:
    first = searched(aim)
    second = kept(calibrated(aim, trial) for trial in finals(aim, first))
    best = BatchFrontier(aim=aim, searched=first, finalists=second).recommended
    measures = kept(calibrated(aim, trial) for trial in baselines(aim, first, best))
    return BatchFrontier(aim=aim, searched=first, finalists=second, measures=measures)


# ---------------------------------------- the oracle: Poisson by whole Rényi orders, every batch size there is
ORDERS, TERMS = np.arange(2, 64)[:, None], np.arange(64)[None, :]
with np.errstate(invalid="ignore"):
    LOG_BINOMIALS = gammaln(ORDERS + 1) - gammaln(TERMS + 1) - gammaln(np.maximum(ORDERS - TERMS, 0) + 1)
LOG_BINOMIALS = np.where(TERMS <= ORDERS, LOG_BINOMIALS, -np.inf)


def poisson_epsilon(probability: float, noise: float, steps: int, delta: float) -> float:
    """Mironov, Talwar and Zhang's sum (arXiv 1908.10530v1, Section 3.3) and Proposition 12 of arXiv 2004.00010v4."""
    absent = math.log1p(-probability) if probability < 1 else -1e6
    terms = LOG_BINOMIALS + TERMS * math.log(probability) + np.maximum(ORDERS - TERMS, 0) * absent
    moments = logsumexp(terms + TERMS * (TERMS - 1) / (2 * noise**2), axis=1)
    orders = ORDERS[:, 0]
    divergences = steps * moments / (orders - 1)
    return float(np.min(divergences + np.log1p(-1 / orders) - (math.log(delta) + np.log(orders)) / (orders - 1)))


def least_by_brute_force(aim: TrainingAim) -> float:
    """Over all batch sizes and steps that keep passes and least steps; one step in a round, so that none is lost."""
    least = math.inf
    for size in range(5, aim.dataset_size + 1):  # smaller ones are noisier still
        steps = int(aim.passes * aim.dataset_size / size + 1e-9)
        if steps < aim.least_steps:
            break
        probability = size / aim.dataset_size

        def excess(noise: float, probability: float = probability, steps: int = steps) -> float:
            return poisson_epsilon(probability, noise, steps, aim.budget.delta) - aim.budget.epsilon

        noise = float(brentq(excess, 0.3, 200.0, rtol=1e-4))
        least = min(least, noise / (size * math.sqrt(steps)))
    return least


@pytest.mark.parametrize(("passes", "least_steps"), [(6.0, 11), (21.0, 20), (2.5, 4)])
def test_no_batch_that_a_brute_force_search_finds_gathers_noticeably_less_noise(
    passes: float, least_steps: int
) -> None:
    aim = aimed(53, passes, epsilon=3.0, rows=8, least_steps=least_steps, local_steps=1)
    able = [each for each in searched(aim) if each.steps >= least_steps]
    least = min(each.noise_over_training for each in able)
    assert least == pytest.approx(least_by_brute_force(aim), rel=0.01)
    assert found(aim).recommended.steps >= least_steps


def test_control_the_papers_mechanism_is_far_from_it() -> None:
    aim = aimed(53, 6.0, epsilon=3.0, rows=8, least_steps=11, local_steps=1)
    fixed = [each for each in searched(aim) if isinstance(each.mechanism, FixedSizeGaussian) and each.steps >= 11]
    assert min(each.noise_over_training for each in fixed) > 1.9 * least_by_brute_force(aim)


# ---------------------------------------- figures that are known
def noise_at(size: int, passes: float, epsilon: float, batch: int) -> float:
    """Of truncated Poisson by Rényi orders, in 10⁻⁵."""
    aim = aimed(size, passes, epsilon, local_steps=1)
    step = TruncatedPoissonGaussian.drawing(batch, PublicSizes(size))
    candidate = calibrated(aim, PlanTrial(step, RenyiAccountant(adjacency=USUAL)))
    assert candidate is not None
    return 1e5 * candidate.noise_over_training


@pytest.mark.parametrize(
    ("size", "passes", "epsilon", "small", "large", "figures"),
    [
        (30_000, 8.3, 8.0, 128, 2048, (10.76, 3.85)),
        (6_734, 15, 4.0, 32, 2048, (50.65, 18.92)),
        (5_000, 256, 8.0, 128, 1024, (13.96, 12.99)),
    ],
)
def test_large_batches_gain_at_few_passes_and_next_to_nothing_at_many(
    size: int, passes: float, epsilon: float, small: int, large: int, figures: tuple[float, float]
) -> None:
    noises = noise_at(size, passes, epsilon, small), noise_at(size, passes, epsilon, large)
    assert noises == pytest.approx(figures, rel=2e-3)


# ---------------------------------------- what is promised of a recommendation
def tasks() -> list[tuple[str, int, int, int]]:
    """The paper's tasks and the hospitals', one client each: name, records, batch and steps of the studies."""
    noise = tomllib.loads((ROOT / "experiments/noise.toml").read_text(encoding="utf-8"))["tasks"]
    paper = [(name, task["records"], task["batch_size"], task["steps"]) for name, task in noise.items()]
    stored = json.loads((ROOT / "docs/results/paper/hospitals.json").read_text(encoding="utf-8"))
    cells = {cell["cell"]["task"]: cell["result"] for cell in stored["cells"] if cell["cell"]["stage"] == "sites"}
    shares = tomllib.loads((ROOT / "experiments/hospitals.toml").read_text(encoding="utf-8"))["tasks"]
    hospitals = []
    for name in ("heart", "tcga", "eicu-regions", "eicu-hospitals"):
        bound = max(cells[name]["patients"].values()) + 1
        hospitals.append((name, bound, math.ceil(bound * shares[name]["batch_share"]), shares[name]["rounds"]))
    return [task for task in paper if task[0].endswith("-paper")] + hospitals


def test_there_are_six_tasks_of_the_paper_and_four_of_hospitals() -> None:
    assert len(tasks()) == 10


QUICK = {"heart", "eicu-hospitals"}


@pytest.mark.parametrize("epsilon", [2.0, 8.0])
@pytest.mark.parametrize(
    ("name", "size", "batch", "steps"),
    [pytest.param(*task, marks=[] if task[0] in QUICK else pytest.mark.slow) for task in tasks()],
)
def test_the_recommended_has_poissons_noise_and_about_half_of_the_papers(
    name: str, size: int, batch: int, steps: int, epsilon: float
) -> None:
    aim = aimed(size, steps * batch / size, epsilon, least_steps=min(60, steps))
    best = found(aim).recommended
    poisson = next(each for each in found(aim).measures if each.mechanism.name == "poisson")
    assert best.noise_over_training <= 1.02 * poisson.noise_over_training, name
    own = FixedSizeGaussian(dataset_size=size, batch_size=batch, noise_multiplier=1.0)
    paper = least_noise(own, steps, aim.budget, RenyiAccountant(adjacency=USUAL)).mechanism
    assert best.noise_over_training <= 0.55 * paper.noise_on_mean / math.sqrt(steps), name
    assert best.mechanism.rows is not None
    assert aim.rows <= 32


def test_what_is_recommended_keeps_the_budget_and_the_passes() -> None:
    best = found(aimed(6734, 15, 4.0)).recommended
    again = PldAccountant(adjacency=USUAL).epsilon({best.mechanism: best.steps}, 1e-5)
    assert 3.99 < again.epsilon <= 4.0
    assert again == best.spent
    assert 0.98 * 15 < best.steps * best.mechanism.normaliser / 6734 <= 15


# ---------------------------------------- in words
def test_at_few_passes_the_words_say_what_small_batches_would_cost() -> None:
    words = reason(found(aimed(6734, 15, 4.0)))
    assert "truncated-poisson / pld, batches of 1683 in 30 rounds of 2 steps, computed 32 rows at a time" in words
    assert "Batches of 32 would have 2.13 times the noise in 1.72 times the rows." in words
    assert "data sets of at most 6734 records" in words


def test_at_many_passes_the_words_say_that_there_is_nothing_to_gain() -> None:
    assert "next to nothing to gain from larger batches at this many passes" in reason(
        found(aimed(5000, 256, rows=128))
    )
    near = reason(found(aimed(5000, 256)))
    assert "Beyond batches of 128 (10000 steps) there is at most a tenth to gain" in near


def test_where_so_many_steps_cannot_be_had_the_words_say_so() -> None:
    frontier = found(aimed(40, 1.0, epsilon=2.0))
    assert frontier.recommended.steps == 40
    assert "So few passes allow only 40 of the 60 steps that were asked for." in reason(frontier)


def test_everybody_in_every_step_is_recommended_where_there_are_steps_enough() -> None:
    best = found(aimed(304, 100, 2.0)).recommended
    assert (best.label, best.rounds, best.local_steps) == ("full-batch / pld", 50, 2)
    few = found(aimed(304, 30, 2.0)).recommended
    assert (few.label, few.mechanism.normaliser, few.steps) == ("truncated-poisson / pld", 152, 60)


# ---------------------------------------- the schedule
@settings(deadline=None)
@given(st.integers(2, 10**7), st.floats(0.2, 2000), st.data())
def test_a_schedule_reads_no_more_than_the_passes_and_could_not_have_a_round_more(
    size: int, passes: float, data: st.DataObject
) -> None:
    batch = data.draw(st.integers(1, size))
    local = data.draw(st.none() | st.integers(1, 40))
    aim = TrainingAim(
        dataset_size=size, passes=max(passes, 1 / size), rows=1, budget=Budget(epsilon=1, delta=1e-5), local_steps=local
    )
    planned = aim.schedule(batch)
    rounds, local_steps = planned or (0, local or 1)
    asked = aim.passes * size / batch
    assert rounds * local_steps <= asked * (1 + 1e-9)
    assert (rounds + 1) * local_steps > asked * (1 - 1e-9)
    assert local is not None or rounds <= 50


@settings(deadline=None)
@given(st.integers(2, 10**6), st.floats(0.5, 500), st.integers(1, 64), st.integers(1, 100))
def test_some_batch_has_enough_steps_wherever_one_record_a_step_has(
    size: int, passes: float, rows: int, least: int
) -> None:
    aim = TrainingAim(
        dataset_size=size, passes=passes, rows=rows, budget=Budget(epsilon=1, delta=1e-5), least_steps=least
    )
    steps = [math.prod(aim.schedule(batch) or (0,)) for batch in aim.batch_sizes]
    assert len(steps) <= 2 * math.log2(size) + 4
    assert max(steps) >= least or passes * size < least + math.ceil(least / 50)


@pytest.mark.parametrize("field", ["dataset_size", "rows", "least_steps", "local_steps"])
@pytest.mark.parametrize("value", [value for value in NEVER_A_COUNT if value is not None])
def test_an_aim_of_numbers_that_are_no_counts_is_refused(field: str, value: object) -> None:
    numbers: dict[str, object] = {"dataset_size": 500, "passes": 3.0, "rows": 8, "least_steps": 6, "local_steps": 1}
    with pytest.raises(InvalidInput, match=f"{field} must"):
        TrainingAim(**{**numbers, field: value}, budget=Budget(epsilon=1.0, delta=1e-5))  # type: ignore[arg-type]


@pytest.mark.parametrize("passes", [0.0, -1.0, math.nan, math.inf, 1e-9, 1e9])
def test_passes_that_read_nothing_or_without_end_are_refused(passes: float) -> None:
    with pytest.raises(InvalidInput, match="passes must"):
        aimed(500, passes)


def test_a_budget_that_no_step_keeps_is_said_to_be_out_of_reach() -> None:
    with pytest.raises(OutOfReach, match="take fewer"):
        kept([None, None])
