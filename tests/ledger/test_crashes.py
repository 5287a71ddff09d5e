"""kill -9 at every write point and at random: nothing is released that was not charged, and nothing is forgotten."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def killed(folder: Path, at_points: int, at_random: int, clients: int) -> dict[str, float]:
    sources = [str(HERE.parents[1] / "src"), str(HERE.parent)]
    finished = subprocess.run(
        [sys.executable, str(HERE / "nursery.py"), str(folder), str(at_points), str(at_random), str(clients)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources), "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return json.loads(finished.stdout)


def check(seen: dict[str, float], kills: int) -> None:
    assert seen["kills"] >= kills
    assert seen["released_but_uncharged"] == 0
    assert seen["wrong_epsilon"] == 0
    assert seen["dropped"] == 0
    assert seen["charges"] >= seen["releases"] > 0


def test_a_kill_at_each_write_point_forgets_nothing(tmp_path: Path) -> None:
    check(killed(tmp_path, at_points=58, at_random=0, clients=0), kills=58)


def test_kills_of_two_processes_at_random_forget_nothing(tmp_path: Path) -> None:
    check(killed(tmp_path, at_points=0, at_random=30, clients=2), kills=60)


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_thousand_kills_forget_nothing(tmp_path: Path) -> None:
    check(killed(tmp_path, at_points=600, at_random=750, clients=2), kills=2000)
