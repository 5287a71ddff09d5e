"""Server, guards and nodes are killed at random, members join, leave and run out: what was paid for is not lost.

Everything is a process of its own and dies of SIGKILL. To replay a failure, set the seed that it names.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from .chaos.evidence import Evidence, check
from .chaos.schedule import Change, Mortality, Schedule, drawn

HERE = Path(__file__).parent
SHORT = Schedule(
    seed=0,
    attempts=9,
    founders=5,
    budgets=(9, 3, 9, 9, 9, 9),
    changes=(
        Change(after=2, act="join", hospital=5),
        Change(after=3, act="replace key", hospital=2),
        Change(after=5, act="leave", hospital=0),
    ),
    mortality={
        "server": Mortality(deaths=4, calls=120_000),
        "guard": Mortality(deaths=4, calls=250_000),
        "node": Mortality(deaths=4, calls=20_000),
    },
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lrdp-") as made:
        yield Path(made).resolve()


def played(folder: Path, schedule: Schedule, seconds: float) -> Evidence:
    """The chaos of a schedule, from its beginning to its end."""
    sources = [str(HERE.parents[1] / "src"), str(HERE.parent)]
    ran = subprocess.run(
        [sys.executable, "-m", "federation.chaos.director", str(folder), schedule.encode(), str(seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sources), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"seed {schedule.seed}: {ran.stderr[-3000:]}"
    return Evidence(folder, schedule)


def test_whoever_dies_and_whenever_nothing_paid_for_is_lost(folder: Path) -> None:
    found = played(folder, drawn(SHORT, seed=17), 200)
    check(found)
    assert {dead.partition("-")[0] for dead, _ in found.deaths} == {"server", "guard", "node"}
