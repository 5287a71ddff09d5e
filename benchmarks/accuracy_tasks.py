"""What the ablation is run on: clients of equal size with pictures or sentences, and hospitals of different sizes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from accuracy_heads import Array, Share

from lrdp.experiments.data import DataSettings, prepared
from lrdp.experiments.hospitals.cohorts import Cohort, CohortSettings, cohort
from lrdp.experiments.hospitals.metrics import area, concordance
from lrdp.experiments.study import Places, decoded, read_settings
from lrdp.experiments.study.settings import shipped

TUNING_SEEDS: Final = (100, 101, 102)
_CLIENTS, _RECORDS, _JUDGED = 5, 2000, 4000
_SHIFTS: Final = ((0, 0), (1, 0), (-1, 0), (0, 1))
Judge = Callable[[Array], float]


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


def _right(inputs: Array, labels: Array) -> Judge:
    return lambda weights: 100 * float(((inputs @ weights.T).argmax(1) == labels).mean())


def _clients(places: Places, name: str, features: str, views: int, seed: int) -> World:
    """Five clients with 2,000 records each, by lot."""
    data = _prepared(places, name, features)
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
def _prepared(places: Places, name: str, features: str) -> list[tuple[Array, Any]]:
    found = prepared(DataSettings(data=name, features=features), places)
    splits = []
    for split, most in ((found.train, 30_000), (found.validation, 2_000), (found.test, _JUDGED)):
        inputs = np.asarray(split.inputs[:most].float()).reshape(min(most, len(split.labels)), -1)
        if features == "pixels":
            inputs = inputs * 0.25 + 0.5  # from 0 to 1 again: mostly 0, and so far from centred
            inputs /= np.linalg.norm(inputs, axis=1, keepdims=True)
        splits.append((np.ascontiguousarray(inputs, np.float32), np.asarray(split.labels[:most])))
    return splits


def _patients(places: Places, source: str, site: str, seed: int) -> World:
    """Hospitals of different sizes; a third of the patients is for testing, a third of the others to choose by."""
    tables = read_settings(shipped("hospitals"), quick=False)
    settings = {"source": tables["sources"][source], "site": site, "group": "", "least": 1}
    whole: Cohort = cohort(decoded(CohortSettings, settings, source), places.data)
    rest, test = whole.parted(seed)
    learned, chosen = rest.parted(seed) if seed in TUNING_SEEDS else (rest, test)
    return _hospitals(learned, chosen, test, lambda inputs: inputs)


def _ordered(of: Cohort, scores: Any) -> float:
    """Who comes to harm first where days are known, and else who does."""
    return concordance(of.happened, of.days, scores) if of.days.any() else area(of.happened, scores)


def _hospitals(learned: Cohort, chosen: Cohort, test: Cohort, change: Callable[[Array], Array]) -> World:
    def judged(of: Cohort) -> Judge:
        inputs = change(_with_one(of.inputs))
        return lambda weights: 100 * _ordered(of, (inputs @ (weights[1] - weights[0])).astype(np.float64))

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


def _rates(least: float, count: int, times: float) -> tuple[float, ...]:
    return tuple(float(f"{least * times**number:.3g}") for number in range(count))


def tasks(places: Places) -> dict[str, Task]:
    """All that is tried; a grid of rates is wide enough that the best of the plain line lies inside."""
    many = partial(Task, rounds=10, local_steps=4, share=0.128)
    made = partial(partial, _clients, places)
    pixels: dict[str, Any] = {"classes": 10, "rates": _rates(0.9, 8, 3), "adam_rates": _rates(0.001, 8, 3)}
    wide: dict[str, Any] = {"adam_rates": _rates(0.003, 8, 3)}
    few = partial(Task, classes=2, share=0.5, rounds=20, local_steps=1, reach=1.5)
    hospitals: dict[str, Any] = {"rates": _rates(0.025, 8, 4), "adam_rates": _rates(0.0003, 7, 3)}
    return {
        "heart": few(
            title="heart disease, 4 hospitals", made=partial(_patients, places, "heart", "hospital"), **hospitals
        ),
        "tcga": few(title="TCGA-BRCA, 6 regions", made=partial(_patients, places, "tcga", "center"), **hospitals),
        "pixels": many(title="MNIST, pixels", made=made("mnist", "pixels", 1), **pixels),
        "views": many(title="MNIST, pixels, 4 views", made=made("mnist", "pixels", 4), **pixels),
        "scattering": many(
            title="MNIST, scattering features",
            made=made("mnist", "scattering", 1),
            classes=10,
            rates=_rates(0.9, 8, 3),
            **wide,
        ),
        "emnist": many(
            title="EMNIST, scattering features",
            made=made("emnist", "scattering", 1),
            classes=47,
            rates=_rates(3, 8, 3),
            **wide,
        ),
        "cifar10": many(
            title="CIFAR-10, EfficientNet's features",
            made=made("cifar10", "efficientnet", 1),
            classes=10,
            rates=_rates(1, 8, 3),
            **wide,
        ),
        "sst2": many(
            title="SST-2, MiniLM's features",
            made=made("sst2", "sentence", 1),
            classes=2,
            rates=_rates(0.3, 8, 3),
            **wide,
        ),
    }
