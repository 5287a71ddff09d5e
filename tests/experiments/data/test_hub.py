"""Public copies, by a data set that is saved to disk here: the hub itself is not asked."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from lrdp.errors import InvalidInput
from lrdp.experiments.data import DataSettings, prepared
from lrdp.experiments.data.sources import source
from lrdp.experiments.study import Places

datasets = pytest.importorskip("datasets")


def made(**splits):
    return datasets.DatasetDict({name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()})


@pytest.fixture
def sentences(tmp_path):
    folder = tmp_path / "sst2"
    whole = made(
        train={"sentence": ["good", "bad", "fine"], "label": [1, 0, 1]},
        validation={"sentence": ["awful"], "label": [0]},
        test={"sentence": ["unknown", "hidden"], "label": [-1, -1]},
    )
    whole.save_to_disk(str(folder))
    return folder


def test_a_saved_data_set_is_read_and_unlabelled_tests_are_passed_over(sentences, tmp_path):
    found = source(f"hf:{sentences}")
    records = found.read(tmp_path)
    assert (records.texts, records.labels.tolist(), records.train) == (
        ["good", "bad", "fine", "awful"],
        [1, 0, 1, 0],
        3,
    )
    assert found.classes == 2


def test_the_digest_is_of_the_copy(sentences, tmp_path):
    first, again = (source(f"hf:{sentences}").digest(tmp_path) for _ in range(2))
    other = tmp_path / "other"
    made(train={"text": ["a", "b"], "label": [0, 1]}, test={"text": ["c"], "label": [0]}).save_to_disk(str(other))
    assert first == again != source(f"hf:{other}").digest(tmp_path)


def test_pictures_go_all_the_way(tmp_path):
    random, folder = np.random.default_rng(0), tmp_path / "pictures"
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(num_classes=7)})
    images = [random.integers(0, 256, (8, 8), dtype=np.uint8) for _ in range(6)]
    whole = datasets.DatasetDict(
        {
            name: datasets.Dataset.from_dict({"image": images[part], "label": [3] * len(images[part])}, features)
            for name, part in (("train", slice(4)), ("test", slice(4, 6)))
        }
    )
    whole.save_to_disk(str(folder))
    places = Places(data=tmp_path, features=tmp_path / "features", results=tmp_path / "results")
    found = prepared(DataSettings(data=f"hf:{folder}", features="pixels"), places)
    assert found.classes == 7
    back = ((found.test.inputs * 0.25 + 0.5) * 255).round().numpy()
    assert np.array_equal(back[:, 0], np.stack(images[4:]))


def test_pairs_are_found_by_their_columns(tmp_path):
    folder = tmp_path / "pairs"
    columns = {"question1": ["a", "b"], "question2": ["c", "d"], "label": [0, 1]}
    made(train=columns, test=columns).save_to_disk(str(folder))
    assert source(f"hf:{folder}").read(tmp_path).texts == [("a", "c"), ("b", "d")] * 2


@pytest.mark.parametrize("columns", [{"words": ["a"], "label": [0]}, {"sentence": ["a"], "class": [0]}])
def test_columns_of_other_names_are_told(tmp_path, columns):
    folder = tmp_path / "odd"
    made(train=columns, test=columns).save_to_disk(str(folder))
    with pytest.raises(InvalidInput, match="nothing was run"):
        source(f"hf:{folder}").read(tmp_path)


def test_a_name_that_cannot_be_had_is_one_sentence(tmp_path, monkeypatch):
    def fail(*_):
        raise ConnectionError("no route\nto anywhere")

    monkeypatch.setattr(datasets, "load_dataset", fail)
    with pytest.raises(InvalidInput) as caught:
        source("hf:stanfordnlp/sst2").read(tmp_path)
    assert "stanfordnlp/sst2 cannot be loaded" in str(caught.value)
    assert "\n" not in str(caught.value)


class Federated:
    """As far as it is used, Flower's own."""

    def __init__(self, *, dataset, subset=None, partitioners):
        assert (dataset, subset, partitioners) == ("nyu-mll/glue", "qnli", {"train": 1})
        columns = {"question": ["a", "b"], "sentence": ["c", "d"], "label": [0, 1]}
        self._dataset = made(train=columns, validation=columns)

    def load_split(self, split):
        return self._dataset[split]


def test_flower_s_own_package_is_asked_by_name_and_configuration(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", SimpleNamespace(FederatedDataset=Federated))
    found = source("flwr:nyu-mll/glue#qnli").read(tmp_path)
    assert (found.texts, found.train) == ([("a", "c"), ("b", "d")] * 2, 2)


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "flwr_datasets", None)
    with pytest.raises(InvalidInput, match="pip install flwr-datasets"):
        source("flwr:ylecun/mnist").read(tmp_path)
