"""All commands: whatever is wrong with a file or a number ends in one sentence, and nothing is half written."""

from __future__ import annotations

import io
import json
import os
import re
import resource
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from commands import surface
from commands.documented import problem_of
from integrity.parties import identity
from lrdp import cli
from lrdp.accounting import Option, Training, options
from lrdp.cli import main
from lrdp.integrity import save_identity

COMMANDS = surface.commands()
ABSURD = {"Int": ["-1", str(10**30)], "Float": ["-1", "nan", "inf"]}


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Ended]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("world")


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


def everything(folder: Path) -> dict[str, bytes | int]:
    """All that is there, to the byte; a folder as its mode. Files that SQLite makes to read are not looked at."""
    return {
        str(path): path.read_bytes() if path.is_file() else stat.S_IFMT(path.stat().st_mode)
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts and not path.name.endswith(("-wal", "-shm"))
    }


def in_one_sentence(ended: Ended, code: int) -> str | None:
    """What is wrong with how a command ended, if anything is."""
    *_, last = ended.err.splitlines() or [""]
    if ended.code != code:
        return f"exit code {ended.code} instead of {code}: {ended.err}"
    if ended.out or not last.startswith("Error: ") or ended.err.count("Error: ") != 1:
        return f"not one sentence at the end: {ended}"
    return None


def test_every_command_and_every_path_of_it_is_in_the_table() -> None:
    """Whoever adds one says here what it takes, and the tests below spoil it."""
    assert surface.LINES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert surface.LINES[name].paths.keys() == set(surface.parameters(command, "Path")), name


@pytest.mark.parametrize("name", COMMANDS)
def test_a_path_to_the_wrong_thing_is_one_sentence_and_changes_nothing(lrdp: Run, folder: Path, name: str) -> None:
    line, wrong = surface.LINES[name], []
    before = everything(folder)
    for parameter, role in line.paths.items():
        for value, code in role.spoiled.items():
            ended = lrdp(*surface.words(name, COMMANDS[name], {**line.given, parameter: value}))
            problem = in_one_sentence(ended, code)
            if problem is None and everything(folder) != before:
                problem = f"changed {set(everything(folder).items()) ^ set(before.items())}"
            wrong += [f"{parameter}={value}: {problem}"] if problem else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_absurd_number_is_one_sentence_and_changes_nothing(lrdp: Run, folder: Path, name: str) -> None:
    line, wrong = surface.LINES[name], []
    before = everything(folder)
    for kind, values in ABSURD.items():
        for parameter in surface.parameters(COMMANDS[name], kind):
            for value in values:
                ended = lrdp(*surface.words(name, COMMANDS[name], {**line.given, parameter: value}))
                problem = in_one_sentence(ended, 2)
                if problem is None and everything(folder) != before:
                    problem = "something was written"
                wrong += [f"{parameter}={value}: {problem}"] if problem else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.skipif(os.name != "posix", reason="modes are posix's")
