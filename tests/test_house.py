"""The house itself: a light base install, public names that exist, no reliance on assert, evidence where one looks."""

import ast
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


def test_no_class_name_stands_for_two_things():
    homes = defaultdict(list)
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                homes[node.name].append(str(path))
    assert {name: found for name, found in homes.items() if len(found) > 1} == {}


def through_the_wall(path, tree):
    """Imports of another room's modules that do not go through its ``__init__``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module not in ANNEXES:
            package, *inside = node.module.split(".")
            if package == "lrdp" and len(inside) > 1 and inside[0] in ROOMS and inside[0] != path.parts[0]:
                yield f"{path}: {node.module}"


def test_other_rooms_are_entered_through_their_front_door():
    assert [found for path, tree in trees().items() for found in through_the_wall(path, tree)] == []


def test_control_a_way_through_the_wall_is_seen():
    tree = ast.parse("from lrdp.ledger.books import Books")
    assert list(through_the_wall(Path("report/statement.py"), tree))
    assert not list(through_the_wall(Path("ledger/store.py"), tree))


def test_every_file_can_be_read_in_one_sitting():
    sizes = sorted(len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCE.rglob("*.py"))
    assert sizes[len(sizes) // 2] <= 110
    assert sizes[-1] <= 300


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
