"""Terminals without an ε, disks that are full, readers who left: in processes of their own, as a shell starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lrdp.commands.output import print_line
from lrdp.commands.streams import streams
from lrdp.errors import InvalidInput
from lrdp.screen import spelled

EPSILON = "epsilon -n 5000 -b 128 --noise-multiplier 4 --steps 10 --delta 1e-5".split()
PLAN = "plan -n 300 -b 10 --rounds 1 --local-steps 1 --epsilon 8 --delta 1e-3".split()
ASCII = [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}]
BARE = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHONIO"))}


def lrdp(*words: object, settings: dict[str, str] | None = None, **streams: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lrdp", *map(str, words)]
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(command, env={**BARE, **(settings or {})}, text=True, check=False, timeout=120, **given)


@pytest.mark.parametrize("settings", ASCII, ids=str)
def test_a_terminal_of_ascii_shows_symbols_as_words(settings: dict[str, str], tmp_path: Path) -> None:
    opened = lrdp("init", "--folder", tmp_path / "ä", "--unit", "Zoë", settings={"PYTHONUTF8": "1"})
    assert opened.returncode == 0, opened.stderr
    shown = lrdp("statement", "--folder", tmp_path / "ä", settings=settings)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.isascii()
    assert "epsilon = 8.0 at delta = 1e-06" in shown.stdout
    assert "Zo\\xeb" in shown.stdout


def test_tables_and_errors_are_ascii_too() -> None:
    for words, code in (PLAN, 0), ([*EPSILON, "--delta", "δ"], 2):
        ended = lrdp(*words, settings=ASCII[0])
        assert ended.returncode == code, ended.stderr
        assert (ended.stdout + ended.stderr).isascii()
        assert "Traceback" not in ended.stderr


def full(words: list[str]) -> subprocess.CompletedProcess[str]:
    with Path("/dev/full").open("w") as nothing_fits:
        return lrdp(*words, stdout=nothing_fits)


def left(words: list[str]) -> subprocess.CompletedProcess[str]:
    """The reader is gone before the first letter."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        return lrdp(*words, stdout=writer)
    finally:
        os.close(writer)


def closed(words: list[str]) -> subprocess.CompletedProcess[str]:
    return lrdp(*words, stdout=None, preexec_fn=lambda: os.close(1))


FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")


@FULL
@pytest.mark.parametrize(
    ("how", "words", "reason"),
    [
        (full, EPSILON, "No space left on device"),
        (full, ["--help"], "No space left on device"),
        (left, [*EPSILON, "--json"], "Broken pipe"),
        (left, PLAN, "Broken pipe"),
    ],
)
def test_an_answer_that_cannot_be_written_is_one_sentence(
    how: Callable[[list[str]], subprocess.CompletedProcess[str]], words: list[str], reason: str
) -> None:
    ended = how(words)
    (sentence,) = ended.stderr.splitlines()
    assert sentence.startswith(f"Error: the answer cannot be written to standard output: {reason};")
    assert ended.returncode == 2


@FULL
def test_an_answer_whose_loss_somebody_overlooked_is_lost_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """A federation tells whoever watches, and goes on where that fails: `lrdp run --json` would have ended well."""

    def spoken() -> None:
        with streams():
            with suppress(InvalidInput):
                print_line("round 1")
                sys.stdout.flush()
            print_line("summary")

    with Path("/dev/full").open("w") as nothing_fits:
        monkeypatch.setattr("sys.stdout", nothing_fits)
        with pytest.raises(InvalidInput, match="cannot be written to standard output: No space left"):
            spoken()


def test_where_standard_output_is_closed_nothing_is_done(tmp_path: Path) -> None:
    ended = closed(["init", "--folder", str(tmp_path / "new")])
    assert ended.stderr == "Error: standard output is closed, so the answer would be lost: nothing was done.\n"
    assert ended.returncode == 2
    assert not (tmp_path / "new").exists()


def test_where_nobody_hears_the_words_the_answer_and_the_exit_code_are_as_ever() -> None:
    """Words for people never end up in the answer, also where their own stream is closed."""
    near_the_edge = "epsilon -n 1000000 -b 1 --noise-multiplier 50 --steps 1 --delta 1e-5 --json".split()
    ended = lrdp(*near_the_edge, stderr=None, preexec_fn=lambda: os.close(2))
    assert json.loads(ended.stdout)["order"] == 1024
    assert ended.returncode == 0
    with Path("/dev/full").open("w") as nothing_fits:
        assert lrdp(*EPSILON, "--steps", "-1", stderr=nothing_fits).returncode == 2


def test_without_a_terminal_and_without_colour_there_are_no_escapes() -> None:
    for settings in ({}, {"NO_COLOR": "1"}):
        shown = lrdp(*PLAN, settings=settings)
        assert "\x1b" not in shown.stdout + shown.stderr
        assert shown.stderr == ""


def test_every_letter_of_the_package_that_ascii_lacks_and_people_read_is_spelled() -> None:
    assert spelled("ε ≤ 8 – at σ × C …", "ascii") == "epsilon <= 8 - at sigma x C ..."
    assert spelled("ε", "utf-8") == "ε"
    assert spelled("ε µ", "latin-1") == "epsilon µ"
