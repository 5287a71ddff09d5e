"""Whole models, against one backward pass per example: tied, frozen, reused, raw, adapted (trap 13)."""

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import Unsupported
from lrdp.training import replace_batch_norm
from lrdp.training.engine import Engine
from lrdp.training.memory import LiveBytes
from lrdp.training.tape import Tape
from training.truth import (
    accumulated,
    assert_engine_is_exact,
    clipped,
    engine_sum,
    gradients_one_by_one,
    sum_of_squares,
)

DTYPES = [torch.float64, torch.float32]


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(4711)


def to(dtype, model, *inputs):
    return model.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)


class TiedLanguageModel(nn.Module):
    """Positions [1, steps], an embedding that is also the head, a linear layer used twice."""

    def __init__(self, entries=13, width=6, steps=7):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(entries, width), nn.Embedding(steps, width)
        self.twice, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.head = nn.Linear(width, entries, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1])[None])
        return self.head(self.norm(self.twice(self.twice(hidden).tanh())))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("entries", [5, 13, 200])
def test_tied_and_reused_weights_count_their_cross_terms(dtype, entries):
    model, batch = to(dtype, TiedLanguageModel(entries), torch.randint(0, entries, (4, 7)))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)


def test_the_sum_of_the_uses_norms_would_be_wrong():
    """Control: without cross terms, a tied weight's norm differs."""
    model, batch = to(torch.float64, TiedLanguageModel(), torch.randint(0, 13, (4, 7)))
    untied = copy.deepcopy(model)
    untied.head.weight = nn.Parameter(model.head.weight.detach().clone())
    tied_norms = gradients_one_by_one(model, sum_of_squares, batch, 4).norm(dim=1)
    assert not torch.allclose(gradients_one_by_one(untied, sum_of_squares, batch, 4).norm(dim=1), tied_norms, rtol=1e-3)


def test_convolutions_and_norms_used_twice():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.norm, self.slope = nn.Conv1d(2, 2, 3, padding=1), nn.GroupNorm(1, 2), nn.PReLU(2)

        def forward(self, inputs):
            once = self.slope(self.norm(self.convolution(inputs)))
            return self.slope(self.norm(self.convolution(once)))

    model, batch = to(torch.float64, Siamese(), torch.randn(4, 2, 6))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)


@pytest.mark.parametrize("kept", ["0.", "2.", "bias", "4."])
def test_frozen_parameters_count_nothing(kept):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(64, 3))
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(kept in name)
    model, batch = to(torch.float64, model, torch.randn(4, 3, 6, 6))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)
    assert all(parameter.grad is None for parameter in model.parameters())


