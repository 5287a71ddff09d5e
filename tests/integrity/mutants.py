"""Every condition of a module broken in turn, and the test that notices.

    PYTHONPATH=tests python -m integrity.mutants blame keys

Each mutant is one source file with one condition made true, made false, moved by one or robbed of a part. It is loaded
in a forked process in the place of the real module, and the fast tests run until one fails. Prints a line of JSON for
each: the mutant, and the test that failed or null.
"""

from __future__ import annotations

import ast
import copy
import importlib.abc
import importlib.util
import io
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from where import EVIDENCE

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SOURCE = ROOT / "src" / "lrdp" / "integrity"
BEYOND = ["commands/test_integrity"]
"""What tries this room from outside, and quickly."""


def suites(module: str) -> list[str]:
    """Those that should notice, nearest first: the module's own, else what ``tests/where.py`` names."""
    own = f"integrity/test_{module}"
    return [own] if (TESTS / f"{own}.py").exists() else EVIDENCE[f"integrity/{module}"]


def other_suites(module: str) -> list[str]:
    """All the rest of the room's."""
    rooms = [f"integrity/{path.stem}" for path in sorted((TESTS / "integrity").glob("test_*.py"))]
    return [name for name in rooms + BEYOND if name not in (*suites(module), "integrity/test_mutants")]


UNCHANGED = ": unchanged"
LONGEST = 300
"""Seconds of processor time: a broken loop may have no end, also where tests are collected, and no timeout holds."""
MOVED = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}


@dataclass(frozen=True)
class Mutant:
    """One changed condition: ``other`` in the place of ``node``."""

    name: str
    tree: ast.Module
    node: ast.expr | None = None
    other: ast.expr | None = None

    def altered(self) -> ast.Module:
        """The module with the change made: a copy, which takes longer than to name it."""
        if self.node is None or self.other is None:
            return self.tree
        place = next(at for at, one in enumerate(ast.walk(self.tree)) if one is self.node)
        tree = copy.deepcopy(self.tree)
        swapped = _Swap(list(ast.walk(tree))[place], self.other).visit(tree)
        assert isinstance(swapped, ast.Module)
        return ast.fix_missing_locations(swapped)


class _Swap(ast.NodeTransformer):
    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return copy.deepcopy(self.new) if node is self.old else super().visit(node)


def _others(node: ast.expr, whole: bool) -> Iterator[ast.expr]:
    """What may stand in the place of a condition: ``whole`` ones decide something by themselves."""
    if whole:
        yield ast.Constant(True)
        yield ast.Constant(False)
    if isinstance(node, ast.BoolOp):
        for at in range(len(node.values)):
            kept = node.values[:at] + node.values[at + 1 :]
            yield kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)
    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            if type(operator) in MOVED:
                moved = [*node.ops[:at], MOVED[type(operator)](), *node.ops[at + 1 :]]
                yield ast.Compare(node.left, moved, node.comparators)


class Conditions(ast.NodeVisitor):
    """Finds them, with the name of the function around each."""

    def __init__(self) -> None:
        self.found: list[tuple[str, ast.expr, bool]] = []
        self.around: list[str] = []
        self.truth = False

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if not any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            self.around.append(node.name)
            self.generic_visit(node)
            self.around.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.around.append(node.name)
        outer, self.truth = self.truth, isinstance(node.returns, ast.Name) and node.returns.id == "bool"
        self.generic_visit(node)
        self.truth = outer
        self.around.pop()

    def generic_visit(self, node: ast.AST) -> None:
        decides = {"test": (ast.If, ast.IfExp, ast.While), "value": (ast.Return,) if self.truth else ()}
        for field, kinds in decides.items():
            if isinstance(node, kinds):
                self._add(getattr(node, field), True)
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                self._add(test, True)
        if isinstance(node, ast.BoolOp | ast.Compare):
            self._add(node, False)
        super().generic_visit(node)

    def _add(self, node: ast.expr | None, whole: bool) -> None:
        if node is not None and not isinstance(node, ast.Constant):
            self.found.append((".".join(self.around), node, whole))


