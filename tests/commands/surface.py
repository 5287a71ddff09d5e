"""Every command of the app, found by looking at it; and for each a line that works, and what its paths stand for.

A command that is new, or a path that is, has no entry here, and a test says so.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import typer

from integrity.parties import federation, honest_round, identity, secret
from integrity.test_depositions import framed
from lrdp.cli import app
from lrdp.federation.wire.case_files import write_case
from lrdp.federation.wire.layout import Layout
from lrdp.federation.wire.model_files import KeptModel, write_model
from lrdp.federation.wire.questions import Hello
from lrdp.federation.wire.signing import run_identifier
from lrdp.integrity import RegistryShelf, history, keys, read_registry
from lrdp.integrity.cards import card
from lrdp.ledger import ReceivedModel, Request
from lrdp.ledger.starting import Home

PIN = federation(4).session.registry.digest.hex()
NOISE = bytes(range(256)) * 3


@dataclass(frozen=True)
class Role:
    """What a path stands for: each way to spoil it is a value in its place, with the exit code that follows."""

    spoiled: Mapping[str, int]


LONG = "n" * 300
NO_FILE = {"../pipe": 2, "../circle": 2, LONG: 2}
"""Not in the world itself, which is copied: a pipe, a link to itself, and a name that no system takes."""
NOWHERE = {"nowhere": 2, "noise.bin/below": 2, **NO_FILE}


def read(wrong: int, **more: int) -> Role:
    """A file that is read; ``wrong`` is the exit code for one of another kind."""
    return Role({**NOWHERE, "empty": 2, "noise.bin": wrong, "nothing.txt": wrong, "0.bytes": wrong, **more})


LEDGER = read(6)
RECEIPTS = Role({**NOWHERE, "empty": 5, "noise.bin": 5, "nothing.txt": 5, "0.bytes": 5})
SIGNED = read(5)
PLAIN = read(2)
HOME = Role({"nowhere": 2, "empty": 2, "noise.bin": 2, **NO_FILE})
CHARGING = Role(dict.fromkeys(HOME.spoiled, 4))
WRITTEN = Role({"empty": 2, "noise.bin/below": 2, "nowhere/below": 2, "/proc/new": 2, **NO_FILE})
NEW = Role({**WRITTEN.spoiled, "noise.bin": 2})
MADE = Role({"noise.bin": 2, "noise.bin/below": 2, "/proc/new": 2, **NO_FILE})
ELSEWHERE = Role({})
"""Read by the task's or the study's own code, which no command can foresee: see tests/experiments and test_guard.py."""


@dataclass(frozen=True)
class Line:
    """Words that work in :func:`world`, by parameter.

    ``long`` if they take minutes, or go on until they are stopped: test_full_disks.py and test_guard.py try these on a
    full disk, and test_guard_log.py and tests/ledger/test_damage.py what a guard meets once it runs. ``writes`` if they
    write to files; test_permissions.py says to which.
    """

    given: Mapping[str, Any]
    paths: Mapping[str, Role] = field(default_factory=dict)
    long: bool = False
    writes: bool = False


CLIENT = {"dataset_size": 5000, "batch_size": 128, "steps": 10, "delta": 1e-5}
PLACES = {"settings": PLAIN, "data": ELSEWHERE, "features": ELSEWHERE, "out": MADE}
PLOT = Role({"folder.svg": 2, "noise.bin/below.svg": 2, "/proc/new.svg": 2, "/proc/new/er.svg": 2})
STUDY = Line({"out": "results", "jobs": 1, "quick": True}, PLACES, long=True)
LINES = {
    "epsilon": Line({**CLIENT, "noise_multiplier": 4}, {"plot": PLOT}),
    "calibrate": Line({**CLIENT, "epsilon": 2}),
    "plan": Line(
        {"dataset_size": 300, "batch_size": 10, "rounds": 1, "local_steps": 1, "epsilon": 8, "delta": 1e-3},
        {
            "write": NEW,
            "plot": PLOT,
            "registry": PLAIN,  # which is refused where no policy is written: read in tests/commands/test_own_rules.py
        },
        long=True,
    ),
    "check": Line({"name": "tiny:model"}, {"data": ELSEWHERE}),
    "guard": Line(
        {"policy": "home/policy.toml", "data": "nothing.txt", "socket": "guard.sock"},
        {
            "policy": Role({"nowhere": 2, "home/ledger.db": 2, "nowhere/policy.toml": 4, "noise.bin/policy.toml": 4}),
            "data": Role(NOWHERE),
            "socket": Role({"empty": 2, "noise.bin": 2, "noise.bin/below": 2, "nowhere/below": 2, "/proc/new": 2}),
            "code": Role({"nowhere": 2, "noise.bin": 2}),
            "metrics_file": WRITTEN,
            "log": WRITTEN,
        },
        long=True,
    ),
    "init": Line(
        {"folder": "new", "client": "c000", "rounds": 2, "local_steps": 2},
        {"folder": Role({**MADE.spoiled, "home": 2}), "registry": SIGNED},
        writes=True,
    ),
    "statement": Line(
        {"folder": "home", "html": "page.html"}, {"path": LEDGER, "folder": HOME, "html": WRITTEN}, writes=True
    ),
    "verify": Line({"receipts": "receipts.txt", "pin": PIN}, {"receipts": RECEIPTS}),
    "blame": Line({"case": "case.safetensors", "pin": PIN}, {"case": PLAIN}),
    "run": Line(
        {"folder": "demonstration", "engine": "in-process"},
        {"folder": Role({**MADE.spoiled, "empty": 2})},
        long=True,
    ),
    "ledger show": Line({"folder": "home"}, {"path": LEDGER, "folder": HOME}),
    "ledger verify": Line({"folder": "home"}, {"path": LEDGER, "folder": HOME, "head": PLAIN}),
    "ledger export": Line({"path": "export.new", "folder": "home"}, {"path": NEW, "folder": CHARGING}, writes=True),
    "ledger import": Line(
        {"files": "export.txt", "fleet": "fleet.npz"},
        {"files": LEDGER, "fleet": Role({**WRITTEN.spoiled, "noise.bin": 2})},
        writes=True,
    ),
    "ledger adopt-head": Line(
        {"head": "head.txt", "folder": "restored"},
        {"head": PLAIN, "administrator_key": PLAIN, "folder": HOME},
        writes=True,
    ),
    "ledger void": Line(
        {"entry": 3, "reason": "power cut", "folder": "charged"},
        {"administrator_key": PLAIN, "folder": CHARGING},
        writes=True,
    ),
    "ledger rotate-key": Line({"folder": "home"}, {"folder": HOME}, writes=True),
    "ledger raise": Line(
        {"reason": "approved", "folder": "raised"},
        {"administrator_key": PLAIN, "folder": HOME},
        writes=True,
    ),
    "ledger close": Line(
        {"reason": "ended", "folder": "ended"}, {"administrator_key": PLAIN, "folder": HOME}, writes=True
    ),
    "ledger backup": Line({"path": "backup.new", "folder": "home"}, {"path": NEW, "folder": HOME}, writes=True),
    "ledger restore": Line({"path": "backup.db", "folder": "lost"}, {"path": LEDGER, "folder": HOME}, writes=True),
    "ledger upgrade": Line({"folder": "home"}, {"folder": HOME}),
    "keys new": Line({"name": "hospital-1", "out": "hospital-1.pem"}, {"out": NEW}, writes=True),
    "keys show": Line({"path": "office.pem"}, {"path": PLAIN}),
    "found": Line(
        {"names": ["a", "b", "c"], "folder": "pilot", "rounds": 2, "local_steps": 2},
        {"folder": Role({"noise.bin": 2, "noise.bin/below": 2, "/proc/new": 2, "home": 2})},
        writes=True,
    ),
    "registry new": Line(
        {"path": "new.json", "key": "office.pem"}, {"path": NEW, "key": PLAIN, "after": SIGNED}, writes=True
    ),
    "registry add": Line({"path": "open.json", "cards": "card.json"}, {"path": SIGNED, "cards": SIGNED}, writes=True),
    "registry replace-key": Line(
        {"path": "open.json", "cards": "renewed.json"}, {"path": SIGNED, "cards": SIGNED}, writes=True
    ),
    "registry remove": Line({"path": "open.json", "names": "c000"}, {"path": SIGNED}, writes=True),
    "registry show": Line({"path": "registry.json"}, {"path": SIGNED}),
    "registry rotate": Line({"path": "next.json", "server": "server"}, {"path": SIGNED, "server": HOME}, writes=True),
    "registry sign": Line({"path": "open.json", "key": "office.pem"}, {"path": SIGNED, "key": PLAIN}, writes=True),
    "registry verify": Line({"path": "registry.json"}, {"path": SIGNED}),
    "model show": Line({"path": "model.safetensors"}, {"path": PLAIN}),
    "model verify": Line(
        {"path": "model.safetensors", "pin": PIN, "receipts": "receipts.txt"},
        {
            "path": PLAIN,
            "receipts": Role({**NOWHERE, "empty": 2, "noise.bin": 5, "nothing.txt": 5}),
            "models": ELSEWHERE,  # of an average alone: tests/federation/wire/test_model_averages.py
        },
    ),
    "model average": Line(
        {"out": "average.safetensors", "models": ["model.safetensors"]},
        {
            "out": Role({**WRITTEN.spoiled, "noise.bin": 2, "nowhere/below.safetensors": 2}),
            "models": PLAIN,
        },
        writes=True,
    ),
    "model export": Line(
        {"out": "model.pt", "path": "model.safetensors"},
        {
            "out": Role(
                {"empty": 2, "noise.bin": 2, "nowhere/below.pt": 2, "noise.bin/below.pt": 2, "/proc/new.pt": 2}
            ),
            "path": PLAIN,
            "client": Role({"nowhere": 2, "empty": 2, "noise.bin": 2}),
        },
        writes=True,
    ),
    **{f"experiments {study}": STUDY for study in ("memory", "sensitivity", "noise", "hospitals", "utility")},
}


def _walk(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, inner in getattr(command, "commands", {}).items():
        yield from _walk(inner, (*words, name))
    if not hasattr(command, "commands"):
        yield words, command


COMMANDS = {" ".join(words): command for words, command in _walk(typer.main.get_command(app))}
"""Every command, by the words that call it."""
QUICK = [name for name, line in LINES.items() if not line.long]
WRITING = [(name, dict[str, str]()) for name in QUICK if LINES[name].writes]
ASKED_TO = [("epsilon", {"plot": "picture.svg"}), ("plan", {"plot": "plan.svg"}), ("plan", {"write": "plan.toml"})]
"""Commands that write if they are told to."""


def parameters(command: Any, kind: str) -> list[str]:
    """The names of a command's parameters of a kind: Path, Int or Float."""
    return [each.name for each in command.params if kind in type(each.type).__name__]