class Adapted(nn.Module):
    """A frozen linear layer with a trained low-rank detour."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    def forward(self, inputs):
        return self.base(inputs) + self.up(self.down(inputs))


def test_low_rank_adapters():
    model = nn.Sequential(Adapted(nn.Linear(5, 8)), nn.GELU(), Adapted(nn.Linear(8, 4)))
    model, batch = to(torch.float64, model, torch.randn(4, 3, 5))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)


class VisionTransformer(nn.Module):
    """Raw parameters at the top: class token and positions."""

    def __init__(self, width=8, patches=4):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, patches + 1, width))
        block = nn.TransformerEncoderLayer(width, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(block, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, 3)

    def forward(self, images):
        patches = self.patch(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(images), -1, -1), patches], 1) + self.positions
        return self.head(self.blocks(tokens)[:, 0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vision_transformer_with_raw_parameters(dtype):
    model, batch = to(dtype, VisionTransformer(), torch.randn(3, 3, 8, 8))
    assert_engine_is_exact(model, sum_of_squares, batch, 3)


class Residual(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.Conv2d(width, width, 3, 1, 1, bias=False),
        )
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.short = nn.Conv2d(width, width, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, inputs):
        out = functional.relu(self.first_norm(self.first(inputs)), inplace=True)
        out = self.second_norm(self.second(out))
        out += self.short(inputs)
        return functional.relu(out, inplace=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_residual_network_after_replacing_batch_norm(dtype):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Residual(8, 1), Residual(8, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    with pytest.raises(Unsupported, match="replace_batch_norm"):
        Engine(model, sum_of_squares)
    model, batch = to(dtype, replace_batch_norm(model, groups=4), torch.randn(4, 3, 8, 8))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)


def test_a_batch_norm_that_has_two_names_is_replaced_under_both():
    norm = nn.BatchNorm2d(8)
    model = replace_batch_norm(nn.ModuleDict({"first": norm, "again": norm}))
    first, again = (model.get_submodule(name) for name in ("first", "again"))
    assert isinstance(first, nn.GroupNorm)
    assert isinstance(again, nn.GroupNorm)
    assert first.weight is again.weight


def test_an_lstm_classifier():
    class Classifier(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.memory = nn.Embedding(11, 5, padding_idx=0), nn.LSTM(5, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, tokens):
            return self.head(self.memory(self.tokens(tokens))[1][0][-1])

    model, batch = to(torch.float64, Classifier(), torch.randint(0, 11, (4, 8)))
    assert_engine_is_exact(model, sum_of_squares, batch, 4)


def test_images_folded_into_the_batch():
    class Frames(nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution, self.norm, self.head = nn.Conv2d(2, 3, 3), nn.GroupNorm(1, 3), nn.Linear(12, 2)

        def forward(self, frames):
            folded = self.norm(self.convolution(frames.flatten(0, 1)))
            return self.head(folded.flatten(1)).reshape(len(frames), -1)

    model, batch = to(torch.float64, Frames(), torch.randn(3, 5, 2, 4, 4))
    assert_engine_is_exact(model, sum_of_squares, batch, 3)


def hugging_face(name):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    tokens, images = torch.randint(0, 30, (3, 9)), torch.randn(3, 3, 8, 8)
    if name == "bert":
        config = transformers.BertConfig(vocab_size=30, max_position_embeddings=16, **sizes, **quiet)
        return transformers.BertForSequenceClassification(config), tokens
    if name == "vit":
        config = transformers.ViTConfig(image_size=8, patch_size=4, **sizes, **quiet)
        return transformers.ViTForImageClassification(config), images
    config = transformers.GPT2Config(
        vocab_size=30, n_positions=16, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )
    return transformers.GPT2LMHeadModel(config), tokens


def logits(model, batch):
    flat = model(*batch).logits.flatten(1)
    return (flat.square() * torch.linspace(0.2, 1.1, flat.shape[1], dtype=flat.dtype)).sum(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["bert", "vit", "gpt2"])
def test_hugging_face_models_work_unchanged(name, dtype):
    model, batch = to(dtype, *hugging_face(name))
    assert_engine_is_exact(model, logits, batch, 3)


def test_positions_shared_by_all_examples_would_be_added_up_before_clipping():
    """Control: the same model without the engine's expansion has one gradient row for all examples."""
    model, batch = to(torch.float64, TiedLanguageModel(), torch.randint(0, 13, (4, 7)))
    seen = []
    model.positions.register_forward_hook(lambda module, args, output: seen.append(len(output)))
    model(*batch)
    engine_sum(model, sum_of_squares, batch, 4, lambda squares: torch.ones(4))
    assert seen == [1, 4]


def test_bfloat16_forward_is_close_and_clips_what_it_sums():
    model, batch = to(torch.float32, nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3)), torch.randn(5, 6))

    def loss(model, batch):
        return sum_of_squares(model, batch).float()

    totals: dict[Any, Any] = {}
    with Engine(model, loss, torch.bfloat16) as engine:
        accumulated(engine, batch, 5, lambda lengths: (1e-2 / lengths.squares.sqrt()).clamp(max=1.0), totals)
    found = torch.cat([totals[p].flatten() for p in model.parameters()])
    truth = clipped(gradients_one_by_one(model, sum_of_squares, batch, 5), 1e-2).sum(0)
    assert float((found - truth).norm()) <= 0.03 * float(truth.norm())


def test_the_engine_leaves_no_trace():
    model, batch = to(torch.float64, VisionTransformer(), torch.randn(3, 3, 8, 8))
    before = copy.deepcopy(model.state_dict())
    engine_sum(model, sum_of_squares, batch, 3, lambda squares: torch.ones(3))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not any(
        module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module) for module in model.modules()
    )


def live_after_the_backward_pass():
    """Bytes that live between the backward pass and the weighted sums, for a stack of normalisations."""
    model = nn.Sequential(*(nn.LayerNorm(100) for _ in range(6)))
    live = []

    def weigh(lengths):
        live.append(meter._live)
        return torch.ones(len(lengths.squares))

    inputs = torch.randn(5, 40, 100)
    with Engine(model, sum_of_squares) as engine, LiveBytes() as meter:
        accumulated(engine, (inputs,), 5, weigh, {})
    return live[0] / inputs.nbytes


def test_what_a_rule_kept_is_let_go_as_soon_as_it_ran(monkeypatch):
    """A normalisation's input is not needed for the weighted sum, so none of the six may outlive the pass."""
    assert live_after_the_backward_pass() < 2.0
    monkeypatch.setattr(Tape, "_arrive", lambda tape, number, gradient: tape._take(tape._waiting[number](gradient)))
    assert live_after_the_backward_pass() > 4.0  # control: held by the hook, as long as the graph is
