"""What each thing that is said to help private training does at equal ε: an ablation on linear heads, by paired seeds.

Every line is compared with the plain one of its task: truncated Poisson, SGD, flat clipping, the last model. Learning
rates are chosen for each line among four on validation data, by three seeds that are not among those it is judged by.
Run: python benchmarks/accuracy.py --data-dir data --features build/features --out docs/results/accuracy.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import numpy as np
from accuracy_heads import (
    Adam,
    Array,
    Federation,
    How,
    Sgd,
    Share,
    automatic,
    averaged,
    check_against_engine,
    private_moments,
    trained,
)

from lrdp.accounting import Adjacency, Budget, PldAccountant, TruncatedPoissonGaussian, least_noise
from lrdp.experiments.data import DataSettings, prepared
from lrdp.experiments.hospitals.cohorts import Cohort, CohortSettings, cohort
from lrdp.experiments.hospitals.metrics import area
from lrdp.experiments.study import Places, decoded, read_settings
from lrdp.experiments.study.settings import shipped
from lrdp.experiments.study.surroundings import surroundings
from lrdp.experiments.utility.statistics import gap

SEEDS, TUNING_SEEDS, DELTA = tuple(range(10)), (100, 101, 102), 1e-5
_CLIENTS, _RECORDS, _JUDGED = 5, 2000, 4000
_SHIFTS: Final = ((0, 0), (1, 0), (-1, 0), (0, 1))
Judge = Callable[[Array], float]
AS_USUAL: Final = How()


@dataclass(frozen=True, kw_only=True)
class World:
    """Shares to train on, and how a model is judged: on validation data, or on the test's."""

    shares: Sequence[Share]
    validation: Judge
    test: Judge
    with_inputs: Callable[[Callable[[Array], Array]], World]


@dataclass(frozen=True, kw_only=True)
class Task:
    """``share`` of a client's records is a batch; ``rates`` are for plain SGD, and ``adam_rates`` for Adam."""

    title: str
    made: Callable[[int], World]
    classes: int
    share: float
    rounds: int
    local_steps: int
    rates: tuple[float, ...]
    adam_rates: tuple[float, ...]
    reach: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Line:
    """What is changed: how it is trained, what rates are multiplied by, and whether moments are found first."""

    name: str
    how: How = AS_USUAL
    slower: float = 1.0
    adam: bool = False
    moments: str = ""
    cost: str = "none"


PLAIN: Final = Line(name="plain")
MOMENTUM, ADAM = partial(Sgd, momentum=0.9), Adam
LINES: Final = (
    PLAIN,
    Line(name="mean of the last fifth", how=How(window=-5), cost="none"),
    Line(name="mean of the last half", how=How(window=-2), cost="none"),
    Line(name="decay 0.7 a round", how=How(window=10_000, decay=0.7), cost="none"),
    Line(name="momentum 0.9, new each round", how=How(optimiser=MOMENTUM), slower=0.3, cost="1 model"),
    Line(name="momentum 0.9, kept", how=How(optimiser=MOMENTUM, kept=True), slower=0.1, cost="1 model"),
    Line(name="Adam, new each round", how=How(optimiser=ADAM), adam=True, cost="2 models"),
    Line(name="Adam, kept", how=How(optimiser=ADAM, kept=True), adam=True, cost="2 models"),
    Line(
        name="Adam, kept, noise taken off",
        how=How(optimiser=partial(Adam, corrected=True), kept=True),
        adam=True,
        cost="2 models",
    ),
    Line(name="automatic clipping", how=How(clip=automatic), cost="none"),
    Line(name="one normaliser for all", how=How(common=True), cost="none"),
    Line(name="private mean", moments="centred", cost="1 step"),
    Line(name="private mean and scale", moments="standardised", cost="1 step"),
)


# --------------------------------------------------------------------------------------------------------------- tasks
def _right(inputs: Array, labels: Array) -> Judge:
    return lambda weights: 100 * float(((inputs @ weights.T).argmax(1) == labels).mean())


def _pictures(places: Places, features: str, views: int, seed: int) -> World:
    data = _prepared(places, features)
    lot = np.random.default_rng(seed).permutation(len(data[0][1]))[: _CLIENTS * _RECORDS]
    inputs, labels = data[0][0][lot], data[0][1][lot]
    return _world(inputs, labels, data[1], data[2], views)


def _world(inputs: Array, labels: Any, validation: Any, test: Any, views: int) -> World:
    parts = np.array_split(np.arange(len(labels)), _CLIENTS)
    seen = np.stack([_shifted(inputs, *shift) for shift in _SHIFTS[:views]], 1) if views > 1 else inputs

    def changed(function: Callable[[Array], Array]) -> World:
        (known, known_labels), (unseen, unseen_labels) = validation, test
        return _world(function(inputs), labels, (function(known), known_labels), (function(unseen), unseen_labels), 1)

    return World(
        shares=[Share(seen[part], labels[part]) for part in parts],
        validation=_right(*validation),
        test=_right(*test),
        with_inputs=changed,
    )


