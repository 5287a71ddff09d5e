"""Each model by its name: made alike for all, taken by the gate, and trained as gradients one by one say."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import InvalidInput, LrdpError
from lrdp.experiments.models import MODELS, Choice, Form, trained_size
from lrdp.training import PublicConstants, Sgd, Task, TensorRecords, check_gradients
from training.cases import run
from training.truth import clipped, gradients_one_by_one

# The first import of each warns of what it will drop one day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
transformers = pytest.importorskip("transformers")

COUNT, LENGTH, CLASSES, CLIP, RATE = 5, 9, 3, 0.7, 0.5
SHAPES = {"linear": (11,), "cnn": (1, 28, 28), "vgg11": (3, 32, 32), "bert": (2, LENGTH), "minilm-lora": (2, LENGTH)}
STEP = FixedSizeGaussian(dataset_size=COUNT, batch_size=COUNT - 1, noise_multiplier=1e-6)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The folder of a BERT of two layers, as transformers writes it."""
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 24, "max_position_embeddings": 16}
    folder = tmp_path_factory.mktemp("data") / "tiny"
    with torch.random.fork_rng():
        torch.manual_seed(5)
        transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained(folder)
    return folder


def wanted(name, encoder, seed=7):
    weights = encoder.name if name in {"bert", "minilm-lora"} else ""
    choice = Choice(kind=name, weights=weights)
    return choice.model, choice.wanted(SHAPES[name], CLASSES, seed, encoder.parent)


def sentences(count, source):
    words = torch.randint(2, LENGTH + 1, (count, 1), generator=source)
    own = (torch.arange(LENGTH) < words).long()
    return torch.stack([torch.randint(1, 40, (count, LENGTH), generator=source) * own, own], 1)


def records(name, count=COUNT):
    source = torch.Generator().manual_seed(19)
    tokens = MODELS[name].form is Form.TOKENS
    inputs = sentences(count, source) if tokens else torch.randn(count, *SHAPES[name], generator=source)
    return TensorRecords(inputs, torch.randint(0, CLASSES, (count,), generator=source))


def task(name, encoder, **changes):
    model, asked = wanted(name, encoder)
    given = {"model": model.made(asked), "loss": model.loss(asked), "probes": model.probes(asked)}
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=RATE))
    return Task(dataset=records(name), constants=constants, **given | changes)


