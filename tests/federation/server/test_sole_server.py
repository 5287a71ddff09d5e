"""One server at a time in a folder: a second one is refused, and one that was killed keeps nobody out."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from threading import Thread

import pytest
from flwr.app import ArrayRecord

from federation.worlds import World, initial, world
from lrdp import files
from lrdp.errors import InvalidInput
from lrdp.federation import BufferedAverage, VerifiedAverage
from lrdp.federation.server import strategy
from lrdp.federation.server.resuming import terms_of
from lrdp.federation.server.saved_state import STATE_FILE
from lrdp.federation.server.sole_server import LOCK_FILE, alone_in

REFUSED = r"^another server is at work in .*server, .*; nothing was started\.$"

AT_WORK = """
import sys, time
from pathlib import Path
from federation.worlds import initial, reopened

place = reopened(Path(sys.argv[1]), 3)


def evaluate(number, arrays):
    if number == 1:
        print("at work", flush=True)
        time.sleep(600)


place.strategy().start(place.grid, initial(), num_rounds=3, timeout=5, evaluate_fn=evaluate)
"""

FORKED = """
import os, signal, sys
from pathlib import Path
from lrdp import files

path = Path(sys.argv[1])
with files.locked_at_once(path, files.PUBLIC):
    child = os.fork()
    if not child:
        signal.pause()
try:
    with files.locked_at_once(path, files.PUBLIC):
        print("free")
finally:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_second_process_is_refused_while_a_server_runs_and_goes_on_once_that_is_killed(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    folder = place.consortium.server_folder
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    first = subprocess.Popen([sys.executable, "-c", AT_WORK, str(tmp_path)], env=settings, stdout=subprocess.PIPE)
    with first:
        try:
            assert first.stdout is not None
            assert any(line.strip() == b"at work" for line in first.stdout)
            before = (folder / STATE_FILE).read_bytes()
            with pytest.raises(InvalidInput, match=REFUSED):
                place.run(3)
            with pytest.raises(InvalidInput, match=REFUSED):
                VerifiedAverage.resume(folder).start(place.grid, num_rounds=3, timeout=5)
            with pytest.raises(InvalidInput, match=REFUSED):
                BufferedAverage(terms_of(folder), buffer=3).start(place.grid, initial(), num_rounds=3, timeout=5)
            assert (folder / STATE_FILE).read_bytes() == before
            assert place.audit().failure is None, "a folder is read without the lock"
        finally:
            first.send_signal(signal.SIGKILL)
    assert (folder / LOCK_FILE).exists()
    place.run(3)
    assert [report.model for report in place.reports] == [1, 2]
    assert place.audit().rounds == 3


def second_server(place: World) -> list[str]:
    """What a server that another thread starts while this one evaluates is told, if it is refused."""
    told: list[str] = []

    def start() -> None:
        try:
            VerifiedAverage.resume(place.consortium.server_folder).start(place.grid, num_rounds=0, timeout=5)
        except InvalidInput as problem:
            told.append(str(problem))

    def evaluate(number: int, _arrays: ArrayRecord) -> None:
        if number == 1:
            thread = Thread(target=start)
            thread.start()
            thread.join()

    place.strategy().start(place.grid, initial(), num_rounds=1, timeout=5, evaluate_fn=evaluate)
    return told


def test_a_second_thread_is_refused_and_without_the_lock_it_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = world(tmp_path, 3)
    (told,) = second_server(place)
    assert "another server is at work" in told
    monkeypatch.setattr(strategy, "alone_in", nullcontext)
    assert second_server(place) == []


@pytest.mark.parametrize("buffered", [False, True])
def test_however_a_run_ends_the_same_strategy_starts_again(tmp_path: Path, buffered: bool) -> None:
    place = world(tmp_path, 3)
    terms = place.strategy()._terms
    one = BufferedAverage(terms, buffer=3) if buffered else VerifiedAverage(terms)

    def broken(number: int, _arrays: ArrayRecord) -> None:
        with pytest.raises(InvalidInput, match=REFUSED), alone_in(terms.folder):
            pytest.fail("the folder was free while a server was at work in it")
        if number == 1:
            raise OSError(errno.EAGAIN, "the evaluation's own trouble")

    with pytest.raises(OSError, match="the evaluation's own trouble"):
        one.start(place.grid, initial(), num_rounds=2, timeout=5, evaluate_fn=broken)
    one.start(place.grid, initial(), num_rounds=2, timeout=5)
    one.start(place.grid, num_rounds=3, timeout=5)
    assert place.audit().rounds == 3


def test_the_lock_is_public_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        with alone_in(tmp_path / "new" / "server"):
            assert (tmp_path / "new" / "server" / LOCK_FILE).stat().st_mode & 0o777 == 0o644
    finally:
        os.umask(before)


def test_a_folder_that_cannot_be_locked_is_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / LOCK_FILE)
    with (
        pytest.raises(InvalidInput, match=r"lock cannot be locked \(.+\), .*; nothing was started\.$"),
        alone_in(tmp_path),
    ):
        pytest.fail("a pipe was locked")
    (tmp_path / LOCK_FILE).unlink()

    def unsupported(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(InvalidInput, match=r"lock cannot be locked \(No locks available\)"), alone_in(tmp_path):
        pytest.fail("a file system without flock was taken for one with it")
    with pytest.raises(OSError, match="No locks available"):  # a server could not have kept receipts there either
        files.append(tmp_path / "receipts.txt", b"line", files.PUBLIC)


def test_a_process_that_was_forked_meanwhile_does_not_keep_the_lock(tmp_path: Path) -> None:
    settings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORKED, str(tmp_path / LOCK_FILE)]
    assert subprocess.run(command, env=settings, capture_output=True, check=True, timeout=60).stdout == b"free\n"
