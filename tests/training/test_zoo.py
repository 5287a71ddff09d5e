"""Public models through the gate: each has the verdict it deserves, and what is accepted trains exactly."""

from __future__ import annotations

import json

import pytest
import torch

from training.zoo import ZOO
from training.zoo.contest import contest
from training.zoo.keeper import judge, unprobed
from training.zoo.table import written

QUICK = (
    "bert",
    "modernbert, sparse prediction",
    "gpt2, one length",
    "vit",
    "dinov2, as it comes",
    "resnet",
    "LoRA",
    "IA3",
    "LSTMCell in a loop",
    "functional weights",
    "checkpointing, reentrant",
    "drop path",
    "spectral_norm",
    "attention over the batch",
)
pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of other people's models
    pytest.mark.usefixtures("one_thread"),
]


@pytest.fixture
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def assert_deserved(entry, verdict):
    assert entry.alone in verdict.alone
    assert entry.refused in verdict.refused
    assert (bool(entry.alone), bool(entry.refused)) == (bool(verdict.alone), bool(verdict.refused))
    assert entry.refused or verdict.exact, verdict


@pytest.mark.parametrize("name", QUICK)
def test_a_public_model_has_the_verdict_it_deserves_and_trains_exactly(name):
    assert_deserved(ZOO[name], judge(ZOO[name], scales=(1.0,)))


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_model_has_the_verdict_it_deserves_and_trains_exactly(name):
    assert_deserved(ZOO[name], judge(ZOO[name]))


@pytest.mark.parametrize("name", [name for name, entry in ZOO.items() if entry.probes])
def test_a_model_that_fails_on_made_up_records_is_told_to_bring_its_own(name):
    said = unprobed(ZOO[name])
    assert "made-up records" in said
    assert "Task(probes=…)" in said


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, entry in ZOO.items() if entry.refused])
def test_every_refusal_names_a_module_of_the_model_and_what_to_do(name):
    said = judge(ZOO[name]).refused
    named = {path for path, _ in ZOO[name].model().named_modules() if path} | {type(ZOO[name].model()).__name__}
    assert any(path in said for path in named), said
    assert any(fix in said for fix in ("replace_batch_norm", "freeze", "Keep examples along")), said


def test_the_zoo_is_large_enough():
    assert len(ZOO) >= 100
    assert sum(not entry.refused for entry in ZOO.values()) >= 0.9 * len(ZOO)


def test_a_wrong_gradient_is_found_to_be_wrong():
    """Control: the same model, with a loss that the gate never saw."""
    entry = ZOO["PReLU"]
    from training.zoo import keeper

    with keeper.admitted(entry, entry.model(), keeper.UNBOUNDED) as ready:
        right = keeper.summed(ready, [0, 1, 2, 3, 4], keeper.UNBOUNDED)
        ready.engine._loss = lambda model, batch: 1.01 * entry.loss(model, batch)
        wrong = keeper.summed(ready, [0, 1, 2, 3, 4], keeper.UNBOUNDED)
        assert float((wrong - right).norm() / right.norm()) > 5e-4
        assert max(keeper._errors(entry, ready, (1.0,))) > 1.0


def test_the_table_says_what_was_found():
    figures = contest(ZOO["PReLU"], judge(ZOO["PReLU"], scales=(1.0,)).task, rounds=1)
    row = {
        "name": "PReLU",
        "family": "torch.nn",
        "frozen": [],
        "verdict": "together",
        "says": "",
        "exact": True,
        "contest": figures,
    }
    page = written([row, {**row, "verdict": "refused", "says": "because", "exact": False, "contest": {}}])
    assert "2 models: 1 train together, 0 one by one, 1 are refused" in page
    assert "| PReLU | together | yes |" in page
    assert "refused: because" in page
    json.dumps(row)
