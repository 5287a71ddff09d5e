"""A study is run once: what is finished is kept, what is half done is not taken for done, bad input is a sentence."""

import csv
import errno
import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from experiments.study.counting import Counting, Silence, places
from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.experiments.study import Cell, conduct, decoded, read_settings
from lrdp.experiments.study import settings as shipped_settings


@pytest.fixture
def study(tmp_path):
    (tmp_path / "marks").mkdir()
    return Counting(tmp_path / "marks")


def ran(study):
    return len(list(study.marks.iterdir()))


def cell_files(tmp_path):
    return sorted((tmp_path / "results" / "cells").glob("*.json"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_are_written_as_json_and_csv_with_what_they_depend_on(study, tmp_path, jobs):
    table, sheet = conduct(study, places(tmp_path), jobs, Silence())
    found = json.loads(table.read_text())
    assert found["rows"] == [{"number": number, "value": number**2} for number in (3, 1, 4, 16)]
    assert found["settings"] == {"kind": "squares"}
    assert {"python", "packages", "processor", "command", "day"} <= set(found["made"])
    assert [row["value"] for row in csv.DictReader(sheet.read_text().splitlines())] == ["9", "1", "16", "256"]


def test_what_was_run_is_not_run_again(study, tmp_path):
    conduct(study, places(tmp_path), 1, Silence())
    watch = Silence()
    conduct(study, places(tmp_path), 1, watch)
    assert ran(study) == 4
    assert watch.stages == [(3, 3), (1, 1)]


def test_only_what_changed_is_run(study, tmp_path):
    conduct(study, places(tmp_path), 1, Silence())
    conduct(replace(study, numbers=(1, 4, 2)), places(tmp_path), 1, Silence())
    assert ran(study) == 4 + 1  # the largest is the same


def test_a_run_that_is_killed_goes_on_where_it_was(study, tmp_path):
    here = Path(__file__)
    command = [sys.executable, "-m", "experiments.study.counting", str(tmp_path)]
    killed = subprocess.run(command, check=False, cwd=here.parents[2], capture_output=True)
    assert killed.returncode == -9, killed.stderr
    assert ran(study) == len(cell_files(tmp_path)) == 2
    conduct(study, places(tmp_path), 1, Silence())
    assert ran(study) == 4


def test_a_cell_that_fails_costs_the_others_nothing(study, tmp_path):
    with pytest.raises(InvalidInput, match=r"1 of 3 cells failed, the others are kept.*number 1.*not a good number"):
        conduct(replace(study, bad=(1,)), places(tmp_path), 1, Silence())
    conduct(study, places(tmp_path), 1, Silence())
    assert ran(study) == 4


@pytest.mark.parametrize("text", ["", "{", '{"format": 1}', "[]", '{"format": 2, "study": "counting"}'])
def test_half_a_result_is_not_taken_for_one(study, tmp_path, text):
    conduct(study, places(tmp_path), 1, Silence())
    broken = cell_files(tmp_path)[0]
    broken.write_text(text)
    with pytest.raises(InvalidInput, match="damaged or of another version: remove it"):
        conduct(study, places(tmp_path), 1, Silence())
    broken.unlink()
    conduct(study, places(tmp_path), 1, Silence())
    assert ran(study) == 5


def test_another_cells_result_under_this_ones_name_is_refused(study, tmp_path):
    conduct(study, places(tmp_path), 1, Silence())
    first, second, *_ = cell_files(tmp_path)
    first.write_bytes(second.read_bytes())
    with pytest.raises(InvalidInput, match="remove it"):
        conduct(study, places(tmp_path), 1, Silence())


def test_a_full_disk_is_a_sentence_and_leaves_what_was_kept(study, tmp_path, monkeypatch):
    real = files.replace

    def full_after_one(path, data, mode):
        if len(cell_files(tmp_path)) == 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(path, data, mode)

    monkeypatch.setattr(files, "replace", full_after_one)
    with pytest.raises(InvalidInput, match=r"No space left on device.*finished before is kept"):
        conduct(study, places(tmp_path), 1, Silence())
    assert len(cell_files(tmp_path)) == 1
    monkeypatch.undo()
    conduct(study, places(tmp_path), 1, Silence())
    assert len(cell_files(tmp_path)) == 4


def test_a_folder_that_cannot_be_made_is_a_sentence(study, tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(InvalidInput, match="nothing was run"):
        conduct(study, places(tmp_path), 1, Silence())
    assert ran(study) == 0


def test_a_key_does_not_depend_on_the_order_of_values():
    cell = Cell("s", {"a": 1, "b": [2, 3]})
    assert cell.key == Cell("s", {"b": [2, 3], "a": 1}).key
    assert len({cell.key, Cell("t", cell.values).key, Cell("s", {"a": 1, "b": [3, 2]}).key}) == 3


# ------------------------------------------------------------------------------------------------------------ settings
@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    name: str = "x"


@dataclass(frozen=True, kw_only=True)
class Outer:
    sizes: tuple[int, ...]
    parts: dict[str, Inner]
    on: bool = False


def test_tables_become_values():
    found = decoded(Outer, {"sizes": [1, 2], "parts": {"a": {"rate": 1}}}, "file")
    assert found == Outer(sizes=(1, 2), parts={"a": Inner(rate=1.0)})


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"sizes": [1], "parts": {}, "size": 1}, r"file has 'size', which is none of sizes, parts, on"),
        ({"sizes": [1]}, r"file lacks 'parts'"),
        ({"sizes": ["1"], "parts": {}}, r"file.sizes\[0\] must be a whole number, got '1'"),
        ({"sizes": [True], "parts": {}}, r"file.sizes\[0\] must be a whole number, got True"),
        ({"sizes": 1, "parts": {}}, r"file.sizes must be a list"),
        ({"sizes": [1], "parts": {"a": {"rate": "fast"}}}, r"file.parts.a.rate must be a number, got 'fast'"),
        ({"sizes": [1], "parts": {"a": 3}}, r"file.parts.a must be a table"),
    ],
)
def test_what_does_not_fit_is_named(table, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        decoded(Outer, table, "file")


def test_quick_settings_are_laid_over_the_others(tmp_path):
    path = tmp_path / "s.toml"
    path.write_text("seeds = 5\n[tasks.a]\nrounds = 9\nclients = 10\n[quick]\nseeds = 1\ntasks.a.rounds = 2\n")
    assert read_settings(path, quick=False) == {"seeds": 5, "tasks": {"a": {"rounds": 9, "clients": 10}}}
    assert read_settings(path, quick=True) == {"seeds": 1, "tasks": {"a": {"rounds": 2, "clients": 10}}}


@pytest.mark.parametrize("content", [None, b"\xff", b"seeds ="])
def test_settings_that_cannot_be_read_are_a_sentence(tmp_path, content):
    path = tmp_path / "s.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InvalidInput, match=r"s\.toml"):
        read_settings(path, quick=False)


@pytest.mark.parametrize("name", ["memory", "utility", "sensitivity", "noise", "hospitals"])
def test_every_study_has_settings_that_are_shipped(name):
    assert shipped_settings.shipped(name).is_file()
