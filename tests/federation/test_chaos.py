"""Server, guards and nodes are killed at random, members join, leave and run out: what was paid for is not lost.

Everything is a process of its own and dies of SIGKILL. A failure shows its schedule; LRDP_CHAOS_SEED replays it.
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

from lrdp.federation.wire.questions import Contributed

from .chaos.contradictions import contradicted
from .chaos.evidence import Evidence
from .chaos.holding import check
from .chaos.schedule import Change, Mortality, Schedule, drawn

HERE = Path(__file__).parent
SEED = int(os.environ.get("LRDP_CHAOS_SEED", "17"))
SHORT = Schedule(
    seed=SEED,
    rounds=7,
    founders=5,
    budgets=(20, 3, 20, 20, 20, 20),
    changes=(
        Change(after=2, act="join", hospital=5),
        Change(after=3, act="lose key", hospital=2),
        Change(after=5, act="vanish", hospital=0),
    ),
    mortality={
        "server": Mortality(deaths=4, calls=120_000),
        "guard": Mortality(deaths=4, calls=250_000),
        "node": Mortality(deaths=4, calls=20_000),
    },
)
LONG = replace(
    SHORT,
    rounds=30,
    budgets=(60, 6, 60, 60, 60, 60, 60, 4),
    changes=(
        Change(after=3, act="join", hospital=5),
        Change(after=6, act="lose key", hospital=2),
        Change(after=9, act="vanish", hospital=0),
        Change(after=12, act="join", hospital=6),
        Change(after=15, act="replace key", hospital=5),
        Change(after=18, act="exclude", hospital=3),
        Change(after=20, act="join", hospital=7),
        Change(after=23, act="leave", hospital=4),
    ),
    mortality={
        "server": Mortality(deaths=15, calls=250_000),
        "guard": Mortality(deaths=20, calls=900_000),
        "node": Mortality(deaths=20, calls=60_000),
    },
)
EVERYBODY = {"server", "guard", "node"}


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short name: a socket's path has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="lrdp-") as made:
        yield Path(made).resolve()


def played(folder: Path, schedule: Schedule, seconds: float) -> Evidence:
    """The chaos of a schedule, from its beginning to its end."""
    sys.stdout.write(f"{schedule.encode()}\n")  # pytest shows it if the test fails
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


def dead(found: Evidence) -> set[str]:
    """Which kinds of processes died; a member that vanished is not enough."""
    mortal = {blow.kind for blow in found.blows if blow.hospital not in found.parted}
    return mortal & EVERYBODY


@pytest.mark.timeout(900)
def test_whoever_dies_and_whenever_nothing_paid_for_is_lost(folder: Path) -> None:
    found = played(folder, drawn(SHORT, SEED), 400)
    check(found)
    assert dead(found) == EVERYBODY
    for holds, wrong, message in contradicted(found):
        with pytest.raises(AssertionError, match=message):
            holds(wrong)


@pytest.mark.timeout(900)
def test_control_a_server_that_shows_a_proof_before_it_is_on_disk_is_found_out(folder: Path) -> None:
    """Its clients go on to a round that the server does not know of once it has died.

    Where it has not even reported that round, the run ends early: everybody is ahead of it.
    """
    alone = {"server": Mortality(deaths=12, calls=80_000)}
    given = replace(SHORT, founders=3, budgets=(20, 20, 20), changes=(), mortality=alone, rounds=6, arrival=10.0)
    found = played(folder, replace(given, without="state before tags"), 400)
    with pytest.raises(AssertionError, match=r"reported round \d+ as verified, and forgot it|run ended early"):
        check(found)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [SEED, SEED + 1, SEED + 2])
def test_thirty_rounds_of_it(folder: Path, seed: int) -> None:
    found = played(folder, drawn(LONG, seed), 3000)
    check(found)
    assert dead(found) == EVERYBODY


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_rounds_with_deaths_at_any_instant(folder: Path) -> None:
    """From outside, also in the midst of a call; so another run of the same seed is another chaos."""
    found = played(folder, replace(drawn(LONG, SEED), seconds=0.5), 3000)
    check(found)
    assert dead(found) == EVERYBODY


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_buffers_of_it(folder: Path) -> None:
    # Of four, one may leave before it has confirmed the round; of three, nobody: those who were not in it would wait.
    enough = (60, 6, 60, 60, 60, 60, 60, 60)  # so that four with budget left are there to the end
    found = played(folder, replace(drawn(LONG, SEED), buffer=4, budgets=enough), 3000)
    check(found)
    assert dead(found) == EVERYBODY


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_thirty_masked_rounds_of_it(folder: Path) -> None:
    """The server sees the sum alone, and a roster is bound to its updates before any of them leaves."""
    found = played(folder, replace(drawn(LONG, SEED), scheme="exact"), 3000)
    check(found)
    assert dead(found) == EVERYBODY
    assert not [each for each in found.passed if isinstance(each.said, Contributed)]