def words(name: str, /, **other: Any) -> list[str]:
    """The line of a command as it is typed, with ``other`` values for some of its parameters."""
    given = {**LINES[name].given, **other}
    typed = name.split()
    for each in COMMANDS[name].params:
        value = given.get(each.name)
        if value is not None:
            option = [] if each.param_type_name == "argument" else [each.opts[0]]
            typed += option if value is True else [*option, *map(str, value if isinstance(value, list) else [value])]
    return typed


def world(folder: Path, run: Any) -> None:
    """A folder with one of everything that the lines name; ``run`` runs a command in it, and must succeed."""
    for name in ("empty", "folder.svg"):
        (folder / name).mkdir()
    (folder / "noise.bin").write_bytes(NOISE)
    (folder / "0.bytes").touch()
    os.mkfifo(folder.parent / "pipe")
    (folder.parent / "circle").symlink_to("circle")
    (folder / "nothing.txt").write_text("nothing of the kind\n")
    (folder / "tiny.py").write_text("from torch import nn\nmodel = nn.Linear(2, 2)\n")
    for name in ("home", "restored", "charged", "raised", "lost", "ended"):
        kind = ("--mechanism", "fixed-size")  # a budget that can be raised
        run("init", "--folder", name, "--client", "c000", "--rounds", "2", "--local-steps", "2", *kind)
    run("ledger", "export", "export.txt", "--folder", "home")
    run("ledger", "backup", "backup.db", "--folder", "lost")
    Home(folder=folder / "lost").ledger.unlink()
    stated = Home(folder=folder / "raised").policy
    stated.write_text(stated.read_text().replace("epsilon = 8.0", "epsilon = 9.0"))
    before = Home(folder=folder / "restored").ledger.read_bytes()
    for name in ("restored", "charged"):
        _charge(Home(folder=folder / name))
    with Home(folder=folder / "restored").open() as ledger:
        (folder / "head.txt").write_text(ledger.head().encode())
    Home(folder=folder / "restored").ledger.write_bytes(before)
    _consortium(folder, run)


