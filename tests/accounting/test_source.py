"""What must not be in the source."""

from __future__ import annotations

import ast
from pathlib import Path

import lrdp


def asserts(source: str) -> list[int]:
    """Lines with an assert statement."""
    return [node.lineno for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Assert)]


def test_no_check_disappears_under_python_minus_o() -> None:
    files = sorted(Path(lrdp.__file__).parent.rglob("*.py"))
    assert len(files) > 10
    found = {str(file): lines for file in files if (lines := asserts(file.read_text(encoding="utf-8")))}
    assert found == {}


def test_the_search_for_asserts_would_find_one() -> None:
    assert asserts("def check(x):\n    assert x > 0\n") == [2]
