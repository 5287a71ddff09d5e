"""The first steps of a long training: timed, as noisy as is computed, and the paper's runs beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.tiny_files import write_encoder, write_pictures, write_sentences
from lrdp.cli import app
from lrdp.errors import InvalidInput
from lrdp.experiments import utility
from lrdp.experiments.models.signal import noise_in_clip_norms
from lrdp.experiments.study import Results, read_settings
from lrdp.experiments.utility.mechanisms import calibrated
from lrdp.experiments.utility.shares import _holdings, _loaded

# The first import of each warns of what it will drop one day.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
pytest.importorskip("peft")

SETTINGS = Path(__file__).parents[3] / "experiments" / "models.toml"
FEW = ["clients=3", "epsilons=[2]", 'only_methods=["l-rdp", "truncated"]', 'baseline="truncated"']
SMALL = ["tasks.mnist-cnn.batch_size=6", "tasks.sst2-lora.batch_size=6"]


@pytest.fixture
def folder(tmp_path):
    _loaded.cache_clear()
    _holdings.cache_clear()
    write_pictures(tmp_path / "data")
    write_sentences(tmp_path / "data")
    write_encoder(tmp_path / "data")
    return tmp_path


def asked(folder, *words):
    places = {"--data-dir": "data", "--features": "features", "--out": "out"}
    given = [word for name, place in places.items() for word in (name, str(folder / place))]
    changes = [word for change in FEW + SMALL for word in ("--set", change)]
    return CliRunner().invoke(app, ["experiments", "utility", "--jobs", "1", *given, *changes, *words])


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("model", ["cnn", "minilm-lora"])
def test_some_steps_are_timed_and_move_the_model_as_far_as_its_noise_says(folder, model):
    done = asked(folder, "--model", model, "--steps", "3")
    assert done.exit_code == 0, done.output
    found = rows(folder / "out" / "models" / f"{model}-steps.csv")
    assert [row["method"] for row in found] == ["l-rdp", "truncated"]
    for row in found:
        assert float(row["step_seconds"]) > 0
        hours = float(row["step_seconds"]) * int(row["steps"]) * 3 / 3600
        assert float(row["whole_hours"]) == pytest.approx(hours)
        assert int(row["measured_steps"]) == 3
        # Signal is at most one clip norm long, and the noise here is much longer.
        length, computed = float(row["measured_length_in_clip_norms"]), float(row["computed_length_in_clip_norms"])
        assert length == pytest.approx(computed, rel=0.1)
        assert length != pytest.approx(computed * 3**0.5, rel=0.1)  # as if there were one client alone
    told = json.loads((folder / "out" / "models" / f"{model}-steps.json").read_text(encoding="utf-8"))
    assert told["settings"]["steps"] == 3


def test_a_model_that_is_no_linear_head_goes_through_all_stages(folder):
    done = asked(folder, "--model", "cnn", "--set", "rounds=2", "--set", "seeds=[0]")
    assert done.exit_code == 0, done.output
    found = rows(folder / "out" / "models" / "cnn.csv")
    assert {(row["task"], row["method"]) for row in found} == {("mnist-cnn", "l-rdp"), ("mnist-cnn", "truncated")}
    assert all(0 <= float(row["accuracy"]) <= 100 for row in found)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--model", "vgg12"], "only_models names 'vgg12', which is none of cnn, vgg11, bert, minilm-lora"),
        (["--model", "cnn", "--set", 'only_tasks=["sst2-lora"]'], "no task among sst2-lora trains cnn"),
        (["--model", "cnn", "--set", 'tasks.mnist-cnn.data.features="tokens"'], "features are of texts"),
        (["--model", "cnn", "--set", 'tasks.mnist-cnn.data={data="sst2"}', "--steps", "1"], "features are of pictures"),
        (["--model", "cnn", "--set", 'models.cnn.kind="linear"', "--steps", "1"], "linear takes features"),
    ],
)
def test_what_does_not_fit_together_is_told_in_one_sentence(folder, words, sentence):
    done = asked(folder, *words)
    assert done.exit_code != 0
    assert sentence in str(done.exception)


def test_the_papers_run_on_cifar10_has_noise_of_39_clip_norms_or_84():
    """As was found before with other code: design/evaluation.md."""
    study: Any = utility.study(
        {**read_settings(SETTINGS, quick=False), "only_models": ["vgg11"], "steps": 1, "epsilons": [2]}
    )
    whole = study._whole(Results(), "cifar10-vgg11")
    assert whole == {"dataset_size": 5000, "batch_size": 128, "steps": 10_000}
    found = {
        method: noise_in_clip_norms(
            calibrated(study.plan.noise_for(method, 2.0, whole).values)["noise_multiplier"], 9_231_114, 128, 10
        )
        for method in ("l-rdp", "truncated")
    }
    assert found["l-rdp"] == pytest.approx(84, abs=1)
    assert found["truncated"] == pytest.approx(39, abs=1)


def test_every_task_of_the_papers_models_has_the_papers_run():
    study: Any = utility.study(read_settings(SETTINGS, quick=False))
    settings = study.plan.settings
    own = {name for name, task in settings.tasks.items() if task.model in {"vgg11", "bert"}}
    assert own == set(settings.paper)
    assert all(settings.tasks[name].batch_size == run.batch_size for name, run in settings.paper.items())


def test_a_model_of_an_unknown_kind_is_refused_before_anything_is_read():
    tables = read_settings(SETTINGS, quick=False)
    with pytest.raises(InvalidInput, match="kind must be one of"):
        utility.study({**tables, "models": {**tables["models"], "cnn": {"kind": "cnm"}}})
