"""The house itself: a light base install, public names that exist, no reliance on assert, evidence where one looks."""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path, PurePosixPath

import pytest

from lrdp import errors
from where import EVIDENCE

SOURCE = Path(errors.__file__).parent
TESTS = Path(__file__).parent
ROOMS = ("accounting", "ledger", "training", "integrity")
"""Rooms with a front door. ``federation`` is no such room but a building of four (wire, client, server, local): its own
``__init__`` holds what users need, loaded when asked for, and whoever stands above enters a part by its module, so that
a guard starts without Flower and a forwarding app without torch. The walls between its parts are import contracts.
``report`` and ``experiments`` are pages and studies, each of which is asked for by name."""
ANNEXES = {"lrdp.training.research", "lrdp.training.loading"}
"""Modules that are entered by their own name: seeded randomness, which few may import, and what reads a user's code."""
HEAVY = ("torch", "flwr", "numba", "opacus", "dp_accounting", "matplotlib", "sklearn")


def test_the_command_line_loads_nothing_heavy():
    check = f"import sys, lrdp.cli; print([name for name in {HEAVY} if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_accountant_gives_the_same_answer_without_assertions():
    line = "-m lrdp epsilon -n 5000 -b 128 --noise-multiplier 4.427 -t 10000 --delta 1e-5 --json"
    plain, optimised = (
        subprocess.run([sys.executable, *flags, *line.split()], capture_output=True, text=True, check=True).stdout
        for flags in ([], ["-O"])
    )
    assert plain == optimised


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_check_vanishes_under_python_minus_o(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert not [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]


@pytest.mark.parametrize("room", ["lrdp", "lrdp.codec", "lrdp.federation", *(f"lrdp.{room}" for room in ROOMS)])
def test_every_public_name_exists_once(room):
    found = import_module(room)
    assert len(found.__all__) == len(set(found.__all__))
    assert [name for name in found.__all__ if not hasattr(found, name)] == []


def test_every_error_has_an_exit_code_of_the_contract_and_stands_in_the_tree():
    def kinds(kind):
        return {kind}.union(*(kinds(child) for child in kind.__subclasses__()))

    own = [kind for kind in kinds(errors.LrdpError) if kind.__module__ == errors.__name__]
    assert len(own) > 10
    for kind in own:
        assert kind.exit_code in {1, 2, 3, 4, 5, 6}
        assert kind.__name__ in (errors.__doc__ or "")


def trees():
    return {path.relative_to(SOURCE): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCE.rglob("*.py")}


def type_names(path, tree):
    """Names of classes, wherever they are, and of types that a module gives a name, each with what it stands for.

    What studies call the shapes of their own rows is their affair.
    """
    yield from ((node.name, f"{path}:{node.lineno}") for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    for node in tree.body if path.parts[0] != "experiments" else ():
        named = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for name in (each.id for each in named if isinstance(each, ast.Name)):
            if re.fullmatch(r"_?[A-Z]\w*[a-z]\w*", name):
                yield name, ast.unparse(node.value)


def ambiguous(files):
    meanings = defaultdict(set)
    for path, tree in files.items():
        for name, meaning in type_names(path, tree):
            meanings[name].add(meaning)
    return {name: found for name, found in meanings.items() if len(found) > 1}


def test_no_name_of_a_type_stands_for_two_things():
    assert ambiguous(trees()) == {}


@pytest.mark.parametrize(
    "other", ["class Step: pass", "Step = int", "Step: TypeAlias = int | str", "Step = Union[int]"]
)
def test_control_a_type_that_is_named_twice_is_seen(other):
    files = {Path("ledger/a.py"): ast.parse("class Step: pass"), Path("training/b.py"): ast.parse(other)}
    assert ambiguous(files)
    same = {Path("ledger/a.py"): ast.parse("Step = int | str"), Path("training/b.py"): ast.parse("Step = int | str")}
    assert not ambiguous(same)


def imported(tree):
    """Every name that is imported, in full, with the package or module that it is taken from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, alias.name) for alias in node.names)


def through_the_wall(path, tree):
    """What is taken from another room and is not in its ``__all__``: out of one of its modules, or a module itself."""
    for module, name in imported(tree):
        package, *inside = module.split(".")
        if package != "lrdp" or not inside or inside[0] not in ROOMS or inside[0] == path.parts[0]:
            continue
        public = len(inside) == 1 and name.split(".")[-1] in import_module(module).__all__
        if not public and not {module, name} & ANNEXES:
            yield f"{path}: {name}"


def test_other_rooms_are_entered_through_their_front_door():
    assert [found for path, tree in trees().items() for found in through_the_wall(path, tree)] == []


@pytest.mark.parametrize(
    "line",
    [
        "from lrdp.ledger.books import Books",
        "from lrdp.ledger import books",
        "from lrdp.ledger import books as shelves",
        "import lrdp.ledger.books",
    ],
)
def test_control_a_way_through_the_wall_is_seen(line):
    assert list(through_the_wall(Path("report/statement.py"), ast.parse(line)))
    assert not list(through_the_wall(Path("ledger/store.py"), ast.parse(line)))
    assert not list(through_the_wall(Path("report/statement.py"), ast.parse("from lrdp.ledger import Ledger")))


# -------------------------------------------------------------------------------------------------------------- callers
CALLERS = ("src", "apps", "examples", "benchmarks", "scripts")
FOR_OTHERS = {
    "run_round": "the whole protocol on a page: docs/integrity.md starts there",
    "study": "found by name in each study's package",
    **dict.fromkeys(("tensorboard", "mlflow", "weights_and_biases"), "observers that a user's server is given"),
    **dict.fromkeys(("cached_features", "moments_task", "replace_batch_norm"), "for a user's task: docs/training.md"),
    "centred": "what a user makes of the moments: docs/training.md",
    "create_message": "Flower calls it, on every grid",
    "formatTime": "the standard library's name, which its log calls",
}
"""Public functions that nothing here calls, and who does."""


def module_of(path):
    return ".".join(path.with_suffix("").parts).removeprefix("src.").removesuffix(".__init__")


def uses(path, tree, modules):
    """Functions that a file names, each with its module, or with the package that it was taken from; and attributes."""
    home, bound = module_of(path), {}
    for module, name in imported(tree):
        if name in modules:
            bound[name.split(".")[-1]] = name
        if path.name != "__init__.py":  # a package that only passes a name on does not use it
            yield module, name.split(".")[-1]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield home, node.id
        elif isinstance(node, ast.Attribute):
            yield "", node.attr
            if isinstance(node.value, ast.Name) and node.value.id in bound:
                yield bound[node.value.id], node.attr


def functions(tree):
    """Public functions with False, and methods with True; commands are called by the command line."""
    for node in tree.body:
        for each in node.body if isinstance(node, ast.ClassDef) else [node]:
            if not isinstance(each, ast.FunctionDef) or each.name.startswith("_"):
                continue
            if not any(".command(" in ast.unparse(mark) for mark in each.decorator_list):
                yield each.name, isinstance(node, ast.ClassDef)


def uncalled(files):
    modules = {module_of(path) for path in files}
    used = {use for path, tree in files.items() for use in uses(path, tree, modules)}
    for path, tree in files.items():
        parts = module_of(path).split(".")
        homes = {".".join(parts[: end + 1]) for end in range(len(parts))}
        for name, is_method in functions(tree) if path.parts[0] == "src" else ():
            if not {("", name)} & used if is_method else not {(home, name) for home in homes} & used:
                yield f"{module_of(path)}: {name}"


def test_every_public_function_has_a_caller():
    root = TESTS.parent
    paths = [path for folder in CALLERS for path in (root / folder).rglob("*.py")]
    files = {path.relative_to(root): ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    found = {line.rpartition(": ")[2]: line for line in uncalled(files)}
    assert [line for name, line in found.items() if name not in FOR_OTHERS] == []
    assert set(FOR_OTHERS) - set(found) == set(), "exempt, and called after all"


def test_control_a_function_that_is_only_passed_on_or_shares_a_name_is_seen():
    sources = {
        "src/lrdp/room/door.py": (
            "def knock(): pass\ndef enter(): pass\ndef leave(): pass\nclass Door:\n def shut(self): pass"
        ),
        "src/lrdp/room/__init__.py": "from lrdp.room.door import enter, knock, leave",
        "src/lrdp/street.py": "from lrdp.room import enter, door\nleave = enter()\nprint(leave)",
    }
    files = {Path(name): ast.parse(text) for name, text in sources.items()}
    assert list(uncalled(files)) == [f"lrdp.room.door: {name}" for name in ("knock", "leave", "shut")]
    files[Path("apps/app.py")] = ast.parse("from lrdp.room import door as d, door\ndoor.knock()\ndoor.leave().shut()")
    assert list(uncalled(files)) == []


# ---------------------------------------------------------------------------------------------------------------- sizes
def test_every_file_can_be_read_in_one_sitting():
    sizes = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py"))
    assert sizes[len(sizes) // 2] <= 110
    assert sizes[-1] <= 300


def has_docstring(node):
    return ast.get_docstring(node) is not None and len(node.body) > 1


def test_every_function_can_be_read_at_a_glance():
    """What it does: a signature may be long, since a command's is the list of its options, and so may an example."""
    sizes = {
        f"{path}:{node.lineno} {node.name}": 1 + (node.end_lineno or 0) - node.body[has_docstring(node)].lineno
        for path, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
    }
    assert [name for name, size in sizes.items() if size > 50] == []
    assert sorted(sizes.values())[len(sizes) * 9 // 10] <= 15


def test_shipped_servers_do_not_cheat():
    words = [
        path for path in (SOURCE / "federation").rglob("*.py") if "cheat" in path.read_text(encoding="utf-8").lower()
    ]
    assert words == []


# ------------------------------------------------------------------------------------------------------------- evidence
def names(folder):
    return {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py")}


def namesake(module):
    return str(PurePosixPath(module).with_name(f"test_{PurePosixPath(module).name}"))


def looked_for_in_vain(modules, tests, evidence):
    """Modules whose evidence a newcomer would have to search for, and lines of tests/where.py that lead nowhere."""
    alone = {module for module in modules if namesake(module) not in tests}
    found = {
        "neither a namesake nor a line": alone - set(evidence),
        "a line, and a namesake or no such module": set(evidence) - alone,
        "a line without evidence": {module for module, suites in evidence.items() if not suites or set(suites) - tests},
    }
    return {problem: sorted(where) for problem, where in found.items() if where}


def test_the_evidence_for_every_module_is_found_without_a_search():
    modules = {name for name in names(SOURCE) if not PurePosixPath(name).name.startswith("__")}
    studied = {name for name in modules if name.startswith("experiments/")}
    assert len(modules - studied) > 200
    assert looked_for_in_vain(modules - studied, names(TESTS), EVIDENCE) == {}


def test_every_study_has_tests_of_its_own():
    studies = [path for path in (SOURCE / "experiments").iterdir() if (path / "__init__.py").exists()]
    assert len(studies) > 5
    assert [study for study in studies if not list((TESTS / "experiments" / study.name).glob("test_*.py"))] == []


@pytest.mark.parametrize(
    "evidence",
    [
        {},
        {"ledger/books": []},
        {"ledger/books": ["ledger/test_gone"]},
        {"ledger/books": ["ledger/test_machine"], "ledger/policy": ["ledger/test_machine"]},
        {"ledger/books": ["ledger/test_machine"], "ledger/gone": ["ledger/test_machine"]},
    ],
)
def test_control_a_module_without_evidence_and_a_line_out_of_date_are_seen(evidence):
    modules, tests = {"ledger/books", "ledger/policy"}, {"ledger/test_policy", "ledger/test_machine"}
    assert looked_for_in_vain(modules, tests, evidence) != {}
    assert looked_for_in_vain(modules, tests, {"ledger/books": ["ledger/test_machine"]}) == {}
