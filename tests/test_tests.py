"""Tests are evidence: each says what must hold, itself or by a helper of the tests, and says it whatever happens."""

import ast
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SAYING = {"raises", "warns", "fail", "assert_close", "assert_allclose", "assert_array_equal", "assert_array_less"}
DEEPEST = 4
SWALLOWING = {"AssertionError", "BaseException", "Exception"}

Function = ast.FunctionDef
Fault = Callable[[Function], bool]


@cache
def functions(tree: ast.AST) -> tuple[Function, ...]:
    return tuple(node for node in ast.walk(tree) if isinstance(node, Function))


@cache
def called(node: ast.AST) -> frozenset[str]:
    calls = (call.func for call in ast.walk(node) if isinstance(call, ast.Call))
    return frozenset(getattr(call, "id", getattr(call, "attr", "")) for call in calls)


def own(node: ast.AST) -> Iterator[ast.AST]:
    """What a function does itself: all of it but the functions that are written within."""
    for inner in ast.iter_child_nodes(node):
        if not isinstance(inner, Function | ast.Lambda | ast.ClassDef):
            yield inner
            yield from own(inner)


@cache
def asserted(node: ast.AST) -> tuple[ast.expr, ...]:
    return tuple(inner.test for inner in ast.walk(node) if isinstance(inner, ast.Assert))


# ------------------------------------------------------------------------------------------------------- says nothing
def says(node: Function, helpers: dict[str, list[Function]], depth: int = DEEPEST) -> bool:
    """Whether a function asserts something, or calls a helper that does."""
    if asserted(node) or SAYING & called(node):
        return True
    within = [helper for name in called(node) for helper in helpers.get(name, ()) if helper is not node]
    return depth > 0 and any(says(helper, helpers, depth - 1) for helper in within)


def silent(trees: dict[str, ast.Module]) -> list[str]:
    helpers: dict[str, list[Function]] = {}
    for tree in trees.values():
        for node in functions(tree):
            helpers.setdefault(node.name, []).append(node)
    return faulty(trees, lambda node: not says(node, helpers))


def faulty(trees: dict[str, ast.Module], fault: Fault) -> list[str]:
    tests = [(name, node) for name, tree in trees.items() for node in functions(tree) if node.name.startswith("test_")]
    return [f"{name}: {node.name}" for name, node in tests if fault(node)]


# ------------------------------------------------------------------------------------------------- says it only perhaps
def returns(node: Function) -> bool:
    """Ends before its end, where nothing was said yet or somebody will add something."""
    return any(isinstance(inner, ast.Return) for inner in own(node))


def swallows(node: Function) -> bool:
    """Catches what an assertion raises. Only a control may, to count how often a check noticed."""
    caught = [inner.type for inner in own(node) if isinstance(inner, ast.ExceptHandler)]
    caught += [
        one
        for call in own(node)
        if isinstance(call, ast.Call) and "suppress" in ast.unparse(call.func)
        for one in call.args
    ]
    names = [None if one is None else {ast.unparse(each) for each in getattr(one, "elts", [one])} for one in caught]
    return not node.name.startswith("test_control_") and any(one is None or one & SWALLOWING for one in names)


def only_if(node: Function) -> bool:
    """Says all it says under a condition that may never hold. Drawn values may well miss it now and then."""
    drawn = any("given" in ast.unparse(decorator) for decorator in node.decorator_list)
    branches = [inner for inner in own(node) if isinstance(inner, ast.If) and not inner.orelse]
    under = {id(test) for branch in branches for test in asserted(branch)}
    tests = asserted(node)
    by_helpers = SAYING & called(node) or any(name.startswith("check") for name in called(node))
    return not drawn and not by_helpers and bool(tests) and all(id(test) in under for test in tests)


def vacuous(node: Function) -> bool:
    """Asserts what holds of any answer: a constant, that something equals itself, that it is a bool."""
    return any(map(says_nothing, asserted(node)))


def says_nothing(test: ast.expr) -> bool:
    match test:
        case ast.Constant() | ast.Tuple():
            return True
        case ast.BoolOp(values=values):
            return any(isinstance(value, ast.Constant) for value in values)
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return ast.dump(left) == ast.dump(right) and isinstance(left, ast.Name | ast.Attribute | ast.Constant)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.Name(id="bool")]):
            return True
    return False


# -------------------------------------------------------------------------------------------------------- what is found
@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    paths = {path.relative_to(FOLDER): path.read_text(encoding="utf-8") for path in FOLDER.rglob("*.py")}
    return {str(path): ast.parse(text) for path, text in paths.items()}


def test_every_test_says_what_must_hold(trees):
    assert len(trees) == len(list(FOLDER.rglob("*.py"))) > 200
    assert silent(trees) == []


@pytest.mark.parametrize("fault", [returns, swallows, only_if, vacuous])
def test_every_test_says_it_whatever_happens(trees, fault):
    assert faulty(trees, fault) == []


def test_control_a_test_that_says_nothing_is_found():
    words = "def test_nothing():\n    print(1)\ndef helper():\n    assert 1\ndef test_something():\n    helper()\n"
    assert silent({"made_up.py": ast.parse(words)}) == ["made_up.py: test_nothing"]


@pytest.mark.parametrize(
    ("fault", "weak", "good"),
    [
        (returns, "if x:\n  return\n assert y", "def inner():\n  return x\n assert y"),
        (swallows, "try:\n  assert y\n except Exception:\n  pass", "try:\n  f()\n except ValueError:\n  assert y"),
        (swallows, "try:\n  assert y\n except:\n  pass", "with raises(AssertionError):\n  f()"),
        (swallows, "try:\n  assert y\n except (KeyError, AssertionError):\n  pass", "assert y"),
        (swallows, "with contextlib.suppress(AssertionError):\n  assert y", "with suppress(KeyError):\n  f()"),
        (only_if, "for x in z:\n  if x:\n   assert y", "for x in z:\n  if x:\n   assert y\n assert z"),
        (only_if, "if x:\n  assert y", "if x:\n  assert y\n else:\n  assert z"),
        (vacuous, "assert True", "assert x"),
        (vacuous, "assert x or True", "assert x or y"),
        (vacuous, "assert x.y == x.y", "assert x.y == x.z"),
        (vacuous, "assert (x, 'words')", "assert x, 'words'"),
        (vacuous, "assert isinstance(f(x), bool)", "assert f(x) is True"),
    ],
)
def test_control_each_weakness_is_found_and_its_cure_is_not(fault, weak, good):
    assert faulty({"": ast.parse(f"def test_it():\n {weak}\n")}, fault) == [": test_it"]
    assert faulty({"": ast.parse(f"def test_it():\n {good}\n")}, fault) == []
