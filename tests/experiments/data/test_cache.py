"""Features on disk are there whole or not at all, made once, and made anew where they are not what was written."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from lrdp.errors import InvalidInput
from lrdp.experiments.data.cache import kept

KEY: dict[str, str | int] = {"data": "a", "version": 1}


class Maker:
    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        random = torch.Generator().manual_seed(1)
        return [torch.randn(2503, 7, generator=random).half(), torch.arange(2503)]


@pytest.fixture
def make():
    return Maker()


def columns(folder):
    return sorted(folder.glob("*/column-*.npy"), key=lambda path: -path.stat().st_size)


def test_they_are_made_once(tmp_path, make):
    first, again = (kept(tmp_path, "task", KEY, make) for _ in range(2))
    assert make.calls == 1
    for written, read, made in zip(first, again, make(), strict=True):
        assert np.array_equal(written, made)
        assert np.array_equal(read, made)


def test_nobody_else_may_look_at_them(tmp_path, make):
    kept(tmp_path, "task", KEY, make)
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("*/*")} == {0o600}


@pytest.mark.parametrize("changed", [{"data": "b", "version": 1}, {"data": "a", "version": 2}])
def test_another_key_is_another_set_and_the_first_is_still_there(tmp_path, make, changed):
    for key in (KEY, changed, KEY):
        kept(tmp_path, "task", key, make)
    assert make.calls == 2


@pytest.mark.parametrize("row", [0, 1200, 2502])
def test_a_flipped_bit_is_seen(tmp_path, make, row):
    kept(tmp_path, "task", KEY, make)
    path = columns(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[len(data) - 14 * (2503 - row) + 3] ^= 1
    path.write_bytes(bytes(data))
    found = kept(tmp_path, "task", KEY, make)
    assert make.calls == 2
    assert np.array_equal(found[0], make()[0])


@pytest.mark.parametrize("which", [0, 1, 2])
def test_what_is_cut_short_or_blank_is_seen(tmp_path, make, which):
    kept(tmp_path, "task", KEY, make)
    path = columns(tmp_path)[which]
    path.write_bytes(path.read_bytes()[:-8])
    kept(tmp_path, "task", KEY, make)
    path = columns(tmp_path)[which]
    path.write_bytes(path.read_bytes()[:-8] + bytes([255] * 8))
    kept(tmp_path, "task", KEY, make)
    assert make.calls == 3


def test_a_manifest_of_nonsense_is_seen(tmp_path, make):
    kept(tmp_path, "task", KEY, make)
    next(tmp_path.glob("*/manifest.json")).write_text('{"key"')
    kept(tmp_path, "task", KEY, make)
    assert make.calls == 2


SCRIPT = """
    import sys, time, torch
    from pathlib import Path
    from lrdp.experiments.data.cache import kept
    def make():
        with open(sys.argv[2], "a") as log:
            log.write("made ")
        print("making", flush=True)
        time.sleep(float(sys.argv[3]))
        return [torch.ones(5, 8)]
    print(kept(Path(sys.argv[1]), "task", {"version": 1}, make)[0].sum())
"""


def start(tmp_path, seconds):
    command = [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path / "kept"), str(tmp_path / "log"), seconds]
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings)


def test_of_two_processes_one_makes_them_and_one_that_is_killed_leaves_nothing(tmp_path):
    killed = start(tmp_path, "600")
    assert killed.stdout.readline() == "making\n"
    both = [start(tmp_path, "0.2") for _ in range(2)]
    assert both[0].poll() is None
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    answers = [process.communicate(timeout=120)[0] for process in both]
    assert [answer.split()[-1] for answer in answers] == ["40.0", "40.0"]
    assert (tmp_path / "log").read_text() == "made made "


def test_an_unfinished_set_is_none(tmp_path, make):
    class Stopped(Exception):
        pass

    def stopped():
        raise Stopped

    with pytest.raises(Stopped):
        kept(tmp_path, "task", KEY, stopped)
    assert not columns(tmp_path)
    kept(tmp_path, "task", KEY, make)
    assert make.calls == 1


def test_a_folder_that_cannot_be_is_told(tmp_path, make):
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInput, match="--features or LRDP_FEATURES"):
        kept(tmp_path / "file", "task", KEY, make)
