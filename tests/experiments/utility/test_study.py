"""The study from settings to table: which cells there are, what is chosen, and how sure one can be of a gap."""

import csv
import json
import math
from typing import Any

import pytest

from experiments.small_study import SETTINGS, places, run, small, use_made_up
from lrdp.errors import InvalidInput
from lrdp.experiments import utility
from lrdp.experiments.study import Results, conduct, read_settings
from lrdp.experiments.study.settings import laid_over
from lrdp.experiments.utility import opacus_noise
from lrdp.experiments.utility.statistics import error_of_test_set, gap, interval
from lrdp.experiments.utility.table import rows


@pytest.fixture
def where(tmp_path, monkeypatch):
    use_made_up(monkeypatch)
    monkeypatch.setattr(opacus_noise, "FINE", opacus_noise.Fineness(tolerance=0.05, prv_error=0.01))
    return places(tmp_path)


class Silence:
    def stage(self, cells, kept): ...

    def done(self, cell, seconds): ...


# ------------------------------------------------------------------------------------------------------------ settings
def shipped(**changes):
    study: Any = utility.study(laid_over(read_settings(SETTINGS, quick=False), changes))
    return study.plan


def test_the_shipped_grid_is_the_papers():
    settings = shipped().settings
    assert (settings.clients, settings.epsilons, settings.delta) == (10, (2, 4, 6, 8, 10), 1e-5)
    assert len(settings.seeds) >= 5
    assert list(settings.methods)[:6] == ["none", "poisson-rdp", "poisson-prv", "l-rdp", "fixed-pld", "truncated"]
    assert {len(task.rates) for task in settings.tasks.values()} == {4}
    for task in settings.tasks.values():
        ratios = [after / before for before, after in zip(task.rates, task.rates[1:], strict=False)]
        assert max(ratios) <= 1.2 * min(ratios)  # geometric


def test_every_method_is_tried_with_as_many_rates():
    study = small(epsilons=[2.0, 8.0])
    counts: dict[Any, Any] = {}
    for cell, _ in fake(study, lambda cell: 0.5).where(stage="tuning"):
        counts.setdefault((cell["method"], cell["epsilon"]), []).append(cell["rate"])
    assert set(map(tuple, counts.values())) == {(0.5, 2.0)}
    named = {"none", "poisson-rdp", "poisson-prv", "l-rdp", "fixed-pld", "truncated", "automatic"}
    assert {method for method, _ in counts} == named


def test_automatic_clipping_is_in_the_cells_of_its_method_alone():
    found = fake(small(epsilons=[8.0]), lambda cell: 0.5)
    told = {cell["method"]: cell.values.get("gamma") for cell, _ in found.where(stage="final")}
    assert told.pop("automatic") == 0.01
    assert set(told.values()) == {None}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"only_tasks": ["imagenet"]}, "'imagenet', which is none of mnist"),
        ({"only_methods": ["dp-ftrl"]}, "'dp-ftrl', which is none of none"),
        ({"baseline": "gold"}, "'gold'"),
        ({"model": "gpt"}, "'gpt', which is none of linear"),
        ({"tuning_seeds": [100, 3]}, r"of which \[3\] are"),
        ({"tuning_seeds": []}, "one or more"),
        ({"methods": {"none": {"engine": "steam"}}}, "engine must be one of"),
        ({"methods": {"none": {"sampling": "shuffling"}}}, "sampling must be one of"),
        ({"methods": {"none": {"colour": "red"}}}, "'colour', which is none of"),
    ],
)
def test_what_does_not_fit_is_one_sentence_before_anything_runs(changes, words):
    with pytest.raises(InvalidInput, match=words):
        shipped(**changes)


def test_a_model_brings_along_what_it_needs_otherwise():
    own = {"kind": "linear", "bias": True, "over": {"rates": [1.0, 2.0, 4.0, 8.0], "data": {"features": "pixels"}}}
    plan = shipped(models={"other": own}, model="other")
    task = plan.settings.tasks["mnist"]
    assert task.rates == (1.0, 2.0, 4.0, 8.0)
    assert task.data["features"] == "pixels"
    assert plan.settings.model_of(task)["bias"] is True


def test_some_steps_of_a_training_have_the_whole_ones_noise(where):
    whole, some = small(only_methods=["l-rdp"]), small(only_methods=["l-rdp"], steps=2)
    found = {}
    for study in (whole, some):
        cell = study.plan.tuning(run(study, where, stages=2))[0]
        found[study is some] = cell
    assert (found[True]["rounds"], found[False]["rounds"]) == (1, 3)
    assert found[True]["mechanism"] == found[False]["mechanism"]


