"""The map is of this house: what it names is there, and what it counts is counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
import typer

from lrdp.cli import app

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "lrdp"
PAGE = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
FEDERATION = ("client/", "server/", "wire/", "local/")
"""Folders that the page names without their room."""


def section(title: str) -> str:
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def files(text: str) -> list[Path]:
    """Every module that is named in a text, folders with all of theirs; a bare name is beside the one before it."""
    found: list[Path] = []
    for name in re.findall(r"`((?:[a-z_]+/)*(?:[a-z_]+\.py)?)`", text):
        full = f"federation/{name}" if name.startswith(FEDERATION) else name
        place = next(path for path in (SOURCE / full, *(one.parent / name for one in found[-1:])) if path.exists())
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return list(dict.fromkeys(found))


def defined(paths: Iterable[Path]) -> set[str]:
    """Every name that these modules give to something, a class's own also after that of the class."""
    return {name for path in paths for name in named(ast.parse(path.read_text(encoding="utf-8")))}


def named(tree: ast.AST, owner: str = "") -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
        own = [target.id for target in targets if isinstance(target, ast.Name)]
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            own.append(node.name)
        for name in own:
            yield from (name, f"{owner}.{name}")
        if isinstance(node, ast.ClassDef):
            yield from named(node, node.name)


ROWS = [row.strip("| ").split(" | ", 1) for row in section("Find it").splitlines() if row.startswith("| ")]
ROWS = [row for row in ROWS if "`" in row[-1]]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_what_is_to_be_found_is_there(row):
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    words = set(re.findall(r"`([A-Za-z_]+(?:\.[a-z_]+)?)`", re.sub(r"`[a-z_/]+\.py`", "", row[1])))
    assert words - defined(files(row[1])) - commands == set()
    assert files(row[1]) or "experiments/" in row[1]


def test_the_five_things_that_a_newcomer_looks_for_are_listed_and_were_tried():
    asked = ["see where noise is added", "see where a budget is charged", "see where a tag is checked"]
    asked += ["add a mechanism", "add a refusal"]
    assert set(asked) <= {row[0] for row in ROWS}
    tried = section("A newcomer's ten minutes")
    assert [thing for thing in asked if thing.removeprefix("see ") not in tried] == []


def test_an_auditor_is_told_how_much_there_is_to_read():
    text = section("Reading order for an auditor")
    told = re.search(r"About ([\d,]+) lines of code", text)
    assert told is not None
    lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files(text))
    assert lines == pytest.approx(int(told[1].replace(",", "")), abs=60)


def test_the_walk_names_as_many_files_as_it_says():
    walk, counted = section("The path of one update").split("### How many modules that is")
    at_the_client = [path for path in files(walk) if "server" not in path.parts]
    row = re.search(r"\| files that the stops above name.*\| (\d+) \| (\d+) \|", counted)
    assert row is not None
    assert int(row[1]) == len(at_the_client)


def test_control_what_is_not_there_is_seen():
    paths = files("`ledger/ledger.py`, `receipt.py` and `client/pins.py`")
    assert [path.name for path in paths] == ["ledger.py", "receipt.py", "pins.py"]
    assert {"Ledger", "Ledger.charge", "Receipt"} <= defined(paths)
    assert not {"Ledger.refund", "charge_back"} & defined(paths)
