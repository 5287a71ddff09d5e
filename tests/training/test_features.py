"""Features of a frozen backbone: each of its own record alone, private, and never stale or half there."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import InvalidInput, Unsupported
from lrdp.training import TensorRecords, cached_features
from training.cases import RECORDS, fixed, records, run, task

ROWS = 8


class Counted(nn.Module):
    """A backbone that knows how often it was asked."""

    def __init__(self, width=7):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.layers = nn.Sequential(nn.Linear(5, width), nn.BatchNorm1d(width), nn.Dropout(0.5), nn.Tanh())
        self.passes = 0

    def forward(self, inputs):
        self.passes += 1
        return self.layers(inputs)


def made(backbone, dataset, folder, **settings):
    return cached_features(backbone, dataset, folder, **{"rows": ROWS} | settings)


def all_of(features):
    return features.columns_at(np.arange(len(features)))


def test_features_are_those_of_each_record_alone_in_evaluation_mode(tmp_path):
    backbone, dataset = Counted().train(), records()
    features = made(backbone, dataset, tmp_path / "cache")
    assert backbone.training
    assert len(features) == RECORDS
    backbone.eval()
    for number in range(RECORDS):
        (found, label), (inputs, expected) = features[number], dataset[number]
        torch.testing.assert_close(found, backbone(inputs[None])[0].detach(), rtol=1e-5, atol=1e-6)
        assert label == expected
        assert found.dtype == torch.float32


def test_what_is_kept_is_not_made_again_and_trains(tmp_path):
    backbone = Counted()
    first = made(backbone, records(), tmp_path / "cache")
    before = backbone.passes
    again = made(backbone, records(), tmp_path / "cache")
    assert backbone.passes == before
    assert all(torch.equal(a, b) for a, b in zip(all_of(first), all_of(again), strict=True))
    assert run(fixed(), task(model=nn.Linear(7, 3), dataset=again)).keys() == {"weight", "bias"}


def changed_weight(backbone, dataset):
    with torch.no_grad():
        backbone.layers[0].bias[2] += 1e-6
    return backbone, dataset


def changed_buffer(backbone, dataset):
    backbone.layers[1].running_mean[0] = 0.5
    return backbone, dataset


def another_activation(backbone, dataset):
    backbone.layers[3] = nn.ReLU()
    return backbone, dataset


def one_more(backbone, dataset):
    return backbone, records(RECORDS + 1)


def other_records(backbone, dataset):
    inputs, labels = dataset.columns_at(np.arange(RECORDS))
    return backbone, TensorRecords(inputs + 1, labels)


def other_form(backbone, dataset):
    inputs, labels = dataset.columns_at(np.arange(RECORDS))
    return backbone, TensorRecords(inputs, labels.int())


@pytest.mark.parametrize(
    "change", [changed_weight, changed_buffer, another_activation, one_more, other_records, other_form]
)
def test_a_stale_cache_is_noticed_made_anew_and_removed(tmp_path, change):
    made(Counted(), records(), tmp_path)
    old = set(tmp_path.glob("*.npy"))
    backbone, dataset = change(Counted(), records())
    features = made(backbone, dataset, tmp_path)
    assert backbone.passes > 0
    assert not old & set(tmp_path.iterdir()), "features that are no longer used do not lie around"
    expected = backbone.eval()(dataset.columns_at(np.arange(ROWS))[0])
    torch.testing.assert_close(all_of(features)[0][:ROWS], expected)


@pytest.mark.parametrize(
    "damage", [Path.unlink, lambda path: os.truncate(path, 200), lambda path: os.truncate(path, 0)]
)
def test_a_damaged_cache_is_made_anew(tmp_path, damage):
    expected = all_of(made(Counted(), records(), tmp_path))
    expected = [leaf.clone() for leaf in expected]
    for path in tmp_path.glob("*.npy"):
        damage(path)
    found = all_of(made(Counted(), records(), tmp_path))
    assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


KILLED = """
import os, sys
from pathlib import Path
from training.test_features import Counted, made, records
made(Counted(), records(), Path(sys.argv[1]), observe=lambda done: os._exit(9) if done.step == 3 else None)
"""


def test_a_killed_process_leaves_nothing_that_is_taken_for_features(tmp_path):
    environment = {"OMP_NUM_THREADS": "1", "PYTHONPATH": ":".join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env=environment, check=False)
    assert ended.returncode == 9
    assert list(tmp_path.glob(".column-*")), "control: it was in the midst of writing"
    assert len(made(Counted(), records(), tmp_path)) == RECORDS
    assert not list(tmp_path.glob(".*"))


def test_nobody_else_may_look_into_the_folder(tmp_path):
    folder = tmp_path / "cache"
    made(Counted(), records(), folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    folder.chmod(0o750)
    with pytest.raises(InvalidInput, match="chmod 700"):
        made(Counted(), records(), folder)


class Centred(nn.Module):
    def forward(self, inputs):
        return inputs - inputs.mean(0)


class Chancy(nn.Module):
    def forward(self, inputs):
        return functional.dropout(inputs, training=True)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, inputs):
        self.seen += inputs.sum(0)
        return inputs


@pytest.mark.parametrize(
    "backbone", [Centred(), nn.BatchNorm1d(5, track_running_stats=False), Chancy(), Remembering()], ids=str
)
def test_a_backbone_whose_features_hang_on_others_or_on_chance_is_refused(tmp_path, backbone):
    with pytest.raises(Unsupported, match=r"depend on"):
        made(backbone, records(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_features_without_a_row_for_each_record_are_refused(tmp_path):
    with pytest.raises(InvalidInput, match="a row for each of 8 records"):
        made(Counted(), records(), tmp_path, compute=lambda backbone, batch: backbone(batch[0]).mean(0))


def test_a_record_that_cannot_be_read_has_no_features_and_its_slot_stays_empty(tmp_path):
    inputs, labels = records().columns_at(np.arange(RECORDS))
    rows = [{"x": row, "y": label} for row, label in zip(inputs, labels, strict=True)]
    rows[11] = {"x": None, "y": labels[11]}
    features = made(
        nn.Tanh(), rows, tmp_path, compute=lambda backbone, batch: {"h": backbone(batch["x"]), "y": batch["y"]}
    )
    torch.testing.assert_close(features[10], {"h": inputs[10].tanh(), "y": labels[10]})
    with pytest.raises(InvalidInput, match="could not be read"):
        features[11]

    def loss(model, batch):
        return functional.cross_entropy(model(batch["h"]), batch["y"], reduction="none")

    run(fixed(batch=60), task(model=nn.Linear(5, 3), dataset=features, loss=loss))


def test_progress_is_told_to_the_last_record(tmp_path):
    seen: list[Any] = []
    made(Counted(), records(), tmp_path, observe=seen.append)
    assert [done.step for done in seen] == list(range(1, seen[0].steps + 1)) == list(range(1, 9))
