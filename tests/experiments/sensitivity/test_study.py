"""The study of a federation's parameters as a whole, on made-up features."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments import small_study
from lrdp.errors import InvalidInput
from lrdp.experiments import sensitivity
from lrdp.experiments.sensitivity.training import Turns, trained
from lrdp.experiments.study import Cell, Results, conduct, read_settings
from lrdp.experiments.study.settings import laid_over
from lrdp.experiments.utility.training import run_in_process

SETTINGS = Path(__file__).parents[3] / "experiments" / "sensitivity.toml"
CHANGES: dict[str, Any] = {
    "epsilons": [8.0],
    "seeds": [0],
    "tuning_seeds": [100],
    "base": {"clients": 4, "rounds": 3, "local_steps": 1, "batch_size": 16},
    "varied": {
        "clients": [2],
        "rounds": [1],
        "local_steps": [2],
        "batch_size": [8],
        "participation": [0.4],
        "dropout": [0.9],
        "alpha": [0.5],
    },
    "tasks": {"mnist": {"rates": [0.5, 2.0]}},
    "crowd": {"clients": 30, "rounds": 6},
    "ledgers": {"federation": {"clients": 3, "rounds": 1}},
}


def small(**changes):
    return sensitivity.study(laid_over(laid_over(read_settings(SETTINGS, quick=False), CHANGES), changes))


class Silence:
    def stage(self, cells, kept):
        self.kept = kept == cells

    def done(self, cell, seconds):
        pass


@pytest.fixture
def where(tmp_path, monkeypatch):
    small_study.use_made_up(monkeypatch)
    return small_study.places(tmp_path)


def final(study, where, **changes):
    """A final cell of L-RDP, and the results it depends on."""
    results = Results()
    for stage in (study.plan.data, study.plan.noise, study.plan.tuning):
        for cell in stage(results):
            results.add(cell, study.work(cell, where))
    cell = study.plan.final_cell(results, ("mnist", "l-rdp", 8.0), study.plan.settings.base, 0)
    return Cell(cell.study, {**cell.values, **changes})


def test_every_parameter_has_its_rows_and_a_second_run_has_nothing_to_do(where):
    conduct(small(), where, 1, Silence())
    rows = json.loads((where.results / "sensitivity.json").read_text())["rows"]
    varied = [row for row in rows if row["table"] == "parameters"]
    assert {row["parameter"] for row in varied} == set(CHANGES["varied"])
    assert all(sum(row["base"] for row in varied if row["parameter"] == name) == 2 for name in CHANGES["varied"])
    assert all(row["epsilon_most"] <= 8.0 for row in varied)
    assert {row["pattern"] for row in rows if row["table"] == "claims"} == {"alike", "unequal", "coming and going"}
    assert [row["agrees"] for row in rows if row["table"] == "ledgers"] == [True] * 3
    again = Silence()
    conduct(small(), where, 1, again)
    assert again.kept


def test_with_everybody_there_the_models_are_those_of_the_study_of_utility(where):
    cell = final(small(), where)
    expected = run_in_process(cell, sensitivity.training._holdings(cell, where)).digest
    assert trained(cell, where)["models_sha256"] == expected
    away = Cell(cell.study, {**cell.values, "participation": 0.4})
    assert trained(away, where)["models_sha256"] != expected


def test_a_lost_update_is_paid_for_all_the_same(where):
    cell = final(small(), where, rounds=9)
    lost = Cell(cell.study, {**cell.values, "dropout": 0.5})
    kept, gone = Turns.drawn(cell), Turns.drawn(lost)
    assert (kept.spent(cell) == gone.spent(lost)).all()
    assert gone.arrives.sum() < kept.arrives.sum()
    rarely = Cell(cell.study, {**cell.values, "participation": 0.5})
    assert Turns.drawn(rarely).spent(rarely).mean() < kept.spent(cell).mean()


def test_a_round_to_which_nobody_contributes_leaves_the_model_as_it_was(where):
    cell = final(small(), where)
    models = run_in_process(
        cell, sensitivity.training._holdings(cell, where), lambda number: [0, 2] * (number != 1)
    ).models
    assert (models[1] == models[0]).all()
    assert (models[2] != models[1]).any()


def test_classes_are_mixed_where_alpha_is_given(where):
    cell = final(small(), where)
    labels = []
    for alpha in (0.0, 0.05):
        held = sensitivity.training._holdings(Cell(cell.study, {**cell.values, "alpha": alpha}), where)
        own = [np.bincount([int(each[number][1]) for number in range(len(each))], minlength=3) for each in held.clients]
        labels.append(np.mean([counts.max() / counts.sum() for counts in own]))
    assert labels[0] < 0.6 < labels[1]


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(InvalidInput, match="varied names 'weather'"):
        small(varied={"weather": [1.0]})
    with pytest.raises(InvalidInput, match="whole numbers"):
        small(varied={"rounds": [1.5]})
    with pytest.raises(InvalidInput, match="dropout in"):
        small(varied={"dropout": [1.0]})
    with pytest.raises(InvalidInput, match=r"of which \[0\] are"):
        small(tuning_seeds=[0])
