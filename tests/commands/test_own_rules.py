"""What no plan decides is typed alike for `lrdp plan --write` and `lrdp init`, and says the same in their policies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lrdp.accounting import Training, options
from lrdp.cli import app
from lrdp.errors import LrdpError
from lrdp.ledger import Clipped, Policy, Scheme, read_policy

from . import surface
from .test_peers import OTHER, SERVER, pins, write_registry

PLAN = ("plan", "-n", "300", "-b", "16", "--rounds", "2", "--local-steps", "1", "--epsilon", "6", "--delta", "1e-4")
INIT = ("init", *PLAN[1:])
OWN = (
    *("--client", "hospital-0", "--unit", "patient", "--rows-per-unit", "3", "--clipped", "units"),
    *("--server-key", OTHER, "--min-roster", "4", "--scheme", "exact", "--task", "digits_task:task"),
)


@pytest.fixture(autouse=True)
def _two_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a plan compares is of no interest here."""

    def few(training: Training) -> list[object]:
        return [option for option, _ in zip(options(training), range(2), strict=False)]

    monkeypatch.setattr("lrdp.commands.planning.options", few)


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def rules(policy: Policy) -> tuple[object, ...]:
    return policy.identity, policy.peers, policy.task


def test_a_plan_becomes_a_federations_policy_in_one_line_and_init_in_its_folder_opens_it(tmp_path: Path) -> None:
    registry = write_registry(tmp_path, 5)
    home = tmp_path / "home"
    home.mkdir()
    own = (*pins(tmp_path), *OWN)
    planned = typed(*PLAN, "--write", str(home / "policy.toml"), *own)
    assert planned.exit_code == 0, planned.output
    assert f"Compare {registry.digest.hex()} with the office's" in planned.stderr
    policy = read_policy(home / "policy.toml")
    assert (policy.identity.unit, policy.identity.max_rows_per_unit) == ("patient", 3)
    assert policy.identity.clipped is Clipped.UNITS
    assert (policy.peers.registry_sha256, policy.peers.min_roster) == (registry.digest.hex(), 4)
    assert policy.peers.server_keys == (SERVER.signing_key.hex(), OTHER)
    assert policy.peers.scheme is Scheme.EXACT
    assert policy.task == "digits_task:task"
    assert typed(*INIT, "--folder", str(tmp_path / "other"), "--policy-only", *own).exit_code == 0
    assert rules(read_policy(tmp_path / "other" / "policy.toml")) == rules(policy)
    opened = typed("init", "--folder", str(home), *own)
    assert opened.exit_code == 0, opened.output
    assert (home / "ledger.db").exists()


def test_both_commands_take_the_same_options_for_what_no_plan_decides() -> None:
    plan, init = ({each.name: each for each in surface.COMMANDS[name].params} for name in ("plan", "init"))
    own = {"client", "unit", "rows_per_unit", "clipped", "registry", "server_key", "min_roster", "scheme", "task"}
    assert own <= plan.keys() & init.keys()
    for name in own:
        assert (plan[name].opts, plan[name].help, plan[name].default) == (
            init[name].opts,
            init[name].help,
            init[name].default,
        )


@pytest.mark.parametrize("option", [*OWN[::2], "--registry"])
def test_what_only_a_policy_says_is_refused_where_none_is_written(option: str) -> None:
    value = dict(zip(OWN[::2], OWN[1::2], strict=True)).get(option, "registry.json")
    ended = typed(*PLAN, option, value)
    assert isinstance(ended.exception, LrdpError)
    assert str(ended.exception).startswith(f"{option} only has a meaning with --write")


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("--task", "no name"), "package.module:name", 2),
        (("--rows-per-unit", "0"), "max_rows_per_unit must be at least 1", 2),
        (("--min-roster", "3"), "go with --registry", 2),
        (("--registry", "nowhere"), "nowhere cannot be read", 2),
    ],
)
def test_rules_that_no_policy_could_have_are_refused_before_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str, code: int
) -> None:
    monkeypatch.setattr("lrdp.commands.planning.options", lambda _: pytest.fail("it was searched"))
    ended = typed(*PLAN, "--write", str(tmp_path / "policy.toml"), *words)
    assert isinstance(ended.exception, LrdpError)
    assert ended.exception.exit_code == code
    assert message in str(ended.exception)
    assert list(tmp_path.iterdir()) == []