def test_a_key_that_others_may_read_is_refused_by_every_command_with_the_same_words(
    lrdp: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever option names it, and whoever made it."""
    place = tmp_path / "world"
    shutil.copytree(folder, place)
    join(place)
    monkeypatch.setattr("sys.path", list(sys.path))
    for key in place.rglob("*.pem"):
        key.chmod(0o644)
    refused = []
    for name in SECRETS:
        given = IN_A_SESSION.get(name, surface.LINES[name].given)
        ended = lrdp(*surface.words(name, COMMANDS[name], given), inside=place)
        assert in_one_sentence(ended, 2) is None, (name, ended)
        refused += re.findall(
            r"it has mode 644, so others could use the key, and 600 is the limit: chmod 600", ended.err
        )
    assert len(refused) == len(SECRETS) == 13


IN_A_SESSION = {
    "guard": {**surface.LINES["guard"].given, "code": "."},
    "model export": {"out": "own.pt", "client": "home"},
}
SECRETS = [
    *("keys show", "registry new", "registry sign", "statement"),
    *("ledger export", "ledger adopt-head", "ledger void", "ledger rotate-key"),
    *("ledger raise", "ledger close", "ledger restore"),
    *IN_A_SESSION,
]


def join(place: Path) -> None:
    """What the client in ``home`` has once it is in a session: an identity, a task and a place."""
    save_identity(identity("c000"), place / "home" / "keys" / "identity.pem")
    (place / "home" / "session").mkdir()
    (place / "own_task.py").write_text(
        "from torch import nn\n"
        "from lrdp.federation import LocalTask\n"
        "from lrdp.training import CrossEntropy\n"
        "task = LocalTask(model=lambda: nn.Linear(2, 2), dataset=lambda _: [], loss=CrossEntropy(classes=2))\n"
    )
    with (place / "home" / "policy.toml").open("a") as policy:
        policy.write('\n[task]\nmodule = "own_task:task"\n')


QUICK = [name for name in COMMANDS if not surface.LINES[name].long]
WRITING = [(name, dict[str, str](), (0, 300, 5000)) for name in QUICK if surface.LINES[name].writes]
ASKED_TO = [("epsilon", {"plot": "picture.svg"}), ("plan", {"plot": "plan.svg"}), ("plan", {"write": "plan.toml"})]
"""Commands that write if they are told to."""


@pytest.mark.parametrize(("name", "also", "rooms"), [*WRITING, *((*asked, (0,)) for asked in ASKED_TO)])
def test_a_full_disk_is_one_sentence_and_the_same_line_works_once_there_is_room(
    lrdp: Run, folder: Path, tmp_path: Path, name: str, also: dict[str, str], rooms: tuple[int, ...]
) -> None:
    """The system is told to let no file grow beyond so many bytes: all that writes meets it, SQLite too."""
    line = surface.words(name, COMMANDS[name], {**surface.LINES[name].given, **also})
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


@contextmanager
def no_file_beyond(room: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("name", QUICK)
def test_control_the_lines_of_the_table_work_and_print_json(lrdp: Run, folder: Path, tmp_path: Path, name: str) -> None:
    place, line = tmp_path / "world", surface.LINES[name]
    shutil.copytree(folder, place)
    before = everything(place)
    ended = lrdp(*surface.words(name, COMMANDS[name], {**line.given, "as_json": True}), inside=place)
    assert ended.code == 0, ended.err
    assert isinstance(json.loads(ended.out), dict)
    # Else the disk that is full would not be tried with a new command that writes.
    assert line.writes or everything(place) == before, f"{name} writes, and the table does not say so"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", [*QUICK, "plan"])
def test_an_answer_that_does_not_fit_is_one_sentence_from_every_command(
    lrdp: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place, line = tmp_path / "world", surface.LINES[name]
    shutil.copytree(folder, place)
    with Path("/dev/full").open("w") as nothing_fits:
        monkeypatch.setattr("sys.stdout", nothing_fits)
        ended = lrdp(*surface.words(name, COMMANDS[name], line.given), inside=place)
    assert in_one_sentence(ended, 2) is None, ended
    assert "the answer cannot be written to standard output: No space left on device" in ended.err


@pytest.mark.parametrize("name", [*QUICK, "plan"])
def test_a_terminal_of_ascii_is_told_the_same_by_every_command(
    lrdp: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = tmp_path / "world"
    shutil.copytree(folder, place)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for _ in range(2))
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setattr("sys.stderr", err)
    ended = lrdp(*surface.words(name, COMMANDS[name], surface.LINES[name].given), inside=place)
    said = [stream.buffer.getvalue().decode("ascii") for stream in (out, err)]
    assert ended.code == 0, said
    assert any(said)
    assert "Traceback" not in said[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_an_example_that_parses_and_can_print_json(lrdp: Run, name: str) -> None:
    command = COMMANDS[name]
    assert "as_json" in {each.name for each in command.params}
    shown = re.search(r"Example: (lrdp .+)$", command.help, re.DOTALL)
    assert shown, f"{name} --help has no example"
    words = shlex.split(" ".join(shown[1].split()))[1:]
    assert words[: len(name.split())] == name.split()
    assert problem_of(words, whole=True) is None
    assert lrdp(*name.split(), "--help").code == 0


def test_help_and_version_work_without_a_command(lrdp: Run) -> None:
    code, out, _ = lrdp("--help")
    assert code == 0
    assert all(command in out for command in ("epsilon", "calibrate", "plan"))
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", lrdp("--version").out)


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
