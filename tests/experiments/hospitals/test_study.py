"""The study of hospitals as a whole, on three made-up ones."""

import json
import sys

import numpy as np
import pytest

from experiments.small_hospitals import SIZES, places, small, write_heart
from lrdp.accounting import (
    Accountant,
    Adjacency,
    FixedSizeGaussian,
    PldAccountant,
    RenyiAccountant,
    SampledGaussian,
    TruncatedPoissonGaussian,
)
from lrdp.errors import InvalidInput
from lrdp.experiments.hospitals import training
from lrdp.experiments.hospitals.machine import MachineJob, MachineWay, attempt
from lrdp.experiments.study import CellStore, Results, conduct


class Silence:
    def __init__(self):
        self.ran = []

    def stage(self, cells, kept):
        pass

    def done(self, cell, seconds):
        self.ran.append(cell)


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hospitals")
    write_heart(folder / "data")
    return places(folder)


@pytest.fixture(scope="module")
def written(where):
    return conduct(small(), where, 1, Silence())


@pytest.fixture(scope="module")
def results(where, written):
    """As they were kept."""
    found = Results()
    for stage in small().stages:
        for cell in stage(found):
            kept = CellStore(where.results).load(cell)
            assert kept is not None
            found.add(cell, kept)
    return found


def test_every_method_serves_every_hospital(where, written):
    assert {path.name for path in written} >= {"hospitals.json", "hospitals.csv", "hospitals-left-out.png"}
    rows = json.loads((where.results / "hospitals.json").read_text())["rows"]
    served = {(row["method"], row["group"]): row for row in rows}
    assert {group for _, group in served} == {*SIZES, "all together", "low memory", "the others"}
    assert {method for method, _ in served} == {"none", "l-rdp", "truncated"}
    assert served["l-rdp", "tiny"]["low_memory"] is True
    assert all(0 <= row["mean"] <= 1 for row in rows if row["mean"] is not None)


def test_a_second_run_has_nothing_to_do_and_a_changed_setting_runs_its_own_cells_alone(where, written):
    again, changed = Silence(), Silence()
    conduct(small(), where, 1, again)
    assert not again.ran
    conduct(small(seeds=[0, 1, 2], only_tasks=["heart"], tasks={"heart": {"methods": ["none"]}}), where, 1, changed)
    assert {cell["seed"] for cell in changed.ran} == {2}


def test_each_hospital_spends_what_the_accountant_says_of_its_own_size(results):
    for row in small().rows(results):
        if row["method"] == "none" or row["training_records"] is None:
            continue
        held, noise = row["training_records"], row["noise_multiplier"]
        assert held == SIZES[row["group"]] - SIZES[row["group"]] // 3
        batch = round(held / 2)
        if row["method"] == "l-rdp":
            step: SampledGaussian = FixedSizeGaussian(dataset_size=held - 1, batch_size=batch, noise_multiplier=noise)
            accountant: Accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
        else:
            cap = int(np.ceil(batch + 5 * np.sqrt(batch)))
            step = TruncatedPoissonGaussian(dataset_size=held + 1, batch_size=batch, cap=cap, noise_multiplier=noise)
            accountant = PldAccountant(adjacency=Adjacency.ADD_REMOVE)
        assert row["epsilon_spent"] == accountant.epsilon({step: 2}, 1e-5).epsilon <= 8.0


def test_a_hospital_has_the_same_randomness_whoever_else_is_there(where, results):
    """So that what changes without the tiny hospital is its absence, and nothing else."""
    study = small()
    line = ("heart", "l-rdp", 8.0)
    cells = [study.plan.final_cell(results, line, 0, left_out) for left_out in ((), ("tiny",))]
    desks = []
    for cell in cells:
        patients, _ = training.patients(cell["gathering"], where).parted(0)
        numbers = {name: number for number, name in enumerate(sorted(patients.site_names))}
        team = training._Team(cell, patients.without(cell["left_out"]), training._asked(cell), numbers)
        desks.append({desk.client: desk for desk in team._desks()})
    assert set(desks[0]) == {0, 1, 2}
    assert set(desks[1]) == {0, 1}
    for number in desks[1]:
        assert len(desks[0][number].task.dataset) == len(desks[1][number].task.dataset)
        assert desks[0][number].mechanism == desks[1][number].mechanism


def test_settings_that_name_what_is_not_there_are_refused():
    with pytest.raises(InvalidInput, match="only_tasks names 'lungs'"):
        small(only_tasks=["lungs"])
    with pytest.raises(InvalidInput, match="batch_share must lie in"):
        small(tasks={"heart": {"batch_share": 1.0}})
    with pytest.raises(InvalidInput, match="library must be one of"):
        small(machines={"ways": {"ours": {"library": "magic"}}})


def job(tmp_path, library, **changes):
    chance = np.random.default_rng(3)
    np.save(tmp_path / "x.npy", chance.normal(size=(60, 20)).astype(np.float32))
    np.save(tmp_path / "y.npy", chance.integers(0, 2, 60))
    given = {"hidden": (1024, 1024), "batch_size": 40, "steps": 2, "limit": 0, **changes}
    return MachineJob(
        way=MachineWay(library=library), inputs=str(tmp_path / "x.npy"), labels=str(tmp_path / "y.npy"), **given
    )


def test_what_ends_for_another_reason_than_memory_is_no_evidence(tmp_path):
    broken = job(tmp_path, "lrdp", limit=4 * 10**9)
    (tmp_path / "x.npy").write_bytes(b"no array")
    with pytest.raises(InvalidInput, match="not for want of memory"):
        attempt(broken)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA is Linux's")
def test_within_a_limit_one_runs_and_the_other_does_not(tmp_path):
    pytest.importorskip("opacus")
    assert attempt(job(tmp_path, "lrdp", limit=400 * 10**6))["ran"]
    assert not attempt(job(tmp_path, "opacus", limit=400 * 10**6))["ran"]
    assert attempt(job(tmp_path, "opacus"))["live_bytes"] > 4 * attempt(job(tmp_path, "lrdp"))["live_bytes"]
