"""`lrdp found`: what it says of its budgets, and its app; tests/test_runbook.py uses the rest of what it makes."""

import shlex
import sys
import tomllib
from contextlib import ExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from flwr.app import Message
from flwr.clientapp import ClientApp
from typer.testing import CliRunner

from federation.guards import running
from federation.test_apps import run_in_process
from lrdp.cli import app
from lrdp.federation import Consortium, InProcessGrid, Node
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Decline, read_message

SMALL = ("-n", "300", "-b", "16", "--rounds", "2", "--local-steps", "1")


@pytest.mark.parametrize(("accountant", "words"), [("pld", "can never be raised"), ("rdp", "`lrdp ledger raise`")])
def test_it_is_said_whether_the_budgets_can_be_raised(tmp_path: Path, accountant: str, words: str) -> None:
    folder = tmp_path / "pilot"
    line = ("a", "b", "c", "--folder", str(folder), *SMALL, "--accountant", accountant)
    ended = CliRunner().invoke(app, ["found", *line])
    assert ended.exit_code == 0, ended.output
    assert words in ended.stderr
    for name in "abc":
        with Consortium(folder=folder).client(name).ledger() as ledger:
            assert ledger.books.rule.may_grow == (accountant == "rdp")


NODES = [{"partition-id": number, "num-partitions": 3} for number in range(3)]


@pytest.fixture
def pilot(tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """Founded from another folder, as said on the command line; its records; and what was said."""
    folder = tmp_path / "a pilot"
    line = ("b", "c", "a", "--folder", str(folder), *SMALL, "--delta", "1e-5", "--scheme", request.param)
    ended = CliRunner().invoke(app, ["found", *line])
    assert ended.exit_code == 0, ended.output
    source = np.random.default_rng(3)
    inputs = source.normal(size=(290, 16)).astype(np.float32)
    np.savez(folder / "records.npz", inputs=inputs, labels=(inputs[:, 0] > 0).astype(np.int64))
    return folder, ended.stderr


def run_config(folder: Path) -> dict[str, object]:
    project = tomllib.loads((folder / "app" / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(project["tool"]["flwr"]["app"]["config"])


@pytest.mark.parametrize("pilot", ["sketch", "exact"], indirect=True)
def test_the_first_rounds_of_a_pilot_take_the_commands_that_it_prints(pilot: tuple[Path, str]) -> None:
    folder, said = pilot
    guards = [line.strip() for line in said.splitlines() if line.startswith("  lrdp guard ")]
    assert len(guards) == len(NODES)
    with ExitStack() as started:
        for line in guards:
            words = shlex.split(line.replace("DATA", shlex.quote(str(folder / "records.npz"))))
            started.enter_context(running([sys.executable, "-m", *words]))
        printed = run_in_process(str(folder / "app"), "pilot_app", NODES, run_config(folder))
    assert [f"round {number} · 3 took part · verified" in printed for number in (1, 2, 3)] == [True, True, False]
    for name in "abc":
        with Consortium(folder=folder).client(name).ledger() as ledger:
            assert ledger.books.charges.steps == 2


@pytest.mark.parametrize("pilot", ["sketch"], indirect=True)
def test_a_node_that_is_nobodys_declines(pilot: tuple[Path, str]) -> None:
    """The fourth node of three hospitals, and one that says nothing of itself: nobody's guard is asked for them."""
    folder, _ = pilot
    source = folder / "app" / "pilot_app" / "client_app.py"
    nodes = {1: Node(_app(source), {"partition-id": 3}), 2: Node(_app(source))}
    grid = InProcessGrid(nodes, run_config=run_config(folder))
    question = [Message(to_records(Frame(b"any")), dst_node_id=number, message_type="query") for number in nodes]
    answers = [read_message(from_message(reply)) for reply in grid.send_and_receive(question)]
    assert answers == [Decline(code="no-guard")] * len(nodes)


def _app(source: Path) -> ClientApp:
    found = spec_from_file_location("a_pilots_client_app", source)
    assert found is not None
    assert found.loader is not None
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return cast(ClientApp, module.app)