def mutants(module: str) -> Iterator[Mutant]:
    """All of them, each named by what was there and what is there now."""
    tree = ast.parse((SOURCE / f"{module}.py").read_text(encoding="utf-8"))
    finder = Conditions()
    finder.visit(tree)
    seen = set()
    for around, node, whole in finder.found:
        for other in _others(node, whole):
            name = f"{module}.{around}: {ast.unparse(node)} → {ast.unparse(other)}"
            if name not in seen and "TYPE_CHECKING" not in name:
                seen.add(name)
                yield Mutant(name, tree, node, other)


def modules() -> list[str]:
    """Each that has a condition: a new one is held to this without being named."""
    return [path.stem for path in sorted(SOURCE.glob("*.py")) if next(mutants(path.stem), None)]


def unchanged(module: str) -> Mutant:
    """The control: the module as it is, loaded in the same way, which no test may notice."""
    return Mutant(module + UNCHANGED, ast.parse((SOURCE / f"{module}.py").read_text(encoding="utf-8")))


class Loader(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the mutant wherever the module is imported."""

    def __init__(self, module: str, tree: ast.Module) -> None:
        self.module, self.tree = f"lrdp.integrity.{module}", tree

    def find_spec(self, name: str, path: object, target: object = None) -> Any:
        return importlib.util.spec_from_loader(name, self) if name == self.module else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, f"<mutant of {self.module}>", "exec"), module.__dict__)


class Watch:
    """Remembers the first test that failed."""

    def __init__(self) -> None:
        self.failed: str | None = None

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed and self.failed is None:
            self.failed = f"{report.nodeid} (collection)"


def _first_failure(module: str, mutant: Mutant, files: list[str]) -> str | None:
    import pytest

    sys.meta_path.insert(0, Loader(module, mutant.altered()))
    watch = Watch()
    with redirect_stdout(io.StringIO()):
        options = ["-x", "-q", "--timeout=120", "--hypothesis-seed=0", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["-o", "addopts=--import-mode=importlib -m 'not slow'"]
        ended = pytest.main([*options, *(str(TESTS / f"{name}.py") for name in files)], plugins=[watch])
    if ended != pytest.ExitCode.OK and watch.failed is None:
        raise RuntimeError(f"the tests of {mutant.name} could not be run: {ended!r}")
    return watch.failed


def noticed_by(module: str, mutant: Mutant) -> str | None:
    """The first test that fails: among those that should notice, or else among all."""
    found = _in_a_fork(module, mutant, suites(module))
    return found if found or mutant.name.endswith(UNCHANGED) else _in_a_fork(module, mutant, other_suites(module))


def _in_a_fork(module: str, mutant: Mutant, files: list[str]) -> str | None:
    """Run by a child that shares what is already imported; raises if it could not run them."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        resource.setrlimit(resource.RLIMIT_CPU, (LONGEST, LONGEST))
        said: dict[str, Any] = {"problem": "the child ended"}
        try:
            said = {"noticed_by": _first_failure(module, mutant, files)}
        except RuntimeError as problem:
            said = {"problem": str(problem)}
        finally:
            os.write(write, json.dumps(said).encode())
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"nothing, but it had no end: {signal.Signals(os.WTERMSIG(status)).name}"
    said = json.loads(answer)
    if "problem" in said:
        raise RuntimeError(said["problem"])
    return said["noticed_by"]


def main(chosen: list[str]) -> None:
    # What no mutant touches is imported once, before the forks.
    for name in ("cryptography.hazmat.primitives.asymmetric.ed25519", "numpy", "pytest", "typer.testing"):
        importlib.import_module(name)
    os.chdir(ROOT)
    for module in chosen:
        for mutant in (unchanged(module), *mutants(module)):
            sys.stdout.write(json.dumps({"mutant": mutant.name, "noticed_by": noticed_by(module, mutant)}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:] or modules())
