"""`lrdp init` beside a policy that is there: its budget is opened as it stands, and not if it contradicts an option."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lrdp.accounting import Budget, Training
from lrdp.cli import app
from lrdp.commands.kept_policy import _stated
from lrdp.errors import LrdpError
from lrdp.ledger import Holder, PeersRule, Policy, read_policy
from lrdp.ledger.starting import Home, write_policy

from . import surface
from .test_peers import OTHER, SERVER, pins, write_registry

TRAINING = Training(dataset_size=410, batch_size=17, rounds=3, local_steps=2, budget=Budget(epsilon=6.5, delta=1e-5))
HOLDER = Holder(client="hospital-0", unit="patient", max_rows_per_unit=1)
AS_IT_SAYS = (
    *("--client", "hospital-0", "--unit", "patient", "--rows-per-unit", "1", "--clipped", "rows"),
    *("--epsilon", "6.5", "--delta", "1e-5", "--dataset-size", "410", "--batch-size", "17", "--rounds", "3"),
    *("--local-steps", "2", "--mechanism", "fixed-size", "--accountant", "rdp"),
)
OTHERWISE = {
    "client": ("hospital-1", 'client = "hospital-1"'),
    "unit": ("Zoë's", 'unit = "Zoë\'s"'),
    "rows_per_unit": ("2", "max_rows_per_unit = 2"),
    "clipped": ("units", 'clipped = "units"'),
    "epsilon": ("7", "epsilon = 7.0"),
    "delta": ("1e-6", "delta = 1e-06"),
    "accountant": ("pld", 'accountant = "pld"'),
    "mechanism": ("truncated-poisson", 'sampling = "truncated-poisson"'),
    "dataset_size": ("411", "min_dataset_size = 411"),
    "local_steps": ("1", "max_steps_per_round = 1"),
    "batch_size": ("16", "batch_size = 16"),
    "task": ("digits_task:task", 'module = "digits_task:task"'),
}


def written(folder: Path, peers: PeersRule | None = None) -> Home:
    home = Home(folder=folder / "home")
    write_policy(home, HOLDER, TRAINING, peers)
    return home


def init(home: Home, *words: str) -> Any:
    return CliRunner().invoke(app, ["init", "--folder", str(home.folder), *words])


def refused(home: Home, *words: str) -> Any:
    """With exit code 2, and with nothing changed in the folder."""
    before = home.policy.read_bytes()
    ended = init(home, *words)
    assert isinstance(ended.exception, LrdpError), ended.output
    assert ended.exception.exit_code == 2
    assert [path.name for path in home.folder.iterdir()] == ["policy.toml"]
    assert home.policy.read_bytes() == before
    return ended


def take_over(home: Home, said: str) -> Policy:
    """Do as was said: each line in the place of the one with its key, a table that was not there at the end."""
    text = home.policy.read_text(encoding="utf-8")
    for table, key, value in re.findall(r"^\[(\w+)\]\n(\w+) = (.*?)  # instead", said, re.MULTILINE):
        text, replaced = re.subn(rf"^{key} = .*$", f"{key} = {value}", text, flags=re.MULTILINE)
        text += "" if replaced else f"\n[{table}]\n{key} = {value}\n"
    home.policy.write_text(text, encoding="utf-8")
    return read_policy(home.policy)


@pytest.mark.parametrize("name", OTHERWISE)
@pytest.mark.parametrize("also", [(), ("--policy-only",)], ids=["open", "policy-only"])
def test_a_budget_is_not_opened_by_a_policy_that_contradicts_what_was_typed(
    tmp_path: Path, name: str, also: tuple[str, ...]
) -> None:
    value, line = OTHERWISE[name]
    home, option = written(tmp_path), f"--{name.replace('_', '-')}"
    stated = _stated(read_policy(home.policy))[name]
    ended = refused(home, option, value, *also)
    assert f"\n{line}  # instead of " in ended.stderr
    assert str(ended.exception).startswith(f"{home.policy} says otherwise than what you typed in {stated.key}, so")


@pytest.mark.parametrize("name", sorted(OTHERWISE.keys() - {"mechanism"}))
def test_the_lines_that_are_shown_make_the_policy_say_what_was_typed(tmp_path: Path, name: str) -> None:
    value, _ = OTHERWISE[name]
    home, typed = written(tmp_path), (f"--{name.replace('_', '-')}", value)
    before = _stated(read_policy(home.policy))[name]
    after = _stated(take_over(home, refused(home, *typed).stderr))[name]
    assert after != before
    agreed = init(home, *typed, "--policy-only")
    assert agreed.exit_code == 0, agreed.output
    assert "instead of" not in agreed.output


def test_what_agrees_with_the_policy_opens_its_budget(tmp_path: Path) -> None:
    home = written(tmp_path)
    ended = init(home, *AS_IT_SAYS)
    assert ended.exit_code == 0, ended.output
    assert home.ledger.exists()


def test_every_option_that_a_policy_could_contradict_is_looked_at(tmp_path: Path) -> None:
    """Whoever adds one to `lrdp init` says in `_stated` where a policy says it, or here why none does."""
    not_in_a_policy = {"folder", "rounds", "policy_only", "as_json"}
    of_the_table_of_peers = {"registry", "server_key", "min_roster", "scheme"}
    options = {each.name for each in surface.COMMANDS["init"].params}
    looked_at = set(_stated(read_policy(written(tmp_path).policy)))
    assert looked_at == options - not_in_a_policy - of_the_table_of_peers == set(OTHERWISE)


def test_a_budget_without_pins_is_opened_where_none_are_asked_for(tmp_path: Path) -> None:
    home = written(tmp_path)
    assert init(home).exit_code == 0
    assert read_policy(home.policy).peers == PeersRule()
    assert home.ledger.exists()


@pytest.mark.parametrize(
    "typed", [(), ("--min-roster", "4"), ("--scheme", "exact"), ("--server-key", OTHER)], ids=lambda words: words[:1]
)
def test_a_budget_is_not_opened_without_the_pins_that_are_asked_for(tmp_path: Path, typed: tuple[str, ...]) -> None:
    registry = write_registry(tmp_path, 5)
    agreed = PeersRule(registry_sha256=registry.digest.hex(), server_keys=(SERVER.signing_key.hex(),), min_roster=3)
    home = written(tmp_path, agreed if typed else None)
    ended = refused(home, *pins(tmp_path), *typed)
    assert "typed in peers, so nothing was opened" in str(ended.exception)
    table = ended.stderr[ended.stderr.index("[peers]") :]
    home.policy.write_text(
        re.sub(r"\[peers\]\n.*?\nscheme = .*?\n", lambda _: table, home.policy.read_text(), flags=re.S)
    )
    opened = init(home, *pins(tmp_path), *typed)
    assert opened.exit_code == 0, opened.output
    assert read_policy(home.policy).peers.registry_sha256 == registry.digest.hex()


def test_pins_that_agree_open_the_budget_whatever_least_roster_and_order_of_keys_the_policy_has(tmp_path: Path) -> None:
    registry = write_registry(tmp_path, 5)
    kept = PeersRule(registry_sha256=registry.digest.hex(), server_keys=(OTHER, SERVER.signing_key.hex()), min_roster=4)
    home = written(tmp_path, kept)
    ended = init(home, *pins(tmp_path), "--server-key", OTHER)
    assert ended.exit_code == 0, ended.output
    assert read_policy(home.policy).peers == kept


def test_a_registry_alone_says_nothing_about_servers_that_are_pinned(tmp_path: Path) -> None:
    write_registry(tmp_path, 5)
    home = written(tmp_path, PeersRule(registry_sha256="ab" * 32, server_keys=(OTHER,), min_roster=5))
    ended = refused(home, *pins(tmp_path)[:2])
    assert f'\nserver_keys = ["{OTHER}"]\n' in ended.stderr
    assert "No server is pinned" not in ended.stderr


@pytest.mark.parametrize(("rounds", "why"), [("4", "affords 3 rounds, fewer than --rounds 4"), ("0", "at least 1")])
def test_a_budget_that_would_not_last_for_the_rounds_that_were_typed_is_not_opened(
    tmp_path: Path, rounds: str, why: str
) -> None:
    assert why in str(refused(written(tmp_path), "--rounds", rounds).exception)


def test_a_name_that_no_guard_could_import_is_refused_and_no_line_is_shown_for_it(tmp_path: Path) -> None:
    ended = refused(written(tmp_path), "--task", "no name")
    assert "package.module:name" in str(ended.exception)
    assert "[task]" not in ended.stderr
