"""`make paper-quick`, as anybody runs it: every study from its command to its tables and pictures, on the real data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lrdp.cli import main

HERE = Path(os.environ.get("LRDP_DATA_DIR", Path(__file__).parents[3] / "shared" / "data"))
pytestmark = pytest.mark.skipif(not (HERE / "mnist.npz").exists(), reason="the data sets are not at hand")


def places(folder: Path) -> list[str]:
    given = ["--data-dir", HERE, "--features", folder / "features", "--out", folder / "out", "--jobs", "1"]
    return list(map(str, given))


def lrdp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """On a terminal without Greek letters: all that is said must fit there."""
    command, settings = [sys.executable, "-m", "lrdp", "experiments", *words, *places(folder)], {**os.environ}
    settings["PYTHONIOENCODING"] = "ascii"
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=settings)


# The other studies' cells, tables and pictures have quick tests of their own, which begin no process.
OTHERS = [pytest.param(study, marks=pytest.mark.slow) for study in ("hospitals", "memory", "sensitivity", "utility")]


@pytest.mark.parametrize("study", ["noise", *OTHERS])
def test_a_quick_study_ends_in_tables_and_pictures(tmp_path, study):
    ended = lrdp(tmp_path, study, "--quick", "--json")
    assert ended.returncode == 0, ended.stderr
    assert (ended.stdout + ended.stderr).isascii()
    written = [Path(path) for path in json.loads(ended.stdout)["written"]]
    assert {path.suffix for path in written} == {".json", ".csv", ".svg", ".png"}
    assert all(path.stat().st_size > 0 for path in map(tmp_path.joinpath, written))
    table = json.loads((tmp_path / written[0]).read_text())
    assert table["rows"]
    assert table["made"]["command"].startswith(f"lrdp experiments {study} --quick")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["utility", "--set", 'only_tasks=["mnits"]'], "mnits"),
        (["utility", "--model", "vgg12"], "vgg12"),
        (["memory", "--set", "modle=1"], "modle"),
        (["noise", "--settings", "nowhere.toml"], "nowhere.toml"),
        (["hospitals", "--set", "="], "--set"),
    ],
)
def test_names_that_nothing_stands_for_are_one_sentence(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.setattr(sys, "argv", ["lrdp", "experiments", *words, *places(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists() or not any((tmp_path / "out").rglob("*.json"))
