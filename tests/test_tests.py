"""Tests are evidence: each says what must hold, itself or by a helper of the tests."""

import ast
from pathlib import Path

FOLDER = Path(__file__).parent
SAYING = {"raises", "warns", "fail", "assert_close", "assert_allclose", "assert_array_equal", "assert_array_less"}
DEEPEST = 4


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def called(node):
    for call in ast.walk(node):
        if isinstance(call, ast.Call):
            yield getattr(call.func, "id", getattr(call.func, "attr", ""))


def says(node, helpers, depth=DEEPEST):
    """Whether a function asserts something, or calls a helper that does."""
    if any(isinstance(inner, ast.Assert) for inner in ast.walk(node)) or SAYING & set(called(node)):
        return True
    within = [helper for name in called(node) for helper in helpers.get(name, ()) if helper is not node]
    return depth > 0 and any(says(helper, helpers, depth - 1) for helper in within)


def silent(trees):
    helpers: dict[str, list[ast.FunctionDef]] = {}
    for tree in trees.values():
        for node in functions(tree):
            helpers.setdefault(node.name, []).append(node)
    tests = [(name, node) for name, tree in trees.items() for node in functions(tree) if node.name.startswith("test_")]
    return [f"{name}: {node.name}" for name, node in tests if not says(node, helpers)]


def test_every_test_says_what_must_hold():
    trees = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.rglob("*.py")}
    assert len(trees) > 100
    assert silent(trees) == []


def test_control_a_test_that_says_nothing_is_found():
    words = "def test_nothing():\n    print(1)\ndef helper():\n    assert 1\ndef test_something():\n    helper()\n"
    assert silent({"made_up.py": ast.parse(words)}) == ["made_up.py: test_nothing"]
