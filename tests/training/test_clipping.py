"""Norms, coefficients and their rounding (traps 11, 17, 18, 39, 41, 49)."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import InvalidInput, Unsupported
from lrdp.training import AutomaticClipping, PublicConstants, Sgd, TensorRecords
from lrdp.training.clipping import Lengths, coefficients, row_squares
from lrdp.training.gradients import dense
from lrdp.training.kernels import check_kernels, full_precision
from lrdp.training.layers import Batched
from lrdp.training.local_steps import _check_totals, prepared
from lrdp.training.rounding import HEADROOM, Meeting, can_add_up, clip_target, meeting, meeting_limit
from lrdp.training.sampling import Draw
from training.cases import task
from training.truth import clipped, engine_sum, gradients_one_by_one, sum_of_squares

SINGLE, DOUBLE = torch.float32, torch.float64


def of(squares, roundings=None):
    squares = torch.as_tensor(squares, dtype=DOUBLE)
    return Lengths(squares, torch.zeros_like(squares) if roundings is None else torch.tensor(roundings, dtype=DOUBLE))


def clip_to(bound, only=1.0):
    """Weights as in training."""
    return lambda lengths: coefficients(lengths, bound, SINGLE) * only


def test_a_norm_of_millions_of_elements_is_not_underestimated():
    generator = torch.Generator().manual_seed(7)
    row = torch.randn(1, 16_777_216 + 5, generator=generator)
    truth = float(row.double().norm())
    assert 0 <= float(row_squares(row)) ** 0.5 / truth - 1 < 2e-4
    assert float(row.norm(dim=1)) / truth - 1 < -1e-5  # control: one running float32 sum falls short


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("size", [1e-44, 1e-30, 1e-21, 1e-10, 1.0, 1e10, 1e18])
def test_no_norm_lies_below_the_truth_at_any_scale(size, flush):
    """Squares of values below 1e-19 vanish in float32, and denormals where a processor flushes them."""
    values = torch.randn(3, 5000, generator=torch.Generator().manual_seed(1)) * size
    truth = values.double().square().sum(1)
    torch.set_flush_denormal(flush)
    try:
        assert bool((row_squares(values) >= truth).all())
    finally:
        torch.set_flush_denormal(False)


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=9), st.floats(1e-6, 1e6))
def test_coefficients_bring_every_norm_within_the_bound(squares, clip_norm):
    bound = clip_target(clip_norm, SINGLE)
    norms = torch.tensor(squares, dtype=DOUBLE).sqrt()
    found = coefficients(of(squares), clip_norm, SINGLE)
    assert bool((found * norms <= bound * (1 + 1e-12)).all())
    assert bool(((found == 1.0) | (norms >= bound * (1 - 1e-12))).all())


@given(st.floats(0, 1e30), st.floats(0, 1e30), st.floats(1e-6, 1e6))
def test_coefficients_bring_every_rounding_within_its_share(square, rounding, clip_norm):
    found = float(coefficients(of([square], [rounding]), clip_norm, SINGLE))
    assert found * rounding**0.5 <= meeting_limit(clip_norm, SINGLE) * (1 + 1e-12)


def test_what_is_not_finite_gets_no_weight():
    given = of([math.inf, math.nan, 0.0, 4.0, 4.0, 4.0], [0.0, 0.0, 0.0, 0.0, math.nan, math.inf])
    assert coefficients(given, 1.0, DOUBLE).tolist() == [0.0, 0.0, 1.0, clip_target(1.0, DOUBLE) / 2, 0.0, 0.0]
    assert min(1.0, 1.0 / math.nan) == 1.0  # control: the trap, as Python's min answers


def test_no_coefficient_is_so_small_that_float32_cannot_hold_it():
    """A denormal rounds by any share of itself: at a clip norm of 1e-9 that was seen to give 1.96 clip norms."""
    squares = torch.logspace(0, 300, 400, dtype=DOUBLE)
    found = coefficients(of(squares), 1e-6, SINGLE)
    kept = found[found > 0]
    assert bool((kept.float().double() / kept - 1).abs().max() < 1e-7)
    assert bool((found == 0).any())
    tiny = torch.tensor(3.1e-45, dtype=DOUBLE)
    assert abs(float(tiny.float().double() / tiny) - 1) > 0.05  # control
    with pytest.raises(InvalidInput, match="between 1e-06"):
        PublicConstants(clip_norm=1e-9, optimiser=Sgd(lr=0.5))


@pytest.mark.parametrize("dtype", [SINGLE, DOUBLE])
def test_as_many_examples_meet_as_rounding_allows(dtype):
    sizes = [meeting(terms, dtype).rows for terms in (1, 4, 16, 64, 256, 4096)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(Meeting(rows, 1, dtype).radius < Meeting(2 * rows, 1, dtype).radius for rows in sizes)
    assert meeting(64, SINGLE).rows < meeting(64, DOUBLE).rows


def test_totals_are_wide_where_many_sums_are_added_up():
    assert can_add_up(128, 17, SINGLE, SINGLE)
    assert not can_add_up(4096, 65, SINGLE, SINGLE)
    assert can_add_up(4096, 65, SINGLE, DOUBLE)


@pytest.mark.parametrize(("dtype", "fitting", "too_many"), [(SINGLE, 1_000_000, 1_500_000), (DOUBLE, 50_000, 60_000)])
def test_a_step_of_more_rows_than_can_be_added_up_is_refused(dtype, fitting, too_many):
    _check_totals(fitting, dtype)
    with pytest.raises(InvalidInput, match="smaller batches"):
        _check_totals(too_many, dtype)


def test_reduced_precision_is_turned_off_meanwhile_and_comes_back():
    torch.set_float32_matmul_precision("medium")
    try:
        with full_precision():
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"  # type: ignore[attr-defined]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_device_whose_products_lose_bits_is_refused(monkeypatch):
    check_kernels(torch.device("cpu"), SINGLE)
    with pytest.raises(Unsupported, match="move the model to the CPU"):
        check_kernels(torch.device("mps"), SINGLE)

    def reduced(self, other):
        return torch.mm(self.bfloat16(), other.bfloat16()).float()

    monkeypatch.setattr(torch.Tensor, "__matmul__", reduced)
    with pytest.raises(Unsupported, match="lose bits"):
        check_kernels(torch.device("cpu"), SINGLE)


def model_and_batch(rows=16, scale=1.0):
    torch.manual_seed(11)
    model = nn.Sequential(nn.Conv1d(3, 8, 3), nn.GroupNorm(2, 8), nn.Tanh(), nn.Flatten(2), nn.Linear(6, 5))
    return model, (torch.randn(rows, 3, 8) * scale,)


def test_each_examples_share_is_within_the_clip_norm_over_all_parameters_together():
    model, batch = model_and_batch()
    shares = []
    for row in range(16):
        only = torch.zeros(16, dtype=DOUBLE)
        only[row] = 1.0
        share, _ = engine_sum(model, sum_of_squares, batch, 16, clip_to(0.31, only))
        shares.append(float(share.norm()))
    assert max(shares) <= 0.31
    assert max(shares) > 0.3
    one_by_one = gradients_one_by_one(model, sum_of_squares, batch, 16)
    sizes = [parameter.numel() for parameter in model.parameters()]
    by_tensor = torch.cat([clipped(part, 0.31) for part in one_by_one.split(sizes, 1)], 1)
    assert float(by_tensor.norm(dim=1).max()) > 0.31 * 1.5  # control: clipped tensor by tensor


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e38])
def test_a_record_that_is_not_finite_leaves_the_sum_as_if_it_were_blank(bad):
    model, (inputs,) = model_and_batch()
    inputs[5, 1, 2] = bad
    with_it, norms = engine_sum(model, sum_of_squares, (inputs,), 16, clip_to(0.31))
    assert not bool(torch.isfinite(norms[5]))
    blank, others = inputs.clone(), torch.ones(16)
    blank[5], others[5] = 0.0, 0.0
    without, _ = engine_sum(model, sum_of_squares, (blank,), 16, clip_to(0.31, others))
    assert torch.equal(with_it, without)
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

    found, norms = engine_sum(models[layer], loss, (numbers, scales), 3, clip_to(1.0))
    assert not bool(torch.isfinite(norms[1]))
    rest = (numbers[[0, 2]], scales[[0, 2]])
    without, _ = engine_sum(models[layer], loss, rest, 2, clip_to(1.0))
    torch.testing.assert_close(found, without, rtol=1e-5, atol=1e-6)


def test_a_row_with_one_output_out_of_range_adds_nothing_through_its_others_either():
    class TwoHeads(nn.Module):
        def __init__(self):
            super().__init__()
            self.mean, self.scale = nn.Linear(4, 1), nn.Linear(4, 1)

        def forward(self, inputs):
            return self.mean(inputs), self.scale(inputs).exp()

    def loss(model, batch):
        mean, scale = model(*batch)
        return (mean + scale).flatten()

    torch.manual_seed(4)
    model, inputs = TwoHeads(), torch.randn(3, 4)
    inputs[1] += 70 * model.scale.weight.detach()[0] / model.scale.weight.square().sum()
    assert 2.0**60 < model(inputs)[1][1].item() < math.inf
    _, norms = engine_sum(model, loss, (inputs,), 3, clip_to(1.0))
    assert torch.isfinite(norms).tolist() == [True, False, True]


LAYERS = {
    "linear": (lambda: nn.Linear(1600, 3, bias=False), (1600,), (3,)),
    "linear, Gram": (lambda: nn.Linear(400, 30, bias=False), (5, 400), (5, 30)),
    "linear, multiplied out": (lambda: nn.Linear(100, 2, bias=False), (20, 100), (20, 2)),
    "convolution": (lambda: nn.Conv1d(30, 5, 2, bias=False), (30, 60), (5, 59)),
}


@pytest.mark.parametrize(("size", "flush"), [(2e-23, False), (2e-23, True), (1e-20, True)])
@pytest.mark.parametrize("layer", LAYERS)
def test_tiny_inputs_of_a_steep_loss_stay_within_the_clip_norm(layer, size, flush):
    """A gradient of 9e-3, of inputs whose squares are no float32, was measured as 0: nine clip norms of 1e-3.

    Whoever chooses the weights chooses both factors.
    """
    make, inner, outer = LAYERS[layer]
    model, inputs = make(), torch.full((2, *inner), size)
    slopes = torch.ones(2, *outer)
    slopes *= 9e-3 / float(inputs[0].double().norm()) / math.sqrt(math.prod(outer))

    def loss(model, batch):
        return (model(batch[0]) * batch[1]).flatten(1).sum(1)

    torch.set_flush_denormal(flush)
    try:
        assert float(inputs[0].square().sum()) == 0.0  # control: so does whatever it is multiplied with
        found, norms = engine_sum(model, loss, (inputs, slopes), 2, clip_to(1e-3, torch.tensor([1.0, 0.0])))
    finally:
        torch.set_flush_denormal(False)
    truth = gradients_one_by_one(model, loss, (inputs, slopes), 2).norm(dim=1)
    assert bool((truth > 4e-3).all())
    assert bool((norms >= truth).all())
    assert float(found.norm()) <= 1e-3


def test_rounding_of_a_batch_of_thousands_stays_within_the_headroom():
    """All gradients point the same way: the worst case for a float32 sum. The step as it is run in training."""
    torch.manual_seed(2)
    inputs = torch.ones(4096, 30) + 1e-3 * torch.randn(4096, 30)
    given = task(
        model=nn.Linear(30, 20), dataset=TensorRecords(inputs), loss=sum_of_squares, constants={"clip_norm": 1.0}
    )
    mechanism = FixedSizeGaussian(dataset_size=4096, batch_size=4095, noise_multiplier=1.0)
    with prepared(mechanism, given) as ready:
        totals = ready.clipped_sum(Draw(torch.arange(4096).numpy()))
    assert {total.dtype for total in totals.values()} == {DOUBLE}
    found = torch.cat([totals[parameter].double().flatten() for parameter in given.model.parameters()])
    truth = clipped(gradients_one_by_one(given.model, sum_of_squares, (inputs,), 4096), clip_target(1.0, SINGLE)).sum(0)
    # Norms are taken a little above the truth, so 4096 shares fall short by as much each; rounding comes on top.
    along = float(found @ truth / truth.norm())
    assert float((found - truth / truth.norm() * along).norm()) < HEADROOM[SINGLE]
    assert 0 <= 1 - along / float(truth.norm()) < 1e-4


class Wavering:
    """Gradients that come out longer when they are made again."""

    made = 0

    def rows(self, chosen):
        self.made += 1
        return torch.ones(4, 3)[chosen] * torch.tensor([[1.0], [1.0], [1.0 + 0.5 * (self.made > 1)], [1.0]])[chosen]


def test_a_gradient_that_comes_out_longer_than_it_was_measured_has_no_weight(monkeypatch):
    monkeypatch.setattr(dense, "KEPT_BYTES", 0)
    wavering: Any = Wavering()
    kept = dense.multiplied_out(wavering, 4, 3, SINGLE).kept
    total = torch.zeros(3)
    kept.add_to(total, torch.ones(4))
    assert total.tolist() == [3.0, 3.0, 3.0]


def test_an_update_of_more_rows_than_can_be_added_up_is_refused_before_anything_is_read():
    class Many:
        def __len__(self):
            return 2_000_001

        def __getitem__(self, number):
            return torch.zeros(5), 0

    mechanism = FixedSizeGaussian(dataset_size=2_000_001, batch_size=2_000_000, noise_multiplier=1.0)
    given = task(dataset=Many(), loss=sum_of_squares)
    with pytest.raises(InvalidInput, match="cannot be added up closely enough"), prepared(mechanism, given):
        pass


def test_which_tensors_have_a_row_for_each_example_is_learnt_from_made_up_batches_only():
    known = Batched()
    assert known.among("place", [torch.zeros(2)], 2) == (True,)
    known.settle()
    assert known.among("place", [torch.zeros(5)], 3) == (False,)
    assert known.among("place", [torch.zeros(3)], 3) == (True,), "a private batch has left no trace"


@given(st.floats(0.0, 1e30), st.floats(1e-6, 1e9), st.floats(1e-12, 1e6))
def test_automatic_clipping_lengthens_what_is_short_and_never_beyond_the_bound(norm, clip_norm, gamma):
    """By the formula in plain floats, up to 1024 times; the rounding's limit holds as for flat clipping."""
    (found,) = coefficients(of([norm**2]), clip_norm, SINGLE, AutomaticClipping(gamma=gamma)).tolist()
    longest = clip_target(clip_norm, SINGLE)
    length = math.sqrt(norm**2)
    wanted = min(longest / (length + gamma), 1024.0)
    assert found == pytest.approx(wanted if wanted >= 2.0**-100 else 0.0, rel=1e-12)
    assert found * length <= longest * (1 + 1e-15)
    limited = coefficients(of([norm**2], [clip_norm**2]), clip_norm, SINGLE, AutomaticClipping(gamma=gamma))
    assert float(limited) <= meeting_limit(1.0, SINGLE) * (1 + 1e-12)


def test_a_clipping_of_ones_own_is_refused_for_it_could_look_at_everybodys_lengths():
    class ByTheLongest(AutomaticClipping):
        def scales(self, norms, longest):
            return longest / norms.max().expand(len(norms))

    for own in (ByTheLongest(gamma=0.1), "automatic", None):
        with pytest.raises(InvalidInput, match="tie records together"):
            PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1), clipping=own)  # type: ignore[arg-type]


@pytest.mark.parametrize("gamma", [0.0, -1.0, math.nan, math.inf, "0.01"])
def test_a_gamma_that_is_no_length_is_refused(gamma):
    with pytest.raises(InvalidInput, match="gamma"):
        AutomaticClipping(gamma=gamma)