# --------------------------------------------------------------------------------------------------------------- table
def test_the_study_runs_is_gone_on_with_and_says_what_it_wrote(where, monkeypatch):
    methods = ["none", "fixed-pld", "truncated", "opacus-rdp"]
    own = {"opacus-rdp": {"rates_of": "fixed-pld"}}
    study = small(only_methods=methods, baseline="fixed-pld", methods=own)
    written = conduct(study, where, 1, Silence())
    assert {path.suffix for path in written} == {".json", ".csv", ".svg", ".png"}
    first = (where.results / "utility.csv").read_bytes()
    monkeypatch.setattr(type(study), "work", None)  # nothing is run again
    conduct(study, where, 1, Silence())
    assert (where.results / "utility.csv").read_bytes() == first
    table = {row["method"]: row for row in csv.DictReader(first.decode().splitlines())}
    assert list(table) == methods
    assert table["fixed-pld"]["gap"] == ""
    assert float(table["truncated"]["gap"]) == pytest.approx(
        float(table["truncated"]["accuracy"]) - float(table["fixed-pld"]["accuracy"])
    )
    assert table["opacus-rdp"]["seeds"] == "1"
    assert table["opacus-rdp"]["rate"] == table["fixed-pld"]["rate"]
    record = json.loads((where.results / "utility.json").read_text())
    assert record["rows"][0]["epsilon_own"] is None


def fake(study, scores):
    """Results in which each final run has the given accuracy by method and seed."""
    results = Results()
    for stage in study.stages[:4]:
        for cell in stage(results):
            if cell["stage"] == "data":
                results.add(cell, {"train": 333, "validation": 9, "test": 9, "classes": 3, "shape": [7]})
            elif cell["stage"] == "noise":
                names = ("epsilon_own", "epsilon_rdp", "epsilon_pld", "cut_probability")
                results.add(cell, {"noise_multiplier": 1.25, **dict.fromkeys(names, 0.5)})
            else:
                found = scores(cell)
                common = {"clipped": 0, "seconds": 1.0, "tested": 400, "models_sha256": ""}
                results.add(cell, {"validation": found, "test": found, **common})
    return results


def test_one_lucky_tuning_seed_does_not_choose_the_rate():
    study = small(only_methods=["l-rdp"], tuning_seeds=[100, 101, 102])
    results = fake(study, lambda cell: {(2.0, 100): 0.9, (2.0, 101): 0.5}.get((cell["rate"], cell["seed"]), 0.8))
    assert [row["rate"] for row in rows(study.plan, results)] == [0.5]
    alone = small(only_methods=["l-rdp"], tuning_seeds=[100])
    assert [row["rate"] for row in rows(alone.plan, fake(alone, lambda cell: cell["rate"] / 10))] == [2.0]  # control


def test_the_rate_is_the_best_on_validation_and_an_edge_is_marked():
    study = small(only_methods=["l-rdp"], tasks={"mnist": {"rates": [0.5, 1.0, 2.0]}})
    best = fake(study, lambda cell: 0.9 if cell["rate"] == 1.0 else 0.8)
    assert [(row["rate"], row["rate_at_edge"]) for row in rows(study.plan, best)] == [(1.0, False)]
    edge = fake(study, lambda cell: 0.7 + cell["rate"] / 10)
    assert [(row["rate"], row["rate_at_edge"]) for row in rows(study.plan, edge)] == [(2.0, True)]
    tie = fake(study, lambda cell: 0.8)
    assert [row["rate"] for row in rows(study.plan, tie)] == [0.5]


def test_what_has_no_privacy_is_run_once_and_stands_at_every_epsilon():
    study = small(only_methods=["none", "poisson-prv"], epsilons=[2.0, 8.0])
    results = fake(study, lambda cell: 0.9 if cell["private"] else 0.95)
    assert len(list(results.where(stage="final", method="none"))) == 2
    found = [row for row in rows(study.plan, results) if row["method"] == "none"]
    assert [row["epsilon"] for row in found] == [2.0, 8.0]
    assert [row["gap"] for row in found] == pytest.approx([5.0, 5.0])
    assert found[0]["noise_multiplier"] is None


def test_a_gap_has_a_paired_and_an_independent_interval():
    """Student's t by hand: of (1, 2, 3) against (0, 1, 3) and against them moved on by one."""
    found = gap({0: 1.0, 1: 2.0, 2: 3.0}, {0: 0.0, 1: 1.0, 2: 3.0, 9: 50.0})
    assert found.mean == pytest.approx(2 / 3)
    half = 4.302652729911275 * math.sqrt(1 / 3) / math.sqrt(3)  # t of 2 degrees, deviation of (1, 1, 0)
    assert found.paired == pytest.approx((2 / 3 - half, 2 / 3 + half))
    wide = 4.302652729911275 * math.sqrt(13 / 3) / math.sqrt(3)  # of (0, -1, 3)
    assert found.independent == pytest.approx((2 / 3 - wide, 2 / 3 + wide))
    assert found.paired != found.independent


def test_of_one_value_there_is_no_interval():
    assert interval([3.0]) == (None, None)


def test_the_error_of_the_test_set_is_the_binomials():
    assert error_of_test_set(90.0, 10_000) == pytest.approx(0.3)
