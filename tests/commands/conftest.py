"""A client that has just been set up; and every command of the table in the world that its lines name."""

from functools import cache
from pathlib import Path

import pytest

from lrdp.accounting import Option, Training, options
from lrdp.cli import main

from . import surface
from .clients import Client
from .endings import Ended, Run


@pytest.fixture
def client(tmp_path: Path) -> Client:
    made = Client(tmp_path / "home")
    made.run(
        "init", "--folder", str(made.home.folder), "--client", "hospital-a", "--rounds", "5", "--local-steps", "20"
    )
    return made


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world, which no test may change: it is made by the first that asks for ``lrdp``."""
    made = tmp_path_factory.mktemp("surroundings") / "world"
    made.mkdir()
    return made


@cache
def searched(training: Training) -> tuple[Option, ...]:
    """What `lrdp plan` compares: found once, for it is how a plan is written and shown that is tried here."""
    return tuple(options(training))


@pytest.fixture
def lrdp(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path) -> Run:
    """Run one command in the world's folder, in this process."""

    def run(*words: str, inside: Path = folder) -> Ended:
        monkeypatch.chdir(inside)
        monkeypatch.setattr("sys.argv", ["lrdp", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        return Ended(int(str(stopped.value.code)), *capsys.readouterr())

    def works(*words: str) -> None:
        ended = run(*words)
        assert ended.code == 0, (words, ended.err)

    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr("lrdp.commands.planning.options", searched)
    if not (folder / "empty").exists():
        surface.world(folder, works)
    return run
