"""`lrdp check`, as a command on its own."""

import json

import pytest
import typer
from typer.testing import CliRunner

from lrdp.commands.training import check
from lrdp.errors import InvalidInput

MODELS = """
import torch
from torch import nn
good = nn.Sequential(nn.Linear(2, 3), nn.GroupNorm(1, 3))
class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
from torch.nn import functional
from lrdp.federation import LocalTask
from lrdp.training import Constant, CrossEntropy, PublicConstants, Sgd, Task, TensorRecords
CONSTANTS = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1))
def records(count=9): return TensorRecords(torch.rand(count, 2), torch.zeros(count, dtype=torch.int64))
def trained(model): return Task(model=model, dataset=records(), loss=CrossEntropy(classes=3), constants=CONSTANTS)
class Branching(nn.Linear):
    def forward(self, inputs): return super().forward(inputs if inputs.max() < 9 else inputs / 2)
class Centred(nn.Linear):
    def forward(self, inputs): return super().forward(inputs - inputs.mean(0))
together = trained(good)
def alone(): return trained(Branching(2, 3))
mixing = trained(Centred(2, 3))
batch_norm = trained(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
def stored(given): return records(given["count"])
local = LocalTask(model=lambda: nn.Linear(2, 3), dataset=stored, loss=functional.cross_entropy)
def needs(argument): ...
def number(): return 3
"""
BAD_NAMES = ("nothing", "needs", "number")


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "models_under_check.py").write_text(MODELS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    app = typer.Typer()
    app.command()(check)
    return lambda *arguments: CliRunner().invoke(app, arguments)


def test_a_good_model_is_shown_with_its_rules(run):
    result = run("models_under_check:good")
    assert result.exit_code == 0
    assert "linear" in result.stdout
    assert "No layer stands in the way" in result.stdout
    assert "A model alone was not run" in result.stdout
    assert "99.22% of the clip norm" in " ".join(result.stdout.split())
    assert json.loads(run("models_under_check:good", "--json").stdout)["headroom"] == 2.0**-7


def test_a_bad_model_ends_with_the_code_of_bad_input_and_the_fix(run):
    result = run("models_under_check:Bad", "--json")
    assert result.exit_code == 2
    printed = json.loads(result.stdout)
    assert not printed["trainable"]
    assert "replace_batch_norm" in printed["layers"][0]["refused"]


@pytest.mark.parametrize("name", ["nonsense", "no_such_module:Model", *(f"models_under_check:{n}" for n in BAD_NAMES)])
def test_names_that_lead_to_no_model_are_refused(run, name):
    assert isinstance(run(name).exception, InvalidInput)


def test_a_task_is_tried_and_measured_beside_plain_training(run):
    result = run("models_under_check:together", "--rows", "4")
    assert result.exit_code == 0
    assert "Trains privately as it is" in result.stdout
    assert "Its examples run together." in result.stdout
    assert "times plain SGD's" in result.stdout
    tried = json.loads(run("models_under_check:together", "--json").stdout)["task"]
    assert tried["rows"] == 32
    assert min(tried["private_seconds"], tried["plain_seconds"], tried["private_bytes"], tried["plain_bytes"]) > 0


def test_a_task_whose_examples_run_alone_says_why(run):
    assert "one by one" in run("models_under_check:alone").stdout
    tried = json.loads(run("models_under_check:alone", "--json").stdout)["task"]
    assert "Branching, models_under_check.py line" in tried["alone"]


@pytest.mark.parametrize(("name", "words"), [("mixing", "they meet in Centred"), ("batch_norm", "replace_batch_norm")])
def test_a_task_that_an_update_would_refuse_is_not_called_fine(run, name, words):
    result = run(f"models_under_check:{name}", "--json")
    assert result.exit_code == 2
    assert not json.loads(result.stdout)["trainable"]
    assert words in result.stdout
    shown = run(f"models_under_check:{name}").stdout
    assert "Does not train privately yet" in shown
    assert "was not run" not in shown


def test_a_clients_own_task_is_checked_with_its_settings(run):
    assert json.loads(run("models_under_check:local", "--set", "count=5", "--json").stdout)["trainable"]
    problem = run("models_under_check:local").exception
    assert isinstance(problem, InvalidInput)
    assert "KeyError: 'count'" in str(problem)
