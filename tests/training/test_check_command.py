"""`lrdp check`, as a command on its own."""

import json

import pytest
import typer
from typer.testing import CliRunner

from lrdp.commands.training import check
from lrdp.errors import InvalidInput

MODELS = """
from torch import nn
good = nn.Sequential(nn.Linear(2, 3), nn.GroupNorm(1, 3))
class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
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
    assert "Trains privately" in result.stdout
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
