"""Each supported layer, in random shapes, against one backward pass per example (trap 13)."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lrdp.errors import Unsupported
from lrdp.training.gradients import Convolved, Geometry
from lrdp.training.layers import rule_for
from training.truth import assert_engine_is_exact, sum_of_squares

DTYPES = [torch.float64, torch.float32]
dtypes = st.sampled_from(DTYPES)
rows = st.integers(1, 4)
few = settings(max_examples=25)


def exact(layer, inputs, dtype):
    layer = layer.to(dtype)
    batch = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    assert_engine_is_exact(layer, sum_of_squares, batch, len(inputs[0]))


@few
@given(dtypes, rows, st.lists(st.integers(1, 9), max_size=2), st.integers(1, 7), st.integers(1, 7), st.booleans())
def test_linear(dtype, count, middle, inputs, outputs, bias):
    exact(nn.Linear(inputs, outputs, bias=bias), (torch.randn(count, *middle, inputs),), dtype)


@settings(max_examples=60)
@given(st.data(), dtypes, rows, st.sampled_from([1, 2, 3]), st.booleans())
def test_convolutions(data, dtype, count, dimensions, bias):
    axes = st.tuples(*[st.integers(1, 2)] * dimensions)
    groups = data.draw(st.sampled_from([1, 1, 2]))
    kernel, stride, dilation = data.draw(st.tuples(*[st.integers(1, 3)] * dimensions)), data.draw(axes), data.draw(axes)
    padding = data.draw(st.tuples(*[st.integers(0, 2)] * dimensions))
    sizes = [d * (k - 1) + 1 + data.draw(st.integers(0, 4)) for k, d in zip(kernel, dilation, strict=True)]
    inputs, outputs = groups * data.draw(st.integers(1, 3)), groups * data.draw(st.integers(1, 4))
    kind = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dimensions]
    layer = kind(inputs, outputs, kernel, stride, padding, dilation, groups, bias)
    exact(layer, (torch.randn(count, inputs, *sizes),), dtype)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel")
@pytest.mark.parametrize("mode", ["zeros", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("padding", ["same", "valid", 2])
def test_convolutions_with_other_paddings(mode, padding):
    layer = nn.Conv2d(3, 4, (2, 3), padding=padding, padding_mode=mode)
    exact(layer, (torch.randn(3, 3, 6, 7),), torch.float64)


@few
@given(st.data(), st.sampled_from([1, 2]), st.sampled_from([1, 2]), st.sampled_from([1, 2]))
def test_the_three_ways_to_a_convolutions_norm_agree(data, groups, stride, dilation):
    sizes = data.draw(st.tuples(st.integers(5, 8), st.integers(5, 8)))
    layer = nn.Conv2d(2 * groups, 3 * groups, 3, stride, 1, dilation, groups).double()
    inputs = torch.randn(3, 2 * groups, *sizes, dtype=torch.float64)
    outputs = torch.randn_like(layer(inputs))
    form = Geometry(tuple(layer.weight.shape), (stride,) * 2, (1, 1), (dilation,) * 2, groups)
    convolved = Convolved(inputs, outputs, form)
    truth = convolved.rows(slice(None)).square().sum(1)
    for gram in (convolved._patch_gram, convolved._pixel_gram):
        found = convolved._by_gram(gram, 1 << 22, 2 * 9).squares
        assert bool((found >= truth * (1 - 1e-15)).all())
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=0.0)


@few
@given(dtypes, rows, st.integers(1, 40), st.integers(2, 9), st.sampled_from([None, 0, 1]))
def test_embedding(dtype, count, steps, entries, padding):
    layer = nn.Embedding(entries, 5, padding_idx=padding)
    with torch.no_grad():
        layer.weight.normal_()
    exact(layer, (torch.randint(0, entries, (count, steps)),), dtype)


@few
@given(dtypes, rows, st.lists(st.integers(2, 6), min_size=1, max_size=3), st.sampled_from([0, 1, 2, 3]))
def test_normalisations(dtype, count, sizes, which):
    channels, places = 6, sizes
    layer, shape = [
        (nn.GroupNorm(3, channels), (channels, *places)),
        (nn.LayerNorm(places), (4, *places)),
        (nn.RMSNorm(places), (4, *places)),
        (
            [nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d][len(places) - 1](channels, affine=True),
            (channels, *places),
        ),
    ][which]
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    exact(layer, (torch.randn(count, *shape),), dtype)


class SharedPattern(nn.Module):
    """Multiplies every example with the same normalised pattern."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)

    def forward(self, inputs):
        return inputs * self.norm(torch.arange(4.0, dtype=inputs.dtype).square()[None])


@pytest.mark.parametrize("frozen", [None, "weight", "bias"])
def test_group_normalisation_of_what_all_examples_share(frozen):
    model = SharedPattern()
    if frozen:
        getattr(model.norm, frozen).requires_grad_(False)
    exact(model, (torch.randn(5, 4),), torch.float64)


