"""Norms, coefficients and their rounding (traps 11, 17, 18, 39)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lrdp.training.clipping import HEADROOM, coefficients, row_squares, safe_bound, wide
from training.truth import clipped, engine_sum, gradients_one_by_one, sum_of_squares


def test_a_norm_of_millions_of_elements_is_not_underestimated():
    generator = torch.Generator().manual_seed(7)
    row = torch.randn(1, 16_777_216 + 5, generator=generator)
    truth = float(row.double().norm())
    assert abs(float(row_squares(row)) ** 0.5 / truth - 1) < 1e-6
    assert float(row.norm(dim=1)) / truth - 1 < -1e-5  # control: one running float32 sum falls short


def test_norms_are_added_up_in_float64_wherever_a_device_has_it():
    assert [wide(torch.device(name)) for name in ("cpu", "cuda", "mps")] == [
        torch.float64,
        torch.float64,
        torch.float32,
    ]


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=9), st.floats(1e-6, 1e6))
def test_coefficients_bring_every_norm_within_the_bound(squares, bound):
    values = torch.tensor(squares, dtype=torch.float64)
    found = coefficients(values, bound)
    assert bool((found * values.sqrt() <= bound * (1 + 1e-12)).all())
    assert bool(((found == 1.0) | (values.sqrt() >= bound * (1 - 1e-12))).all())


def test_what_is_not_finite_gets_no_weight():
    found = coefficients(torch.tensor([math.inf, math.nan, 0.0, 4.0], dtype=torch.float64), 1.0)
    assert found.tolist() == [0.0, 0.0, 1.0, 0.5]
    assert min(1.0, 1.0 / math.nan) == 1.0  # control: the trap, as Python's min answers


def model_and_batch(rows=16, scale=1.0):
    torch.manual_seed(11)
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.GroupNorm(2, 8), nn.Tanh(), nn.Flatten(2), nn.Linear(6, 5))
    return model, (torch.randn(rows, 3, 8) * scale,)


def test_each_examples_share_is_within_the_clip_norm_over_all_parameters_together():
    model, batch = model_and_batch()
    bound = safe_bound(0.31, torch.float32)
    shares = []
    for row in range(16):
        only = torch.zeros(16, dtype=torch.float64)
        only[row] = 1.0
        share, _ = engine_sum(model, sum_of_squares, batch, 16, lambda s, only=only: coefficients(s, bound) * only)
        shares.append(float(share.norm()))
    assert max(shares) <= 0.31
    assert max(shares) > 0.3
    one_by_one = gradients_one_by_one(model, sum_of_squares, batch, 16)
    sizes = [parameter.numel() for parameter in model.parameters()]
    by_tensor = torch.cat([clipped(part, 0.31) for part in one_by_one.split(sizes, 1)], 1)
    assert float(by_tensor.norm(dim=1).max()) > 0.31 * 1.5  # control: clipped tensor by tensor


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_record_that_is_not_finite_leaves_the_sum_as_if_it_were_absent(bad):
    model, (inputs,) = model_and_batch()
    inputs[5, 1, 2] = bad
    bound = 0.31
    with_it, norms = engine_sum(model, sum_of_squares, (inputs,), 16, lambda s: coefficients(s, bound))
    others = torch.cat([inputs[:5], inputs[6:]])
    without, _ = engine_sum(model, sum_of_squares, (others,), 15, lambda s: coefficients(s, bound))
    if bool(torch.isfinite(norms[5])):
        return
    torch.testing.assert_close(with_it, without, rtol=1e-5, atol=1e-7)
    plain = gradients_one_by_one(model, sum_of_squares, (inputs,), 16)
    assert not bool(torch.isfinite((plain * 0.0).sum(0)).all())  # control: a weight of zero alone does not help


@pytest.mark.parametrize("layer", ["linear", "embedding", "recurrent", "raw", "convolution"])
def test_no_layer_lets_one_records_infinity_reach_the_others(layer):
    torch.manual_seed(3)

    class Raw(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(4))

        def forward(self, inputs):
            return inputs * self.scale

    models = {
        "linear": nn.Linear(4, 3),
        "embedding": nn.Sequential(nn.Embedding(4, 3), nn.Flatten(1)),
        "recurrent": nn.GRU(4, 3, batch_first=True),
        "raw": Raw(),
        "convolution": nn.Conv1d(5, 2, 3),
    }
    numbers = torch.randint(0, 4, (3, 5)) if layer == "embedding" else torch.randn(3, 5, 4)
    scales = torch.tensor([1.0, math.inf, 1.0])

    def loss(model, batch):
        return sum_of_squares(model, batch[:1]) * batch[1]

    found, norms = engine_sum(models[layer], loss, (numbers, scales), 3, lambda s: coefficients(s, 1.0))
    assert not bool(torch.isfinite(norms[1]))
    rest = (numbers[[0, 2]], scales[[0, 2]])
    without, _ = engine_sum(models[layer], loss, rest, 2, lambda s: coefficients(s, 1.0))
    torch.testing.assert_close(found, without, rtol=1e-5, atol=1e-6)


def test_terms_that_cancel_do_not_slip_past_the_clip():
    """Large steps of a sequence that nearly cancel: the Gram matrices round, the clip must hold all the same."""
    torch.manual_seed(1)
    layer = nn.Linear(400, 400, bias=False)
    inputs = torch.randn(1, 1, 400).expand(2, 16, 400).contiguous() * 1e3
    signs = torch.tensor([1.0, -1.0]).repeat(8)[None, :, None]

    def loss(model, batch):
        return (model(batch[0]) * batch[1] * signs).sum((1, 2))

    slopes = torch.full((2, 16, 400), 1e3) + torch.randn(2, 16, 400) * 1e-4
    share, _ = engine_sum(layer, loss, (inputs, slopes), 2, lambda s: coefficients(s, 1.0) * torch.tensor([1.0, 0.0]))
    assert float(share.norm()) <= 1.0 + HEADROOM[torch.float32]


def test_rounding_of_a_batch_of_thousands_stays_within_the_headroom():
    """All gradients point the same way: the worst case for a float32 sum."""
    torch.manual_seed(2)
    model = nn.Linear(30, 20)
    inputs = (torch.ones(4096, 30) + 1e-3 * torch.randn(4096, 30),)
    bound = safe_bound(1.0, torch.float32)
    found, _ = engine_sum(model, sum_of_squares, inputs, 4096, lambda s: coefficients(s, bound))
    truth = clipped(gradients_one_by_one(model, sum_of_squares, inputs, 4096), bound).sum(0)
    assert float((found - truth).norm()) < HEADROOM[torch.float32]
