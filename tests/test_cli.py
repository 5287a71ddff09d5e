"""The program itself: what it says of itself, and how whoever stops it is answered."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lrdp import cli
from lrdp.cli import main


def test_help_and_version_work_without_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(word: str) -> str:
        monkeypatch.setattr("sys.argv", ["lrdp", word])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 0
        return capsys.readouterr().out

    assert all(command in said("--help") for command in ("epsilon", "calibrate", "plan"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", said("--version"))


@pytest.mark.parametrize("module", ["lrdp.cli", "scipy.special"])
def test_who_stops_it_while_it_loads_is_answered_as_later_on(tmp_path: Path, module: str) -> None:
    stopping = "import sys; from lrdp import __main__ as program\n" + (
        "class Stopping:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Stopping()); sys.argv = ['lrdp', 'plan', '--help']; program.main()"
    )
    done = subprocess.run([sys.executable, "-c", stopping], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "Stopped.\n")


@pytest.mark.parametrize("by", ["the exception", "typer's own code"])
def test_who_stops_a_command_is_told_so_once(
    by: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(**_options: object) -> int:
        if by == "the exception":
            raise KeyboardInterrupt
        return 130

    monkeypatch.setattr(cli, "_commands", lambda: stopped)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "Stopped.\n")
