"""One writer of files: whatever else would open one to write to it is found in the source."""

import ast
from pathlib import Path

import pytest

from lrdp import errors

SOURCE = Path(errors.__file__).parent
ELSEWHERE = {
    ("files.py", ""): "the writer itself",
    ("commands/guard_log.py", "open"): "a log that is only ever added to, for its owner alone",
    ("federation/local/simulation.py", "FileHandler"): "logs",
    ("federation/client/state_file.py", "open_memmap"): "only to read",
    ("commands/streams.py", "open"): "os.devnull, which keeps nothing",
    ("federation/local/cluster.py", "open"): "locks, held while others try them, and gone afterwards",
    ("experiments/memory/measuring.py", "write_text"): "a switch of the kernel's, and no file",
}
OPENING = {"fdopen", "mkstemp", "NamedTemporaryFile", "TemporaryFile", "FileHandler", "memmap", "open_memmap"}
WRITING = {"write_text", "write_bytes", "touch", "symlink_to", "hardlink_to", "copyfile", "copytree", "move"}
HANDED = {"savefig", "save", "savez", "savez_compressed", "savetxt", "tofile", "dump", "to_csv", "to_parquet"}
"""Calls that write to a path or to a file that is open: here only to the second."""


def called(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def is_of(node, module):
    return isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == module


def mode_of(node):
    """The mode of an ``open``, which is its second argument, or the first of a path's; None where it has none."""
    own = [word.value for word in node.keywords if word.arg == "mode"]
    place = 0 if isinstance(node.func, ast.Attribute) and not is_of(node, "io") else 1
    given = own or node.args[place : place + 1]
    return given[0] if given else None


def opens_to_write(node):
    if is_of(node, "os"):
        return True
    mode = mode_of(node)
    if mode is None:
        return False
    if not isinstance(mode, ast.Constant):  # of a method it may be anything: archives and ledgers are opened, too
        return isinstance(node.func, ast.Name)
    return isinstance(mode.value, str) and bool(set(mode.value) & set("wax+"))


def open_already(tree):
    """Names that stand for a file or a buffer: of a ``with``, or of a BytesIO."""
    for node in ast.walk(tree):
        if isinstance(node, ast.withitem) and isinstance(node.optional_vars, ast.Name):
            yield node.optional_vars.id
        if isinstance(node, ast.Assign) and any(
            isinstance(part, ast.Call) and called(part) in {"BytesIO", "StringIO"} for part in ast.walk(node.value)
        ):
            yield from (part.id for target in node.targets for part in ast.walk(target) if isinstance(part, ast.Name))


def writers(tree):
    """Calls that write to a path, by name and line."""
    known = set(open_already(tree))
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        place = 1 if is_of(node, "torch") else 0  # torch's save is told what, and then where
        where = node.args[place] if len(node.args) > place else None
        if (
            (name == "open" and opens_to_write(node))
            or name in OPENING | WRITING
            or (is_of(node, "os") and name in {"replace", "rename", "link", "truncate"})
            or (
                name in HANDED
                and (is_of(node, "np") or is_of(node, "torch") or name not in {"save", "dump"})
                and getattr(where, "id", "") not in known
            )
        ):
            yield name, node.lineno


def test_no_other_module_opens_a_file_to_write_to_it():
    found, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        inside = str(path.relative_to(SOURCE))
        for name, line in writers(ast.parse(path.read_text(encoding="utf-8"))):
            exempt = {(inside, ""), (inside, name)} & ELSEWHERE.keys()
            used |= exempt
            if not exempt:
                found.append(f"{inside}:{line}: {name}")
    assert found == []
    assert used == ELSEWHERE.keys()


@pytest.mark.parametrize(
    "line",
    [
        "open(path, 'w')",
        "open(path, mode='ab')",
        "path.open('a', encoding='ascii')",
        "open(path, mode)",
        "io.open(path, 'x')",
        "os.open(path, flags)",
        "path.write_text('x')",
        "path.write_bytes(b'x')",
        "figure.savefig(path)",
        "np.save(path, values)",
        "np.savez(folder / 'x.npz', a=a)",
        "torch.save(model, path)",
        "os.replace(a, b)",
        "shutil.copyfile(a, b)",
        "logging.FileHandler(path)",
    ],
)
def test_control_another_writer_is_seen(line):
    assert list(writers(ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.open('rb')",
        "archive.open(member)",
        "home.open()",
        "with files.replacing(path, mode) as file: np.save(file, values)",
        "data = io.BytesIO()\nfigure.savefig(data)",
        "standing.save(state)",
        "files.replace(path, data, mode)",
    ],
)
def test_control_who_reads_or_asks_the_writer_is_not(line):
    assert not list(writers(ast.parse(line)))
