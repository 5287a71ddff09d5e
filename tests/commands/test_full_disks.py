"""Disks that are full: one sentence, nothing half written, and the same line works once there is room."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from experiments.small_hospitals import write_heart
from experiments_data import write_mnist
from lrdp.ledger import verify_export

from . import surface
from .endings import Run, everything, in_one_sentence, no_file_beyond

ROOMS = [*((*each, (0, 300, 5000)) for each in surface.WRITING), *((*each, (0,)) for each in surface.ASKED_TO)]


@pytest.mark.parametrize(("name", "also", "rooms"), ROOMS)
def test_a_full_disk_is_one_sentence_and_the_same_line_works_once_there_is_room(
    lrdp: Run, folder: Path, tmp_path: Path, name: str, also: dict[str, str], rooms: tuple[int, ...]
) -> None:
    line = surface.words(name, **also)
    failures = 0
    for room in rooms:
        place = tmp_path / str(room)
        shutil.copytree(folder, place)
        with no_file_beyond(room):
            ended = lrdp(*line, inside=place)
        if ended.code != 0:
            failures += 1
            assert in_one_sentence(ended, 6 if "ledger" in ended.err and ended.code == 6 else 2) is None, ended
            assert [path for path in everything(place) if Path(path).name.startswith(".")] == []
            again = lrdp(*line, inside=place)
            assert again.code == 0, (room, again.err)
    assert failures, "control: there was not room enough"


@pytest.mark.parametrize(("room", "code"), [(300, 2), (5000, 6)])
def test_a_federation_that_cannot_be_founded_leaves_nothing(lrdp: Run, tmp_path: Path, room: int, code: int) -> None:
    """The first has no room for a registry, the second none for a ledger."""
    with no_file_beyond(room):
        ended = lrdp(*surface.words("run"), inside=tmp_path)
    assert in_one_sentence(ended, code) is None, ended
    assert str(tmp_path / "demonstration") in ended.err, "which file"
    assert everything(tmp_path) == {}


@pytest.mark.slow
def test_a_federation_whose_disk_is_full_ends_in_one_sentence_and_nothing_is_charged(lrdp: Run, tmp_path: Path) -> None:
    with no_file_beyond(30_000):
        code, out, err = lrdp(*surface.words("run"), inside=tmp_path)
    *_, last = err.splitlines()
    assert (code, out) == (5, "")
    assert last.startswith("Error: the run ended without a verified round")
    for ledger in tmp_path.rglob("ledger.db"):
        assert verify_export(ledger).books.charges.states == {}


@pytest.mark.parametrize(
    "study",
    [
        "noise",
        "sensitivity",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("memory", "hospitals", "utility")),
    ],
)
def test_a_study_whose_results_do_not_fit_ends_in_one_sentence_at_the_first(
    lrdp: Run, tmp_path: Path, study: str
) -> None:
    """The others write as these do: tests/experiments/study has what is kept, and goes on from there."""
    (tmp_path / "data").mkdir()
    write_mnist(tmp_path / "data")
    write_heart(tmp_path / "data")
    with no_file_beyond(300):
        code, out, err = lrdp(*surface.words(f"experiments {study}"), inside=tmp_path)
    *_, last = err.splitlines()
    assert (code, out) == (2, ""), err
    assert re.match(r"Error: .*(cannot be written|cannot be kept in) .*\(File too large\)", last), err
    assert [path for path in (tmp_path / "results").rglob("*") if path.is_file()] == []
