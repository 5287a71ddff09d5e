"""The house itself: the base install is light, the public names are there, nothing relies on assert."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import lrdp.accounting
from lrdp import errors

SOURCE = Path(errors.__file__).parent
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


def test_every_public_name_exists_and_is_sorted():
    names = lrdp.accounting.__all__
    assert names == sorted(names)
    assert all(hasattr(lrdp.accounting, name) for name in names)


def test_every_error_has_an_exit_code_of_the_contract_and_stands_in_the_tree():
    def kinds(kind):
        return {kind}.union(*(kinds(child) for child in kind.__subclasses__()))

    for kind in kinds(errors.LrdpError):
        if kind.__module__ == errors.__name__:
            assert kind.exit_code in {1, 2, 3, 4, 5, 6}
            assert kind.__name__ in (errors.__doc__ or "")
