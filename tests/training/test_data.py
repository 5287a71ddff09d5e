"""Data as people have it: whatever a record is made of, it becomes tensors of one public form, each by itself."""

from __future__ import annotations

import subprocess
import sys
from collections import UserDict, namedtuple
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.data import DataLoader, IterableDataset

from lrdp.errors import InvalidInput
from lrdp.training import NamedCrossEntropy, Padded, check_records, private_update
from lrdp.training.records import RecordReader, blank_record, check_dataset
from lrdp.training.tensors import as_tensors, stacked
from training.cases import RECORDS, fixed, receipt, records, run, task

Pair = namedtuple("Pair", "inputs label")


@dataclass
class Visit:
    tokens: Any
    label: int
    name: str = "nobody's business"


def reader(dataset):
    return RecordReader(dataset, torch.device("cpu"), blank_record(dataset))


# ----------------------------------------------------------------------------------------------------------- one record
@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ((1.5, 2), (torch.tensor(1.5), torch.tensor(2))),
        ([1.5, 2], [torch.tensor(1.5), torch.tensor(2)]),
        (([1, 2], True), (torch.tensor([1, 2]), torch.tensor(True))),
        ({"x": [[1.0], [2.0]]}, {"x": torch.tensor([[1.0], [2.0]])}),
        (UserDict(x=np.float64(0.1)), {"x": torch.tensor(0.1, dtype=torch.float64)}),
        (Pair(np.arange(4)[::-2], 1), Pair(torch.tensor([3, 1]), torch.tensor(1))),
        (([torch.ones(2), torch.ones(3)], 0), ([torch.ones(2), torch.ones(3)], torch.tensor(0))),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_record_becomes_tensors_in_the_same_places(record, expected):
    found = as_tensors(record)
    assert type(found) is type(expected)
    torch.testing.assert_close(found, expected)


def test_a_dataclass_becomes_a_dict_and_a_picture_its_pixels():
    image = pytest.importorskip("PIL.Image")
    picture = image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3))
    found = as_tensors(Visit(tokens=picture, label=1, name=2))  # type: ignore[arg-type]
    assert set(found) == {"tokens", "label", "name"}
    assert torch.equal(found["tokens"], torch.arange(12, dtype=torch.uint8).reshape(2, 2, 3))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"text": "Mr Smith", "label": 1}, r"record\['text'\] holds text.*tokenise"),
        ((1, b"Smith"), r"record\[1\] holds text"),
        (Visit(tokens=[1], label=1, name="Smith"), r"record\.name holds text"),
        ({"a": {"b": ["Smith"]}}, r"record\['a'\]\['b'\]\[0\] holds text"),
        ({"age": None}, r"record\['age'\] holds nothing.*public constant"),
        ({"age": [1, None]}, r"record\['age'\]\[1\] holds nothing"),
        ({"born": date(1950, 2, 3)}, r"record\['born'\] is a date"),
        ({"born": np.array(["Smith"])}, r"record\['born'\] is an array of <U5"),
        ({"rows": [[1, 2], [3]]}, r"record\['rows'\] holds lists that are not all of numbers and of equal length"),
    ],
)
def test_what_no_model_computes_with_is_refused_by_its_field_and_not_by_its_value(record, sentence):
    with pytest.raises(InvalidInput, match=sentence) as refused:
        as_tensors(record)
    assert not {"Smith", "1950"} & set(str(refused.value).replace("'", " ").split())
    paid = receipt()
    with pytest.raises(InvalidInput, match=sentence):
        private_update(paid, task(dataset=[record] * RECORDS))
    assert not paid.redeemed


def test_records_of_different_fields_are_not_stacked():
    with pytest.raises(InvalidInput, match="different fields"):
        stacked([{"a": 1}, {"b": 1}])


# --------------------------------------------------------------------------------------------------------------- padded
@given(st.lists(st.lists(st.integers(0, 99), max_size=12), min_size=1, max_size=9), st.integers(1, 9), st.data())
def test_a_padded_record_depends_on_itself_alone(sequences, length, data):
    """An oracle in plain lists; and the same whoever is read with it."""
    rows = [{"ids": sequence, "label": len(sequence), "name": "Smith"} for sequence in sequences]
    padded = Padded(rows, max_length=length, fill={"ids": 7}, keep=["label"], attention="pairs")
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1))
    for number, found in zip(chosen, padded.__getitems__(chosen), strict=True):
        own = sequences[number][:length]
        assert found["ids"].tolist() == own + [7] * (length - len(own))
        assert found["attention_mask"].tolist() == [1] * len(own) + [0] * (length - len(own))
        assert found["pairs"].tolist() == [[[place < len(own) for place in range(length)]]]
        assert found["label"].item() == len(sequences[number])
        assert found["ids"].dtype == found["attention_mask"].dtype == torch.int64
        assert set(found) == {"ids", "label", "attention_mask", "pairs"}


