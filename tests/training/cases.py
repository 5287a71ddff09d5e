"""A small task that every test of updates starts from."""

from __future__ import annotations

import torch
from torch import nn

from lrdp.accounting import FixedSizeGaussian, TruncatedPoissonGaussian
from lrdp.ledger.receipt import issue
from lrdp.training import CrossEntropy, PublicConstants, Sgd, Task, TensorRecords
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared

RECORDS = 61


def records(count=RECORDS, classes=3):
    generator = torch.Generator().manual_seed(17)
    return TensorRecords(
        torch.randn(count, 5, generator=generator), torch.randint(0, classes, (count,), generator=generator)
    )


def model():
    with torch.random.fork_rng():
        torch.manual_seed(23)
        return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3))


def task(**changes):
    settings = {"clip_norm": 0.7, "optimiser": Sgd(lr=0.5)} | changes.pop("constants", {})
    given = {"model": model(), "dataset": records(), "loss": CrossEntropy(classes=3)} | changes
    return Task(constants=PublicConstants(**settings), **given)


def fixed(batch=13, noise=1.3, accounted=RECORDS):
    return FixedSizeGaussian(dataset_size=accounted, batch_size=batch, noise_multiplier=noise)


def poisson(batch=13, cap=19, noise=1.3, accounted=RECORDS):
    return TruncatedPoissonGaussian(dataset_size=accounted, batch_size=batch, cap=cap, noise_multiplier=noise)


def keys(sampling=1, noise=2):
    return Randomness(sampling=Keystream(bytes([sampling] * 32)), noise=Keystream(bytes([noise] * 32)))


def run(mechanism, given, steps=1, randomness=None):
    with prepared(mechanism, given) as ready:
        return ready.run(steps, randomness or keys())


def vector(delta):
    return torch.cat([part.double().flatten() for part in delta.values()])


def receipt(mechanism=None, steps=2, clip_norm=0.7):
    return issue(mechanism=mechanism or fixed(), steps=steps, clip_norm=clip_norm, request_key="r", entry=1)


class Wide(nn.Module):
    """Many outputs, so that noise can be told from other noise."""

    def __init__(self, width=5):
        super().__init__()
        self.line = nn.Linear(width, 20_000)
        nn.init.zeros_(self.line.weight)
        nn.init.zeros_(self.line.bias)

    def forward(self, inputs):
        return self.line(inputs)


def silent(count=RECORDS):
    """Records from which nothing is learnt by ``positive_part``: what comes out is noise alone."""
    return TensorRecords(-torch.ones(count, 5), torch.zeros(count, dtype=torch.int64))


def positive_part(model, batch):
    """Made-up records lie above zero, so the check of the gradients has something to look at."""
    return model(batch[0]).sum(1) * batch[0].sum(1).clamp(min=0.0)


def noise_only(**changes):
    """A task whose gradients are zero on its own records."""
    return task(**{"model": Wide(), "loss": positive_part, "dataset": silent()} | changes)