def _shifted(inputs: Array, down: int, right: int) -> Array:
    """Pictures moved by a pixel, as flat rows of unit norm."""
    side = math.isqrt(inputs.shape[1])
    moved = np.roll(inputs.reshape(-1, side, side), (down, right), (1, 2))
    return np.ascontiguousarray(moved.reshape(len(inputs), -1))


@lru_cache(maxsize=2)
def _prepared(places: Places, features: str) -> list[tuple[Array, Any]]:
    found = prepared(DataSettings(data="mnist", features=features), places)
    splits = []
    for split, most in ((found.train, 30_000), (found.validation, 2_000), (found.test, _JUDGED)):
        inputs = np.asarray(split.inputs[:most].float()).reshape(min(most, len(split.labels)), -1)
        if features == "pixels":
            inputs = inputs * 0.25 + 0.5  # from 0 to 1 again: mostly 0, and so far from centred
            inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
        splits.append((np.ascontiguousarray(inputs, np.float32), np.asarray(split.labels[:most])))
    return splits


def _heart(places: Places, seed: int) -> World:
    """Four hospitals of different sizes; a third of the patients is for testing, a third of the others to choose by."""
    tables = read_settings(shipped("hospitals"), quick=False)
    settings = {"source": tables["sources"]["heart"], "site": "hospital", "group": "", "least": 1}
    whole: Cohort = cohort(decoded(CohortSettings, settings, "heart"), places.data)
    rest, test = whole.parted(seed)
    learned, chosen = rest.parted(seed) if seed in TUNING_SEEDS else (rest, test)
    return _hospitals(learned, chosen, test, lambda inputs: inputs)


def _hospitals(learned: Cohort, chosen: Cohort, test: Cohort, change: Callable[[Array], Array]) -> World:
    def judged(of: Cohort) -> Judge:
        inputs = change(_with_one(of.inputs))
        return lambda weights: 100 * area(of.happened, (inputs @ (weights[1] - weights[0])).astype(np.float64))

    shares = [learned.of(name) for name in learned.site_names]
    return World(
        shares=[Share(change(_with_one(each.inputs)), each.happened.astype(np.int64)) for each in shares],
        validation=judged(chosen),
        test=judged(test),
        with_inputs=lambda function: _hospitals(learned, chosen, test, partial(_but_the_last, function)),
    )


def _but_the_last(function: Callable[[Array], Array], inputs: Array) -> Array:
    """Centred ones would be no bias any more."""
    return np.concatenate([function(inputs)[:, :-1], inputs[:, -1:]], 1)


def _with_one(inputs: Array) -> Array:
    """With a column of ones, as a bias; about as long as the clip norm."""
    both = np.concatenate([inputs, np.ones((len(inputs), 1), np.float32)], 1)
    return np.asarray(both / math.sqrt(both.shape[1]), np.float32)


def tasks(places: Places) -> dict[str, Task]:
    """All that is tried."""
    mnist = partial(Task, classes=10, share=0.128, rounds=10, local_steps=4)
    pixels: dict[str, Any] = {"rates": (1.0, 3.0, 10.0, 30.0), "adam_rates": (0.01, 0.03, 0.1, 0.3)}
    return {
        "scattering": mnist(
            title="MNIST, scattering features",
            made=partial(_pictures, places, "scattering", 1),
            rates=(25.0, 75.0, 225.0, 675.0),
            adam_rates=(0.1, 0.3, 1.0, 3.0),
        ),
        "pixels": mnist(title="MNIST, pixels", made=partial(_pictures, places, "pixels", 1), **pixels),
        "views": mnist(title="MNIST, pixels, 4 views", made=partial(_pictures, places, "pixels", 4), **pixels),
        "heart": Task(
            title="heart disease, 4 hospitals",
            made=partial(_heart, places),
            classes=2,
            share=0.5,
            rounds=20,
            local_steps=1,
            rates=(0.1, 0.4, 1.6, 6.4),
            adam_rates=(0.003, 0.01, 0.03, 0.1),
            reach=1.5,
        ),
    }


# ------------------------------------------------------------------------------------------------------------- running
@lru_cache(maxsize=256)
def _quiet(size: int, batch: int, steps: int, epsilon: float) -> TruncatedPoissonGaussian:
    cap = min(size, math.ceil(batch + 5 * math.sqrt(batch)))
    first = TruncatedPoissonGaussian(dataset_size=size, batch_size=batch, cap=cap, noise_multiplier=1.0)
    accountant = PldAccountant(adjacency=Adjacency.ADD_REMOVE)
    return least_noise(first, steps, Budget(epsilon=epsilon, delta=DELTA), accountant).mechanism