@pytest.mark.parametrize("sequence", [[3, 1], (3, 1), np.array([3, 1], np.int32), torch.tensor([3, 1])], ids=str)
@pytest.mark.parametrize("make", [lambda s: {"tokens": s, "label": 1}, lambda s: Visit(s, 1), lambda s: Pair(s, 1)])
def test_sequences_of_every_kind_in_records_of_every_kind_have_one_form(sequence, make):
    record = make(sequence)
    name = "inputs" if isinstance(record, Pair) else "tokens"
    found = Padded([record], max_length=3, fill={name: 0}, keep=["label"])[0]
    assert found[name].tolist() == [3, 1, 0]
    assert found[name].dtype == torch.int64


def test_each_sequence_has_its_own_filling_and_the_fillings_type():
    rows = [{"ids": [5, 6], "attention_mask": [1, 1], "labels": [5], "pulse": [[1, 2]]}]
    fill: dict[str | int, float] = {"ids": 0, "attention_mask": 0, "labels": -100, "pulse": 0.5}
    found = Padded(rows, max_length=3, fill=fill)[0]
    assert found["labels"].tolist() == [5, -100, -100]
    assert found["attention_mask"].tolist() == [1, 1, 0]
    torch.testing.assert_close(found["pulse"], torch.tensor([[1.0, 2.0], [0.5, 0.5], [0.5, 0.5]]))
    with pytest.raises(InvalidInput, match="fill with a fraction"):
        Padded([{"ids": [0.5]}], max_length=3, fill={"ids": 0})[0]
    for wrong in (5, {"a": [1]}, [torch.ones(2), torch.ones(3)]):
        with pytest.raises(InvalidInput, match="'ids' holds no sequence of numbers"):
            Padded([{"ids": wrong}], max_length=3, fill={"ids": 0})[0]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_length": 0}, "max_length must be at least 1"),
        ({"fill": {}}, "fill must name at least one sequence"),
        ({"keep": "label"}, "keep must be a list of fields"),
        ({"keep": ["ids"]}, "neither filled up nor a mask"),
        ({"keep": ["attention_mask"]}, "neither filled up nor a mask"),
    ],
)
def test_a_form_that_says_nothing_is_refused(settings, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        Padded([{"ids": [1], "label": 0}], **{"max_length": 3, "fill": {"ids": 0}} | settings)


def test_a_field_that_no_record_has_is_named():
    with pytest.raises(InvalidInput, match="no field 'tokens'"):
        check_records(Padded([{"ids": [1]}], max_length=3, fill={"tokens": 0}), functional.mse_loss)


class Bag(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = torch.nn.Embedding(20, 4), torch.nn.Linear(4, 3)

    def forward(self, ids, attention_mask):
        return self.head((self.table(ids) * attention_mask[:, :, None]).sum(1))


def ragged():
    chance = np.random.default_rng(5)
    return [
        {"ids": chance.integers(0, 20, chance.integers(0, 15)).tolist(), "label": int(chance.integers(3))}
        for _ in range(RECORDS)
    ]


def test_records_of_every_length_train_and_without_a_form_they_are_found_before_the_charge():
    loss = NamedCrossEntropy(classes=3)
    padded = Padded(ragged(), max_length=6, fill={"ids": 0}, keep=["label"])
    assert check_records(padded, loss).left_out == {}
    assert bool(run(fixed(), task(model=Bag(), dataset=padded, loss=loss))["table.weight"].any())
    paid = receipt()
    with pytest.raises(InvalidInput, match="records cannot be trained on"):
        private_update(paid, task(model=Bag(), dataset=ragged(), loss=loss))
    assert not paid.redeemed


def test_a_loss_that_cannot_check_still_has_its_clients_records_read_beforehand():
    odd = [records()[number] for number in range(RECORDS)]
    odd[20] = (odd[20][0][:2], odd[20][1])
    odd[30] = (None, odd[30][1])
    found = check_records(odd, lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1]))
    assert set(found.left_out) == {20, 30}


