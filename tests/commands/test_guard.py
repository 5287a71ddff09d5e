"""A guard that was set up wrongly: one sentence that says what to do, the right exit code, and no socket left."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest

import lrdp.federation
from federation.guards import Site, site
from lrdp.cli import main
from lrdp.errors import InvalidInput
from lrdp.federation.wire.requirements import require_flower, require_torch
from lrdp.federation.wire.sockets import listening
from lrdp.ledger import parse_policy

from .endings import no_file_beyond

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """`lrdp guard …` within this process, which is as it was afterwards: its exit code, and the last line on stderr."""
    logger = logging.getLogger("lrdp")
    before = logger.handlers[:], logger.propagate, logger.level

    def started(command: list[str]) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", command[2:])
        monkeypatch.setattr(sys, "path", list(sys.path))
        monkeypatch.delitem(sys.modules, "local_task", raising=False)
        with pytest.raises(SystemExit) as stopped:
            main()
        said = capsys.readouterr().err.splitlines()
        assert "Traceback" not in "".join(said)
        return int(str(stopped.value.code)), said[-1]

    yield started
    logger.handlers[:], logger.propagate = before[:2]
    logger.setLevel(before[2])
    sys.modules.pop("local_task", None)


@pytest.fixture
def made(tmp_path: Path) -> Site:
    return site(tmp_path)


def _no_policy(made: Site) -> None:
    made.policy.unlink()


def _no_registry(made: Site) -> None:
    text = made.policy.read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("registry_sha256 ="))
    made.set(line, 'registry_sha256 = ""')


def _no_identity(made: Site) -> None:
    made.home.identity_file.unlink()


def _other_identity(made: Site) -> None:
    other = made.consortium.client("hospital-1").identity_file
    made.home.identity_file.unlink()
    other.rename(made.home.identity_file)


def _no_task(made: Site) -> None:
    made.set('[task]\nmodule = "local_task:task"\n', "")


def _no_ledger(made: Site) -> None:
    (made.folder / "ledger.db").unlink()


def _damaged_ledger(made: Site) -> None:
    (made.folder / "ledger.db").write_bytes(b"SQLite format 3\0" + bytes(4096))


def _task(name: str) -> Callable[[Site], None]:
    return lambda made: made.set("local_task:task", name)


def _records(pairs: int) -> Callable[[Site], int]:
    return lambda made: made.data.write_text("0\n1\n" * pairs, encoding="ascii")


def _wrong_labels(made: Site) -> None:
    made.data.write_text("0\n7\n" * 60, encoding="ascii")


def _unreadable_data(made: Site) -> None:
    made.data.write_text("zero\n", encoding="ascii")


def _no_data(made: Site) -> None:
    made.data.unlink()


WRONG: dict[str, tuple[Callable[[Site], object], int, str]] = {
    "no policy": (_no_policy, 4, "write one with `lrdp init`"),
    "no registry": (_no_registry, 2, "`lrdp registry verify`"),
    "no identity": (_no_identity, 2, "make one with `lrdp keys new`"),
    "another's identity": (_other_identity, 2, "the keys are those of hospital-1"),
    "no task": (_no_task, 2, 'add a table [task] with the line module = "package.module:name"'),
    "no ledger": (_no_ledger, 6, "restore its backup with `lrdp ledger restore`"),
    "damaged ledger": (_damaged_ledger, 6, "ledger"),
    "task not there": (_task("nothing_here:task"), 2, "No module named 'nothing_here'"),
    "task without that name": (_task("local_task:tsak"), 2, "local_task has no tsak"),
    "task is a number": (_task("local_task:number"), 2, "local_task:number failed (TypeError"),
    "task that fails": (_task("local_task:broken"), 2, "RuntimeError: no licence"),
    "task is no name": (_task("../../fab/task.py"), 2, 'a name as in "package.module:name"'),
    "too few records": (_records(49), 2, "got 98: with fewer, each is drawn more often than was accounted"),
    "where their number is stated": (_records(49), 2, "The policy states it as min_dataset_size, policy.toml line"),
    "no record to spare": (_records(50), 2, "the data set has 100 records, and with 99 it would be refused"),
    "labels that are none": (_wrong_labels, 2, "labels must be whole numbers from 0 to 1"),
    "data that cannot be read": (_unreadable_data, 2, "ValueError: invalid literal"),
    "no data": (_no_data, 2, "there is no data at"),
}


@pytest.mark.parametrize(("spoil", "code", "words"), WRONG.values(), ids=WRONG.keys())
def test_what_is_missing_or_wrong_is_said_in_one_sentence_before_anything_is_served(
    run: Run, made: Site, spoil: Callable[[Site], object], code: int, words: str
) -> None:
    spoil(made)
    ended, said = run(made.command())
    assert (ended, words in said) == (code, True), (ended, said)
    assert said.startswith("Error: ")
    assert not made.socket.exists()


def test_a_socket_path_that_is_too_long_is_refused(run: Run, made: Site) -> None:
    long = made.folder / ("s" * 100)
    ended, said = run([*made.command(), "--socket", str(long)])
    assert ended == 2
    assert "a socket's path has at most 107 bytes" in said


@pytest.mark.parametrize("size", [107, 108])
def test_the_longest_path_is_what_the_system_allows(tmp_path: Path, size: int) -> None:
    path = Path("/tmp") / f"{os.getpid()}".ljust(size - 5, "x")
    if size == 107:
        with listening(path):
            assert path.is_socket()
    else:
        with pytest.raises(InvalidInput, match="at most 107 bytes"), listening(path):
            pass


def test_a_file_in_the_sockets_place_is_not_touched(run: Run, made: Site) -> None:
    made.socket.write_text("records")
    ended, said = run(made.command())
    assert (ended, "is not a socket: it is not touched" in said) == (2, True)
    assert made.socket.read_text() == "records"


def test_a_guard_whose_ledger_cannot_be_written_does_not_start(run: Run, made: Site) -> None:
    with no_file_beyond(300):
        ended, said = run(made.command())
    assert (ended, "what cannot be recorded is not released" in said) == (6, True)
    assert not made.socket.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--group", "no-such-group"], "there is no group 'no-such-group'"),
        (["--set", "seed"], "--set takes KEY=VALUE"),
        (["--socket", "/nowhere/at/all/guard.sock"], "No such file or directory"),
        (["--policy", "other.toml"], "must be a file policy.toml"),
    ],
)
def test_options_that_cannot_be_met_are_refused(run: Run, made: Site, options: list[str], words: str) -> None:
    ended, said = run(made.command(*options))
    assert (ended, words in said) == (2, True), said


# ---------------------------------------- whose code is run
def test_the_task_comes_from_the_policys_folder_and_not_from_where_the_guard_was_started(
    run: Run, made: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A FAB's folder as working directory, and even on the path: its module of the same name is not run."""
    fab = tmp_path / "fab"
    fab.mkdir()
    (fab / "local_task.py").write_text("raise SystemExit('the server’s code ran')", encoding="utf-8")
    (fab / "other_task.py").write_text("raise SystemExit('the server’s code ran')", encoding="utf-8")
    monkeypatch.chdir(fab)
    monkeypatch.setattr(sys, "path", ["", str(fab), *sys.path])
    made.set("local_task:task", "local_task:broken")
    assert "RuntimeError: no licence" in run(made.command())[1], "the client's own"
    made.set("local_task:broken", "other_task:task")
    monkeypatch.setattr(sys, "path", ["", str(fab), *sys.path])
    assert "No module named 'other_task'" in run(made.command())[1]


