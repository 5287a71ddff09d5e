"""The front door: every public name says what it is, and what people are told to use is shown at work."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from doctest import DocTestParser
from functools import cache
from importlib import import_module
from pathlib import Path

import griffe
import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
ROOMS = ("lrdp", *(f"lrdp.{room}" for room in ("accounting", "ledger", "training", "integrity", "federation", "codec")))
PAGES = [
    page
    for pattern in ("README.md", "docs/*.md", "examples/**/*.md")
    for page in sorted(ROOT.glob(pattern))
    if page.name not in ("overview.md", "glossary.md")  # for readers of the code
]


@cache
def package() -> griffe.Object | griffe.Alias:
    return griffe.load("lrdp", search_paths=[SOURCE])


def docstring(room: str, name: str) -> str:
    found = package()[f"{room}.{name}".removeprefix("lrdp.")]
    meant = found.final_target if found.is_alias else found
    return meant.docstring.value if meant.docstring else ""


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_says_what_it_is(room):
    assert [name for name in import_module(room).__all__ if not docstring(room, name)] == []


@pytest.mark.parametrize("room", ["lrdp", "lrdp.federation"])
def test_every_name_for_users_has_an_example_of_its_own(room):
    names = [name for name in import_module(room).__all__ if name != "__version__"]
    assert [name for name in names if ">>>" not in docstring(room, name)] == []


# ------------------------------------------------------------------------------------------------ what is shown at work
def examples(text: str) -> Iterator[ast.Module]:
    """Doctests, which pytest runs: in docstrings alone, not in strings under a constant."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for example in DocTestParser().get_examples(ast.get_docstring(node) or ""):
                yield ast.parse(example.source)


def used(example: ast.Module) -> set[str]:
    """What an example names, by itself or as an attribute, other than by importing it."""
    nodes = list(ast.walk(example))
    return {node.id for node in nodes if isinstance(node, ast.Name)} | {
        node.attr for node in nodes if isinstance(node, ast.Attribute)
    }


@cache
def at_work() -> frozenset[str]:
    texts = (path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py"))
    return frozenset(name for text in texts for example in examples(text) for name in used(example))


def spoken_of(page: str) -> set[str]:
    """The names in a page's code that look like Python: a word, perhaps with its room or a call, and all imports."""
    imported = re.findall(r"^from lrdp[\w.]* import (.+)$", page, re.MULTILINE)
    alone = re.findall(r"`(?:lrdp\.\w+\.)?(\w+)(?:\([^`]*\))?`", re.sub(r"```.*?```", "", page, flags=re.DOTALL))
    return {*alone, *(name for line in imported for name in re.findall(r"\w+", line))}


@pytest.mark.parametrize("room", ROOMS)
def test_what_pages_speak_of_is_shown_at_work(room):
    told = set().union(*(spoken_of(page.read_text(encoding="utf-8")) for page in PAGES))
    assert [name for name in import_module(room).__all__ if name in told and name not in at_work()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_function_is_shown_at_work(room):
    found = import_module(room)
    functions = [name for name in found.__all__ if type(getattr(found, name)).__name__ == "function"]
    assert [name for name in functions if name not in at_work()] == []


def test_control_a_name_without_an_example_is_seen():
    text = 'def shown():\n    """Does.\\n\\n    >>> shown()\n    """\n\n\nLIMIT = 3\n"""\n>>> hidden()\n"""'
    assert [used(example) for example in examples(text)] == [{"shown"}]
    page = "`Filter` and `lrdp.ledger.void(…)`, not `a.b`\n```python\nfrom lrdp.training import Task, Sgd\n```"
    assert spoken_of(page) == {"Filter", "void", "Task", "Sgd"}