def federation(task: Task, world: World, epsilon: float, more_steps: int) -> Federation:
    """Every client with the noise for all of its steps."""
    steps = task.rounds * task.local_steps + more_steps
    sizes = [len(share.labels) for share in world.shares]
    quiet = [_quiet(size + 1, max(1, round(task.share * size)), steps, epsilon) for size in sizes]
    return Federation(
        shares=world.shares, steps=quiet, classes=task.classes, rounds=task.rounds, local_steps=task.local_steps
    )


def run(task: Task, line: Line, epsilon: float, rate: float, seed: int) -> tuple[float, float]:
    """How good the model of one training is, on validation data and on the test's."""
    world = task.made(seed)
    given = federation(task, world, epsilon, 1 if line.moments else 0)
    if line.moments:
        mean, scale = private_moments(given, task.reach, seed)
        spread = np.sqrt(np.mean(scale**2)) * np.ones_like(scale) if line.moments == "centred" else scale
        width = math.sqrt(len(mean))
        world = world.with_inputs(lambda inputs: ((inputs - mean) / (spread * width)).astype(np.float32))
        given = replace(given, shares=world.shares)
    models = trained(given, line.how, rate, seed)
    how = replace(line.how, window=math.ceil(len(models) / -line.how.window)) if line.how.window < 0 else line.how
    model = averaged(models, how).astype(np.float32)
    return world.validation(model), world.test(model)


def judged(task: Task, line: Line, epsilon: float) -> dict[str, Any]:
    """A line with the rate that suits it."""
    begun = time.process_time()
    rates = task.adam_rates if line.adam else tuple(rate * line.slower for rate in task.rates)
    tried = {rate: fmean(run(task, line, epsilon, rate, seed)[0] for seed in TUNING_SEEDS) for rate in rates}
    rate = max(tried, key=lambda each: tried[each])
    scores = {seed: run(task, line, epsilon, rate, seed)[1] for seed in SEEDS}
    runs = len(rates) * len(TUNING_SEEDS) + len(SEEDS)
    return {
        "rate": rate,
        "rate_at_edge": rate in (rates[0], rates[-1]),
        "scores": scores,
        "mean": fmean(scores.values()),
        "seconds": round((time.process_time() - begun) / runs, 3),
    }


def ablation(chosen: Mapping[str, Task], epsilons: Sequence[float], among: str) -> Iterator[dict[str, Any]]:
    """A row for each task, ε and line; gaps are to the plain line of the same task, and views to pixels without."""
    base: dict[tuple[str, float], dict[int, float]] = {}
    for name, task in chosen.items():
        for epsilon in epsilons:
            lines = LINES if name != "views" else (replace(PLAIN, name="4 views of a record", cost="4 times the rows"),)
            for line in lines:
                if (line.how.common and name != "heart") or (line is not PLAIN and among not in line.name):
                    continue  # clients of equal size have one normaliser anyway
                found = judged(task, line, epsilon)
                if line is PLAIN:
                    base[name, epsilon] = found["scores"]
                against = gap(found["scores"], base["pixels" if name == "views" else name, epsilon])
                yield {
                    "task": task.title,
                    "epsilon": epsilon,
                    "line": line.name,
                    "cost": line.cost,
                    **found,
                    "gap": against.mean,
                    "low": against.paired[0],
                    "high": against.paired[1],
                }


def _shown(row: Mapping[str, Any]) -> str:
    figures = f"{row['mean']:.2f} | {row['gap']:+.2f} | {row['low']:+.2f} … {row['high']:+.2f} | {row['rate']:g}"
    return f"| {row['task']} | {row['epsilon']:g} | {row['line']} | {figures} | {row['cost']} | {row['seconds']} |"


def main() -> None:
    """Write every row as it comes."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--data-dir", type=Path, default=Path("data"))
    asked.add_argument("--features", type=Path, default=Path("build/features"))
    asked.add_argument("--out", type=Path, default=Path("build/accuracy.json"))
    asked.add_argument("--tasks", default="heart,pixels,views,scattering")
    asked.add_argument("--epsilons", default="2,8")
    asked.add_argument("--lines", default="", help="only those with this in their names, and the plain one")
    given = asked.parse_args()
    places = Places(data=given.data_dir, features=given.features, results=given.out.parent)
    check_against_engine()
    known = tasks(places)
    rows = []
    chosen = {name: known[name] for name in given.tasks.split(",")}
    for row in ablation(chosen, [float(each) for each in given.epsilons.split(",")], given.lines):
        rows.append(row)
        print(_shown(row), flush=True)
        given.out.write_text(json.dumps({"made": surroundings(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