def test_code_elsewhere_is_named_on_the_command_line(run: Run, made: Site, tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (made.folder / "local_task.py").rename(code / "local_task.py")
    made.set("local_task:task", "local_task:broken")
    assert "No module named 'local_task'" in run(made.command())[1]
    assert "RuntimeError: no licence" in run(made.command("--code", str(code)))[1]


# ---------------------------------------- the policy's [task]
BASE = """
[identity]
client = "a"
unit = "patient"
max_rows_per_unit = 1
[budget]
epsilon = 8.0
delta = 1e-6
adjacency = "add-remove"
[mechanism]
sampling = "fixed-size"
batch_size = 128
clip_norm = 1.0
min_noise_multiplier = 1.2
max_steps_per_round = 400
min_dataset_size = 5000
[model]
max_bytes = 200_000_000
max_abs_weight = 1e4
[peers]
registry_sha256 = ""
[release]
metrics = []
"""


def test_the_task_is_optional_and_read_as_it_stands() -> None:
    assert parse_policy(BASE, "policy.toml").task == ""
    assert parse_policy(BASE + '[task]\nmodule = "a.b_c:d"\n', "policy.toml").task == "a.b_c:d"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("[task]\n", r"line 24: \[task\] must have the key module"),
        ("[task]\nmodule = 3\n", "line 25: task.module must be text"),
        ('[task]\nmodule = "a.b"\n', "line 25: module must be a name"),
        ('[task]\nmodule = "a/b.py:c"\n', "line 25: module must be a name"),
        ('[task]\nmodule = "a:b()"\n', "line 25: module must be a name"),
        ('[task]\nmodule = "a:b\\n"\n', "line 25: module must be a name"),
        ('[task]\nmodule = "a:b"\nseed = 1\n', "line 26: the key task.seed is not known"),
        ("task = 3\n", "task"),
    ],
)
def test_a_task_of_another_form_is_refused_with_its_line(table: str, words: str) -> None:
    text = BASE + table if table.startswith("[") else table + BASE
    with pytest.raises(InvalidInput, match=words):
        parse_policy(text, "policy.toml")


# ---------------------------------------- what must be installed
def _missing(_name: str) -> str:
    raise metadata.PackageNotFoundError


@pytest.mark.parametrize("version", ["1.40.9", "1.9", "0.99", "1.40rc1"])
def test_an_old_flower_is_named_with_what_to_install(version: str) -> None:
    with pytest.raises(InvalidInput, match=rf"must be 1.41 or newer, got {version}: install it with pip install"):
        require_flower(lambda _: version)


@pytest.mark.parametrize("version", ["1.41.0", "1.41.0.dev20260701", "1.100", "2.0"])
def test_a_new_flower_is_taken(version: str) -> None:
    asked: list[str] = []
    require_flower(lambda name: asked.append(name) or version)
    assert asked == ["flwr"]


def test_a_missing_flower_or_torch_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidInput, match=r"Flower \(flwr\) is missing.*pip install 'lrdp\[flower\]'"):
        require_flower(_missing)
    monkeypatch.setattr("lrdp.federation.wire.requirements.find_spec", lambda _: None)
    with pytest.raises(InvalidInput, match=r"torch is missing.*pip install 'lrdp\[flower\]'"):
        require_torch()


def test_public_names_are_there_sorted_and_ask_for_flower_only_where_it_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = lrdp.federation.__all__
    assert names == sorted(names)
    assert set(lrdp.federation._HOMES) == set(names)
    assert all(getattr(lrdp.federation, name) is not None for name in names)
    monkeypatch.setattr(lrdp.federation, "require_flower", lambda: require_flower(_missing))
    assert lrdp.federation.LocalTask is not None
    with pytest.raises(InvalidInput, match="Flower"):
        _ = lrdp.federation.private_client_app
    with pytest.raises(AttributeError):
        _ = lrdp.federation.nothing
