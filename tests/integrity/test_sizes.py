"""The room itself: its public names are there, and it stays within the house's sizes."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import pytest

from lrdp import integrity

FILES = sorted(Path(integrity.__file__).parent.glob("*.py"))


def test_every_public_name_exists_and_is_listed_once():
    names = integrity.__all__
    assert len(set(names)) == len(names)
    assert all(hasattr(integrity, name) for name in names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or math.inf) - node.lineno < 50, node.name
            assert len(node.args.args) + len(node.args.kwonlyargs) <= 6, node.name