LARGE = {"vgg11": pytest.mark.slow}
"""Nine million weights five times over, in double precision: its convolutions are those of cnn."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=LARGE.get(name, ())) for name in MODELS])
def test_a_step_is_the_mean_of_gradients_clipped_one_by_one(name, encoder):
    """All rows at once: a model that could only be run row by row would be too slow for any study."""
    given = task(name, encoder)
    checked = check_gradients(STEP, given)
    assert not checked.alone
    delta = run(STEP, replace(given, checked=checked))
    batch = tuple(torch.stack(column) for column in zip(*(given.dataset[row] for row in range(COUNT)), strict=True))
    each = clipped(gradients_one_by_one(given.model, given.loss, batch, COUNT), CLIP)
    found = torch.cat([change.flatten() for change in delta.values()]).double() * -(COUNT - 1) / RATE
    without = each.sum(0) - each  # one of them was not drawn
    assert float((without - found).norm(dim=1).min()) <= 0.012 * CLIP * COUNT
    assert float((each.sum(0) * 0.5 - found).norm()) > 0.012 * CLIP * COUNT  # a half of it would have been seen


def test_a_model_that_mixes_examples_is_refused_by_the_same_gate(encoder):
    mixing = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 26 * 26, CLASSES))
    with pytest.raises(LrdpError, match="BatchNorm"):
        check_gradients(STEP, task("cnn", encoder, model=mixing))


@pytest.mark.parametrize("name", MODELS)
def test_all_clients_begin_with_the_same_weights_and_chance_elsewhere_goes_on_as_it_was(name, encoder):
    before = torch.get_rng_state()
    model, asked = wanted(name, encoder)
    first, again = (model.made(asked).state_dict() for _ in range(2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    other = model.made(replace(asked, seed=8)).state_dict()
    assert (name == "linear") == all(torch.equal(first[key], other[key]) for key in first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_linear_head_begins_with_zeros(encoder):
    model, asked = wanted("linear", encoder)
    assert not any(values.any() for values in model.made(asked).parameters())
    assert trained_size(model.made(asked)) - trained_size(model.made(replace(asked, bias=False))) == CLASSES


@pytest.mark.parametrize("name", ["bert", "minilm-lora"])
def test_what_fills_a_sentence_up_is_never_looked_at(name, encoder):
    model, asked = wanted(name, encoder)
    made = model.made(asked).eval()
    with torch.no_grad():
        for values in made.parameters():  # a head of zeros would see nothing at all
            values.add_(torch.arange(values.numel()).remainder(7).view_as(values), alpha=0.01)
        tokens = sentences(6, torch.Generator().manual_seed(3))
        filler, own = tokens.clone(), tokens.clone()
        filler[:, 0][tokens[:, 1] == 0] = 31
        own[:, 0, 1] = 31
        assert torch.allclose(made(filler), made(tokens), atol=1e-6)
        assert not torch.allclose(made(own), made(tokens), atol=1e-6)


def test_only_adapters_and_the_head_are_trained_of_minilm(encoder):
    model, asked = wanted("minilm-lora", encoder)
    made = model.made(asked)
    trained = [name for name, values in made.named_parameters() if values.requires_grad]
    assert all("lora_" in name or name.startswith("head.") for name in trained)
    assert trained_size(made) == 2 * 2 * (16 * 2 + 2 * 16) + (
        16 * CLASSES + CLASSES
    )  # layers · (query, value) · (A, B)


def test_vgg11_has_the_weights_that_are_counted_by_hand():
    """Eight convolutions, each with a GroupNorm, and a linear layer. Small pictures get a border and no more."""
    widths = [3, 64, 128, 256, 256, 512, 512, 512, 512]
    pairs = itertools.pairwise(widths)
    counted = sum(9 * a * b + b + 2 * b for a, b in pairs) + 512 * 10 + 10
    choice = Choice(kind="vgg11")
    large = choice.model.made(choice.wanted((3, 32, 32), 10, 1, Path()))
    small = choice.model.made(choice.wanted((1, 28, 28), 10, 1, Path()))
    assert trained_size(large) == counted == 9_231_114
    assert trained_size(small) == counted - 9 * 2 * 64
    assert small(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def _made(folder, kind, weights, shape):
    choice = Choice(kind=kind, weights=weights)
    return choice.model.made(choice.wanted(shape, 2, 1, folder))


@pytest.mark.parametrize(
    ("kind", "weights", "shape", "sentence"),
    [
        ("vgg12", "", (3, 32, 32), "kind must be one of linear, cnn, vgg11, bert, minilm-lora, got 'vgg12'"),
        ("vgg11", "", (3, 96, 96), "at most 32 pixels a side, an even number, got 96 × 96"),
        ("minilm-lora", "", (2, 9), "minilm-lora needs weights"),
        ("bert", "./nowhere", (2, 9), "the weights ./nowhere cannot be loaded"),
    ],
)
def test_what_cannot_be_made_is_told_in_one_sentence(kind, weights, shape, sentence, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InvalidInput, match=sentence.replace(".", r"\.")) as refused:
        _made(tmp_path, kind, weights, shape)
    assert str(refused.value).endswith("nothing was run.")
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_without_weights_bert_is_of_the_papers_size():
    choice = Choice(kind="bert")
    made = choice.model.made(choice.wanted((2, 64), 2, 1, Path()))
    assert trained_size(made) == 109_483_778  # 109,482,240 of BERT-base with its pooling, and a head of two classes
