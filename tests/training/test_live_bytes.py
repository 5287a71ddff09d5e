"""Nothing of size examples × parameters is held, whatever the layer and whatever the records."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from lrdp.training.clipping import coefficients
from lrdp.training.engine import Engine
from lrdp.training.gradients.protocol import TRANSIENT_BYTES
from lrdp.training.memory import LiveBytes
from training.truth import accumulated

ROWS, SIZE = 96, 500
ONE = SIZE * SIZE * 4  # bytes of one example's gradient


class RawMatrix(nn.Module):
    """A parameter of no layer that has a rule."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(SIZE))

    def forward(self, inputs):
        return inputs @ self.weight


class BesideALayer(RawMatrix):
    """The layer's own parameters are trained too, so a second run would record a graph if it were let."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Linear(1, 1)

    def forward(self, inputs):
        return self.scale((inputs @ self.weight)[:, :, None])[:, :, 0]


class TiedRaw(RawMatrix):
    def forward(self, inputs):
        return inputs @ self.weight + inputs @ self.weight.t()


MODELS = {
    "raw": RawMatrix,
    "raw, used twice": TiedRaw,
    "raw, beside a layer": BesideALayer,
    "linear": lambda: nn.Linear(SIZE, SIZE),
    "linear, long": lambda: nn.Sequential(nn.Unflatten(1, (5, 100)), nn.Linear(100, 800), nn.Flatten(1)),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (20, 5, 5)), nn.Conv2d(20, 64, 3, padding=1), nn.Flatten(1)),
}


def loss(model, batch):
    inputs, scales = batch
    return model(inputs).square().mean(1) * scales


def peak(model, scales):
    """The most bytes that a pass holds at once, its total included."""
    inputs = torch.randn(ROWS, SIZE, generator=torch.Generator().manual_seed(1))
    totals: dict[Any, Any] = {}
    with Engine(model, loss) as engine, LiveBytes() as live:
        accumulated(engine, (inputs, scales), ROWS, lambda found: coefficients(found, 1.0, torch.float32), totals)
    assert all(bool(torch.isfinite(total).all()) for total in totals.values())
    return live.peak


@pytest.mark.parametrize("name", ["raw", "raw, used twice", "raw, beside a layer"])
def test_a_parameter_without_a_rule_holds_a_few_examples_gradients_and_not_all(name):
    found = peak(MODELS[name](), torch.ones(ROWS))
    assert found < 5 * TRANSIENT_BYTES < ROWS * ONE / 2


@pytest.mark.parametrize("name", MODELS)
def test_a_record_that_is_infinite_takes_no_more_memory_than_any_other(name):
    """Beyond the eight bytes of its own number in the list of rows without weight."""
    scales = torch.ones(ROWS)
    ordinary = peak(MODELS[name](), scales)
    scales[ROWS // 2] = math.inf
    assert 0 <= peak(MODELS[name](), scales) - ordinary <= 8
