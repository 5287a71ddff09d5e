"""Files of all six tasks, in small; and what is said of those that are missing or damaged."""

from __future__ import annotations

import numpy as np
import pytest

from experiments_data import packed, write_mnist, write_table
from lrdp.errors import InvalidInput
from lrdp.experiments.data.cifar import unpacked
from lrdp.experiments.data.loading import TASKS
from lrdp.experiments.data.sources import source


def test_cifar_comes_back_as_it_was_packed():
    pictures = np.random.default_rng(5).integers(0, 256, (6, 9, 7, 3), dtype=np.uint8)
    pictures[0] = 255
    pictures[1] = np.arange(63, dtype=np.uint8).reshape(9, 7, 1) * 4  # smooth, so that the guess is one of each kind
    assert np.array_equal(unpacked(packed(pictures)), pictures)


def test_a_changed_residual_is_another_picture():
    pictures = np.random.default_rng(5).integers(0, 256, (1, 5, 5, 3), dtype=np.uint8)
    residuals = packed(pictures)
    residuals[0, 0, 0, 0] ^= 1
    assert not np.array_equal(unpacked(residuals), pictures)


def test_cifar_is_read_in_order_from_its_six_files(tmp_path):
    pictures = np.random.default_rng(2).integers(0, 256, (18, 4, 4, 3), dtype=np.uint8)
    for part, name in enumerate(TASKS["cifar10"].names):
        here = slice(3 * part, 3 * part + 3)
        np.savez(tmp_path / name, res=packed(pictures[here]), y=np.arange(18, dtype=np.uint8)[here])
    found = TASKS["cifar10"].read(tmp_path)
    assert np.array_equal(found.pictures, pictures)
    assert found.labels.tolist() == list(range(18))
    assert found.train == 15


def test_emnist_has_47_classes(tmp_path):
    merged = np.arange(62) % 47
    labels = np.array([61, 3, 50])
    images = np.zeros((3, 28, 28), dtype=np.uint8)
    np.savez(
        tmp_path / "emnist_byclass116k.npz",
        x_train=images[:2],
        y_train=labels[:2],
        x_test=images[2:],
        y_test=labels[2:],
        map62to47=merged,
    )
    assert TASKS["emnist"].read(tmp_path).labels.tolist() == [14, 3, 3]


def test_of_sst2_dev_and_test_are_for_testing(tmp_path):
    write_table(
        tmp_path,
        "sst2.parquet",
        split=["dev", "train", "test", "train"],
        sentence=["a", "b", "c", "d"],
        label=[0, 1, 0, 1],
    )
    found = TASKS["sst2"].read(tmp_path)
    assert (found.texts, found.labels.tolist(), found.train) == (["b", "d", "a", "c"], [1, 1, 0, 0], 2)


@pytest.mark.parametrize(
    ("task", "file", "one", "other", "split"),
    [
        ("qnli", "qnli_partial.parquet", "question", "sentence", "train_part"),
        ("qqp", "qqp_partial.parquet", "question1", "question2", "train"),
    ],
)
def test_pairs_are_read(tmp_path, task, file, one, other, split):
    write_table(tmp_path, file, **{"split": [split, "dev"], one: ["a", "b"], other: ["c", "d"], "label": [1, 0]})
    assert TASKS[task].read(tmp_path).texts == [("a", "c"), ("b", "d")]


def test_pictures_are_no_texts_and_texts_no_pictures(tmp_path):
    write_mnist(tmp_path)
    with pytest.raises(InvalidInput, match="of texts"):
        _ = TASKS["mnist"].read(tmp_path).texts


def test_some_are_the_same_some_each_time(tmp_path):
    write_mnist(tmp_path)
    records = TASKS["mnist"].read(tmp_path)
    some, again = records.some(7, 3), records.some(7, 3)
    assert np.array_equal(some.inputs, again.inputs)
    assert (some.train, len(some.labels)) == (7, 10)
    assert len(records.some(0, 0).labels) == 52


@pytest.mark.parametrize("task", TASKS)
def test_a_missing_file_is_named_with_its_folder_and_the_option(tmp_path, task):
    for ask in (TASKS[task].digest, TASKS[task].read):
        with pytest.raises(InvalidInput) as caught:
            ask(tmp_path)
        assert TASKS[task].names[0] in str(caught.value)
        assert str(tmp_path) in str(caught.value)
        assert "--data-dir or LRDP_DATA_DIR" in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("bytes_there", [b"", b"PK\x03\x04 no more", b"PAR1 no more PAR1"])
def test_a_damaged_file_is_named(tmp_path, task, bytes_there):
    for name in TASKS[task].names:
        (tmp_path / name).write_bytes(bytes_there)
    with pytest.raises(InvalidInput, match="damaged or of another form"):
        TASKS[task].read(tmp_path)


@pytest.mark.parametrize("name", ["minst", "", "hf:", "s3:bucket"])
def test_an_unknown_name_is_answered_with_those_that_there_are(name):
    with pytest.raises(InvalidInput, match="mnist, emnist, cifar10, sst2, qnli, qqp, or hf:NAME"):
        source(name)
