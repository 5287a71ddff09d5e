"""kill -9 at every write point and at random: nothing is released that was not charged, and nothing is forgotten."""

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from ledger.worlds import World, request, round_trip
from lrdp.errors import InvalidInput
from lrdp.ledger import Store, verify_export

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


KILLED_COPY = """
import itertools, os, signal, sys
from pathlib import Path
from lrdp.ledger.store import Store

source, target, die_at = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
files = itertools.count(1)

def die(event, arguments):
    if event.startswith(("open", "os.", "sqlite3.connect")) and next(files) == die_at:
        os.kill(os.getpid(), signal.SIGKILL)

with_ledger = Store(source, read_only=True)
sys.addaudithook(die)
with_ledger.copy_to(target)
"""


def test_a_backup_or_a_restore_that_is_killed_is_whole_or_not_there_and_made_by_the_same_line_again(
    tmp_path: Path,
) -> None:
    ledger, copy = World(folder=tmp_path), tmp_path / "copies" / "monday.db"
    with ledger.create() as opened:
        round_trip(opened, request(1))
        entries = opened.books.seq
    copy.parent.mkdir()
    ended = list[int]()
    while not ended or ended[-1] != 0:
        copy.unlink(missing_ok=True)
        words = [sys.executable, "-c", KILLED_COPY, str(ledger.path), str(copy), str(len(ended) + 1)]
        ended.append(subprocess.run(words, capture_output=True, check=False).returncode)
        with closing(Store(ledger.path, read_only=True)) as store, suppress(InvalidInput):  # where it was whole already
            store.copy_to(copy)
        assert verify_export(copy).books.seq == entries
    assert (len(ended) > 5, set(ended[:-1])) == (True, {-signal.SIGKILL})


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_two_thousand_kills_forget_nothing(tmp_path: Path) -> None:
    check(killed(tmp_path, at_points=600, at_random=750, clients=2), kills=2000)