def _charge(home: Home) -> None:
    with home.open() as ledger:
        rule = ledger.policy.mechanism
        ledger.charge(
            Request(
                run="run",
                round=1,
                model=ReceivedModel(digest="0" * 64, size=1, largest_weight=0.0),
                config_digest="1" * 64,
                mechanism=rule.costliest,
                steps=1,
                clip_norm=rule.clip_norm,
            )
        )


def _consortium(folder: Path, run: Any) -> None:
    keys.save_identity(identity("office"), folder / "office.pem")
    for name in ("c000", "c001", "c002", "c003"):
        (folder / f"{name}.json").write_text(json.dumps(card(identity(name).member)))
    (folder / "card.json").write_text(json.dumps(card(identity("c003").member)))
    (folder / "renewed.json").write_text(json.dumps(card(identity("c000", generation=1).member)))
    for path in ("open.json", "registry.json"):
        run("registry", "new", path, "--key", "office.pem")
        run("registry", "add", path, "c000.json", "c001.json", "c002.json")
    run("registry", "sign", "registry.json", "--key", "office.pem")
    run("registry", "new", "next.json", "--key", "office.pem", "--after", "registry.json")
    run("registry", "sign", "next.json", "--key", "office.pem")
    RegistryShelf(folder / "server").put(read_registry((folder / "registry.json").read_text()))
    layout, nonce = Layout((("weight", (37,)),)), secret("nonce")
    parties = federation(4, size=layout.size, identifier=run_identifier(nonce, layout.described))
    lines = [history.session_line(parties.session), history.step_line(honest_round(parties).encode())]
    (folder / "receipts.txt").write_text("\n".join(lines) + "\n")
    scene = framed()
    write_case(folder / "case.safetensors", scene.case(scene.honest()))
    opened = Hello(session=parties.session.encode(), nonce=nonce, layout=layout.described)
    write_model(folder / "model.safetensors", KeptModel.at(parties.idle.position, parties.idle.model, opened=opened))