# ------------------------------------------------------------------------------------------------------ what is no data
class Stream(IterableDataset):
    def __iter__(self):
        return iter(())

    def __len__(self):
        return 3


class Endless:
    def __getitem__(self, number):
        return number


@pytest.mark.parametrize(
    ("dataset", "sentence"),
    [
        ({"train": records(), "test": records()}, r"got a dict of 'train', 'test': pass one of them.*\['train'\]"),
        (Stream(), "got Stream: a loader or a stream"),
        (Endless(), "got Endless, which has no length"),
        (DataLoader(records()), "got DataLoader: a loader or a stream"),
        (iter([]), "got list_iterator"),
    ],
    ids=["dict", "stream", "endless", "loader", "iterator"],
)
def test_what_cannot_be_drawn_from_by_number_is_refused(dataset, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        check_dataset(dataset)
    with pytest.raises(InvalidInput, match=sentence):
        Padded(dataset, max_length=3, fill={"x": 0})


# --------------------------------------------------------------------------------------------------------- Hugging Face
def rows():
    inputs, labels = records().columns_at(np.arange(RECORDS))
    return {"x": inputs.tolist(), "label": labels.tolist(), "patient": [f"p-{number}" for number in range(RECORDS)]}


def loss(model, batch):
    return functional.cross_entropy(model(batch["x"]), batch["label"], reduction="none")


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_hugging_face_rows_train_as_the_same_tensors_do(form):
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(rows()).remove_columns("patient").with_format(form)
    found, expected = run(fixed(), task(dataset=dataset, loss=loss)), run(fixed(), task())
    for name in expected:
        torch.testing.assert_close(found[name], expected[name])


def test_hugging_face_columns_of_text_are_named_with_the_way_to_drop_them():
    datasets = pytest.importorskip("datasets")
    dataset = datasets.Dataset.from_dict(rows())
    with pytest.raises(InvalidInput, match=r"record\['patient'\] holds text.*remove_columns"):
        check_records(dataset, loss)
    with pytest.raises(InvalidInput, match="got a DatasetDict of 'train', 'test'"):
        check_dataset(datasets.DatasetDict(train=dataset, test=dataset))
    with pytest.raises(InvalidInput, match="got IterableDataset"):
        check_dataset(dataset.to_iterable_dataset())


@pytest.mark.parametrize("form", [None, "torch", "numpy"])
def test_a_missing_value_in_a_hugging_face_row_changes_no_other_row(form):
    """In a batch it turns whole numbers into fractions for all: so such a batch is read one by one."""
    datasets = pytest.importorskip("datasets")
    given = rows() | {"age": [None if number == 12 else number for number in range(RECORDS)]}
    dataset = datasets.Dataset.from_dict(given).remove_columns("patient").with_format(form)
    batch, live = reader(dataset).slots(np.arange(10, 15))
    assert live.tolist() == [True, True, False, True, True]
    assert batch["age"].tolist() == [10, 11, 0, 13, 14]
    assert batch["age"].dtype == torch.int64


def test_pictures_in_hugging_face_rows_are_pixels():
    datasets, image = pytest.importorskip("datasets"), pytest.importorskip("PIL.Image")
    pictures = [image.fromarray(np.full((4, 3), number, np.uint8)) for number in range(6)]
    dataset = datasets.Dataset.from_dict({"image": pictures, "label": list(range(6))})
    batch, live = reader(dataset).slots(np.array([5, 2]))
    assert bool(live.all())
    assert torch.equal(batch["image"], torch.tensor([5, 2], dtype=torch.uint8)[:, None, None].expand(2, 4, 3))


def test_partitions_of_flwr_datasets_are_taken_as_they_are():
    pytest.importorskip("flwr_datasets")
    from datasets import Dataset
    from flwr_datasets.partitioner import IidPartitioner

    partitioner = IidPartitioner(num_partitions=2)
    partitioner.dataset = Dataset.from_dict(rows()).remove_columns("patient")
    part = partitioner.load_partition(1)
    assert run(fixed(batch=5, accounted=29), task(dataset=part, loss=loss)).keys() == run(fixed(), task()).keys()


def test_hugging_face_is_not_imported_by_training():
    check = "import sys, lrdp.training; print({'datasets', 'transformers', 'peft'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "set()"
