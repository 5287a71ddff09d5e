"""A study of utility that takes a second: three clients, made-up features, and the shipped methods."""

from pathlib import Path

import torch

from lrdp.experiments import utility
from lrdp.experiments.data import Prepared, Split
from lrdp.experiments.study import Places, Results, read_settings
from lrdp.experiments.study.settings import laid_over
from lrdp.experiments.utility import shares

SETTINGS = Path(__file__).parents[2] / "experiments" / "utility.toml"
FEATURES, CLASSES, RECORDS = 7, 3, 333
CHANGES = {
    "clients": 3,
    "epsilons": [8.0],
    "seeds": [0, 1],
    "tuning_seeds": [100],
    "only_tasks": ["mnist"],
    "tasks": {
        "mnist": {"batch_size": 24, "rates": [0.5, 2.0], "rounds": 3, "local_steps": 2, "data": {"most_train": 371}}
    },
    "methods": {"truncated": {"micro_batch": 16}},
}


def made_up(_settings, _places):
    """Features of unit norm whose largest class score is mostly the label."""
    source = torch.Generator().manual_seed(29)
    weights = torch.randn(FEATURES, CLASSES, generator=source)

    def split(records):
        inputs = torch.nn.functional.normalize(torch.randn(records, FEATURES, generator=source), dim=1)
        scores = inputs @ weights + 0.2 * torch.randn(records, CLASSES, generator=source)
        return Split(inputs, scores.argmax(1))

    return Prepared(split(RECORDS), split(120), split(150), CLASSES)


def small(**changes):
    """The shipped study with less of everything."""
    return utility.study(laid_over(laid_over(read_settings(SETTINGS, quick=False), CHANGES), changes))


def use_made_up(monkeypatch):
    """In place of files."""
    monkeypatch.setattr(shares, "prepared", made_up)
    shares._loaded.cache_clear()
    shares._holdings.cache_clear()


def places(folder):
    return Places(data=folder / "data", features=folder / "features", results=folder / "results")


def run(study, where, results=None, stages=5):
    """The first stages, without the store."""
    results = Results() if results is None else results
    for stage in study.stages[:stages]:
        for cell in stage(results):
            results.add(cell, study.work(cell, where))
    return results