@few
@given(
    st.sampled_from([nn.LSTM, nn.GRU, nn.RNN]),
    dtypes,
    rows,
    st.integers(1, 6),
    st.integers(1, 2),
    st.booleans(),
    st.booleans(),
)
def test_recurrent_layers(kind, dtype, count, steps, layers, both_ways, bias):
    layer = kind(3, 4, layers, batch_first=True, bidirectional=both_ways, bias=bias)
    exact(layer, (torch.randn(count, steps, 3),), dtype)


def test_a_recurrent_layer_written_out_gives_what_the_fused_one_gives():
    class Last(nn.Module):
        def __init__(self, kind, **options):
            super().__init__()
            self.inner = kind(3, 5, 2, bidirectional=True, **options)

        def forward(self, inputs, *states):
            _, final = self.inner(
                inputs.transpose(0, 1), *([tuple(s.transpose(0, 1) for s in states)] if states else [])
            )
            hidden = torch.cat(final, -1) if isinstance(final, tuple) else final
            return hidden.transpose(0, 1)

    inputs = torch.randn(3, 4, 3)
    exact(Last(nn.GRU), (inputs,), torch.float64)
    exact(Last(nn.RNN, nonlinearity="relu"), (inputs,), torch.float64)
    exact(Last(nn.LSTM), (inputs, torch.randn(3, 4, 5), torch.randn(3, 4, 5)), torch.float64)


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
def test_an_lstm_with_projections():
    exact(nn.LSTM(3, 5, 2, batch_first=True, proj_size=2), (torch.randn(3, 4, 3),), torch.float64)


class Attention(nn.Module):
    def __init__(self, cross, masked, **options):
        super().__init__()
        self.inner = nn.MultiheadAttention(6, 2, **options)
        self.cross, self.masked, self.first = cross, masked, options.get("batch_first", False)

    def forward(self, query, key):
        key = key if self.cross else query
        padding = torch.zeros(key.shape[:2], dtype=torch.bool)
        padding[:, -1] = self.masked
        mask = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool).triu(1) if self.masked else None
        if not self.first:
            query, key = query.transpose(0, 1), key.transpose(0, 1)
        value = key if key is query else key * 2.0
        out, weights = self.inner(query, key, value, key_padding_mask=padding, attn_mask=mask)
        out = out if self.first else out.transpose(0, 1)
        return torch.cat([out.flatten(1), weights.flatten(1)], 1)


@pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask")
@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"batch_first": True, "bias": False}, {"kdim": 6, "vdim": 6, "batch_first": True}]
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_multi_head_attention(cross, masked, options, dtype):
    exact(Attention(cross, masked, **options), (torch.randn(3, 4, 6), torch.randn(3, 5, 6)), dtype)


@pytest.mark.parametrize(
    "layer", [nn.ConvTranspose2d(3, 4, 3), nn.Bilinear(3, 3, 5), nn.PReLU(3), nn.EmbeddingBag(9, 4)]
)
def test_layers_without_a_rule_fall_back_to_exact_gradients(layer):
    assert rule_for(layer) is None
    inputs = {
        nn.ConvTranspose2d: (torch.randn(3, 3, 4, 4),),
        nn.Bilinear: (torch.randn(3, 3), torch.randn(3, 3)),
        nn.PReLU: (torch.randn(3, 3, 5),),
        nn.EmbeddingBag: (torch.randint(0, 9, (3, 6)),),
    }[type(layer)]
    exact(layer, inputs, torch.float64)


def test_inputs_that_do_not_lie_in_a_row_in_memory():
    """Steps and features exchanged, as by a model that works along the other dimension: both factors are then views."""

    class Across(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(40, 30), nn.Linear(4, 30)

        def forward(self, inputs):
            return self.second(self.first(inputs.transpose(1, 2)).tanh().transpose(1, 2))

    exact(Across(), (torch.randn(5, 40, 4),), torch.float64)
    exact(Across(), (torch.randn(5, 40, 4),), torch.float32)


def test_small_chunks_change_nothing(monkeypatch):
    monkeypatch.setattr("lrdp.training.gradients.protocol.TRANSIENT_BYTES", 64)
    for place in ("gradients.dense", "gradients.convolved", "layers.fallback"):
        monkeypatch.setattr(f"lrdp.training.{place}.KEPT_BYTES", 0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.PReLU(4), nn.Flatten(2), nn.Linear(16, 3))
    exact(model, (torch.randn(5, 3, 6, 6),), torch.float64)
    exact(nn.Embedding(3, 2), (torch.randint(0, 3, (4, 9)),), torch.float64)


def test_a_subclass_with_its_own_forward_does_not_get_the_parents_rule():
    class Doubled(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs) * 2.0 + self.weight.sum()

    assert rule_for(Doubled(3, 3)) is None
    exact(Doubled(3, 3), (torch.randn(4, 3),), torch.float64)


def test_embeddings_that_look_across_examples_are_refused():
    for name, value in (("max_norm", 1.0), ("scale_grad_by_freq", True)):
        with pytest.raises(Unsupported, match=name):
            exact(nn.Embedding(5, 2, **{name: value}), (torch.randint(0, 5, (3, 4)),), torch.float64)  # type: ignore[arg-type]
