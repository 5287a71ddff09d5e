"""All commands: whatever is wrong with a file or a number ends in one sentence, and nothing is half written."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from rich.text import Text

from integrity.parties import identity
from lrdp.integrity import save_identity

from . import surface
from .documented import problem_of
from .endings import Run, everything, in_one_sentence
from .surface import COMMANDS, LINES, QUICK

ABSURD = {"Int": ["-1", str(10**30)], "Float": ["-1", "nan", "inf"]}


def test_every_command_and_every_path_of_it_is_in_the_table() -> None:
    """Whoever adds one says here what it takes, and the tests below spoil it."""
    assert LINES.keys() == COMMANDS.keys()
    for name, command in COMMANDS.items():
        assert LINES[name].paths.keys() == set(surface.parameters(command, "Path")), name


@pytest.mark.parametrize("name", COMMANDS)
def test_no_word_of_a_help_is_taken_for_a_style(name: str) -> None:
    """As [task] was: what stands in square brackets is left out where the help is shown."""
    command = COMMANDS[name]
    texts = [command.help, *(getattr(each, "help", None) for each in command.params)]
    assert [text for text in texts if text and Text.from_markup(text).plain != text] == []
    assert [part for part in (command.help or "").split("\n\n")[1:] if "\n" in part] == [], (
        "lines would be broken there"
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_a_path_to_the_wrong_thing_is_one_sentence_and_changes_nothing(lrdp: Run, folder: Path, name: str) -> None:
    wrong, before = [], everything(folder)
    for parameter, role in LINES[name].paths.items():
        for value, code in role.spoiled.items():
            ended = lrdp(*surface.words(name, **{parameter: value}))
            problem = in_one_sentence(ended, code)
            if problem is None and everything(folder) != before:
                problem = f"changed {set(everything(folder).items()) ^ set(before.items())}"
            wrong += [f"{parameter}={value}: {problem}"] if problem else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_absurd_number_is_one_sentence_and_changes_nothing(lrdp: Run, folder: Path, name: str) -> None:
    wrong, before = [], everything(folder)
    for kind, values in ABSURD.items():
        for parameter in surface.parameters(COMMANDS[name], kind):
            for value in values:
                ended = lrdp(*surface.words(name, **{parameter: value}))
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
        ended = lrdp(*surface.words(name, **IN_A_SESSION.get(name, {})), inside=place)
        assert in_one_sentence(ended, 2) is None, (name, ended)
        refused += re.findall(
            r"it has mode 644, so others could use the key, and 600 is the limit: chmod 600", ended.err
        )
    assert len(refused) == len(SECRETS) == 13


IN_A_SESSION: dict[str, dict[str, str | None]] = {
    "guard": {"code": "."},
    "model export": {"out": "own.pt", "path": None, "client": "home"},
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


@pytest.mark.parametrize("name", QUICK)
def test_control_the_lines_of_the_table_work_and_print_json(lrdp: Run, folder: Path, tmp_path: Path, name: str) -> None:
    place, line = tmp_path / "world", LINES[name]
    shutil.copytree(folder, place)
    before = everything(place)
    ended = lrdp(*surface.words(name, as_json=True), inside=place)
    assert ended.code == 0, ended.err
    assert isinstance(json.loads(ended.out), dict)
    # Else the disk that is full would not be tried with a new command that writes.
    assert line.writes or everything(place) == before, f"{name} writes, and the table does not say so"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("name", [*QUICK, "plan"])
def test_an_answer_that_does_not_fit_is_one_sentence_from_every_command(
    lrdp: Run, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = tmp_path / "world"
    shutil.copytree(folder, place)
    with Path("/dev/full").open("w") as nothing_fits:
        monkeypatch.setattr("sys.stdout", nothing_fits)
        ended = lrdp(*surface.words(name), inside=place)
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
    ended = lrdp(*surface.words(name), inside=place)
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
