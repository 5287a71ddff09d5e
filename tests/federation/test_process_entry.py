"""What belongs to a whole process is set where one is entered, never by a value that is made or a module imported."""

import ast
from pathlib import Path

import pytest
from torch import nn
from torch.nn import functional

from lrdp import errors
from lrdp.federation import LocalTask, private_client_app
from lrdp.federation.client import local_task
from lrdp.federation.client.local_task import Workbench, prepare_process
from lrdp.training import Execution

from .worlds import records, reopened, world

SOURCE = Path(errors.__file__).parent
OF_THE_PROCESS = {
    *("set_num_threads", "set_num_interop_threads", "set_default_dtype", "use_deterministic_algorithms"),
    *("manual_seed", "seed", "umask", "putenv", "unsetenv", "setrlimit", "basicConfig", "addHandler", "setLevel"),
    *("keep_freed_blocks", "return_large_blocks", "prepare_process", "mallopt", "simplefilter", "filterwarnings"),
    *("setlocale", "setswitchinterval", "set_start_method", "register_at_fork", "chdir"),
}
ALLOWED = {
    ("training/keystream.py", "register_at_fork"): "a child must not repeat its parent's noise, whoever forks",
}
BIRTHS = {"__init__", "__post_init__", "__new__", "__init_subclass__", "__set_name__"}


def name_of(node):
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def changes_environment(node):
    """os.environ[…] = … or os.environ.update(…)."""
    return isinstance(node, ast.Subscript | ast.Attribute) and getattr(node.value, "attr", "") == "environ"


def own_generator(node):
    """torch.Generator().manual_seed(…) is nobody else's."""
    return isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Call)


def settings_in(body):
    for top in body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and name_of(node) in OF_THE_PROCESS and not own_generator(node):
                yield name_of(node), node.lineno
            if isinstance(node, ast.Call) and changes_environment(node.func) and name_of(node) in {"update", "pop"}:
                yield "environ", node.lineno
            if isinstance(node, ast.Subscript) and changes_environment(node) and isinstance(node.ctx, ast.Store):
                yield "environ", node.lineno


def at_import(body):
    """What runs when a module is imported: all but functions, and what is below `if __name__ == "__main__"`."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from at_import(node.body)
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "__main__" not in ast.unparse(node):
            yield node


def at_birth(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name in BIRTHS:
            yield from node.body


def settings_of(tree):
    return [*settings_in(at_import(tree.body)), *settings_in(at_birth(tree))]


def test_no_constructor_and_no_import_sets_what_is_the_process_s():
    found_in, used = [], set()
    for path in sorted(SOURCE.rglob("*.py")):
        inside = str(path.relative_to(SOURCE))
        for name, line in settings_of(ast.parse(path.read_text(encoding="utf-8"))):
            if (inside, name) in ALLOWED:
                used.add((inside, name))
            else:
                found_in.append(f"{inside}:{line}: {name}")
    assert found_in == []
    assert used == ALLOWED.keys()


@pytest.mark.parametrize(
    "code",
    [
        "torch.set_num_threads(1)",
        "class A:\n def __init__(self): keep_freed_blocks()",
        "class A:\n torch.manual_seed(3)",
        "import os\nos.environ['A'] = 'b'",
        "os.environ.update(A='b')",
        "class A:\n def __post_init__(self):\n  os.umask(0)",
    ],
)
def test_control_what_sets_it_is_seen(code):
    assert settings_of(ast.parse(code))


@pytest.mark.parametrize(
    "code",
    [
        "def main(): torch.set_num_threads(1)",
        "if __name__ == '__main__':\n torch.set_num_threads(1)",
        "SOURCE = torch.Generator().manual_seed(3)",
        "A = os.environ.get('A')",
    ],
)
def test_control_who_enters_a_process_may(code):
    assert not settings_of(ast.parse(code))


@pytest.fixture
def said(monkeypatch):
    """What is asked of the C library."""
    order = []
    monkeypatch.setattr(local_task, "keep_freed_blocks", lambda: order.append("keep"))
    monkeypatch.setattr(local_task, "return_large_blocks", lambda: order.append("return"))
    return order


def test_a_workbench_asks_nothing_of_the_process_and_an_entry_does(said):
    task = LocalTask(model=lambda: nn.Linear(4, 2), dataset=records, loss=functional.cross_entropy)
    assert Workbench(task, {"partition-id": 0}).model.in_features == 4
    private_client_app(model=task.model, dataset=task.dataset, loss=task.loss)
    assert said == []
    prepare_process(task)
    prepare_process(
        LocalTask(model=task.model, dataset=records, loss=task.loss, execution=Execution(memory_limit="900MB"))
    )
    assert said == ["keep", "return"]


def test_an_app_asks_with_its_first_message(tmp_path, said):
    world(tmp_path, 3)
    place = reopened(tmp_path, 3)
    assert said == []
    place.run(1)
    assert said == ["keep"] * 3, "once for each client that lives in this process"
