"""`lrdp init`: a policy that explains itself, keys that nobody else reads, a budget that is opened once."""

import stat
from pathlib import Path

import pytest

from lrdp.errors import LrdpError
from lrdp.integrity import new_identity
from lrdp.ledger import Clipped, read_policy

from .clients import Client, folder


def test_init_explains_every_line_and_keeps_keys_private(client: Client) -> None:
    lines = client.home.policy.read_text().splitlines()
    assert sum(line.startswith("#") for line in lines) >= 14
    for path in (client.home.key, client.home.administrator, client.home.ledger):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_policy(client.home.policy).identity.client == "hospital-a"


def test_the_budget_of_init_lasts_exactly_as_long_as_was_planned(client: Client) -> None:
    for number in range(5):
        client.train(number)
    assert client.json("ledger", "show", *folder(client))["budget"]["rounds_left"] == 0  # type: ignore[index]
    with pytest.raises(LrdpError) as caught:
        client.train(6)
    assert caught.value.exit_code == 3


def test_init_keeps_an_edited_policy_and_never_opens_a_budget_twice(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.run("init", *folder(client), "--policy-only")
    assert not client.home.ledger.exists()
    edited = client.home.policy.read_text().replace('"client"', '"edited"')
    client.home.policy.write_text(edited)
    client.run("init", *folder(client))
    assert client.home.policy.read_text() == edited
    client.home.ledger.unlink()
    assert "its ledger was opened before" in client.run("init", *folder(client), code=2)


@pytest.mark.parametrize("clipped", list(Clipped))
def test_what_is_clipped_as_one_stands_in_the_policy(tmp_path: Path, clipped: Clipped) -> None:
    client = Client(tmp_path)
    asked = ("--unit", "patient", "--rows-per-unit", "40", "--clipped", clipped.value)
    client.run("init", *folder(client), "--policy-only", *asked)
    identity = read_policy(client.home.policy).identity
    assert (identity.unit, identity.max_rows_per_unit, identity.clipped) == ("patient", 40, clipped)


@pytest.mark.parametrize("name", ["Hospital A", "hospital/a", ".a", "ä", "a" * 64, ""])
def test_a_name_that_no_registry_takes_is_refused_before_the_budget_is_opened(tmp_path: Path, name: str) -> None:
    client = Client(tmp_path / "home")
    assert "is no name" in client.run("init", *folder(client), "--client", name, code=2)
    assert not client.home.folder.exists()
    with pytest.raises(LrdpError, match="is no name"):
        new_identity(name)
    client.run("init", *folder(client), "--policy-only")
    text = client.home.policy.read_text().replace('"client"', f'"{name}"')
    client.home.policy.write_text(text)
    client.run("init", *folder(client), code=2)
    assert not client.home.ledger.exists()


def test_a_plan_becomes_a_policy_and_a_budget_that_lasts_as_long_as_was_promised(tmp_path: Path) -> None:
    client = Client(tmp_path)
    sizes = ("-n", "3000", "-b", "24", "--rounds", "4", "--local-steps", "7", "--epsilon", "2", "--delta", "1e-5")
    planned = client.json("plan", *sizes, "--write", str(client.home.policy), "--client", "hospital-a")
    policy = read_policy(client.home.policy)
    best = planned["recommended"]
    assert isinstance(best, dict)
    assert (best["mechanism"], best["accountant"]) == ("truncated-poisson", "pld"), "the default where it is quietest"
    assert policy.mechanism.costliest.noise_multiplier == best["noise_multiplier"]
    assert planned["rounds_promised"] == best["rounds_affordable"]
    assert client.json("init", *folder(client))["rounds"] == planned["rounds_promised"]
    for number in range(best["rounds_affordable"]):
        client.train(number)
    with pytest.raises(LrdpError) as caught:
        client.train(99)
    assert caught.value.exit_code == 3
    assert "already" in client.run("plan", *sizes, "--write", str(client.home.policy), code=2)


def test_init_makes_the_policy_that_is_asked_for(tmp_path: Path) -> None:
    client = Client(tmp_path)
    asked = ("--mechanism", "truncated-poisson", "--accountant", "pld", "--rounds", "3", "--local-steps", "5")
    made = client.json("init", *folder(client), *asked)
    assert made["rounds"] == 3
    text = client.home.policy.read_text()
    for line in ('sampling = "truncated-poisson"', 'accountant = "pld"', "cap = 128", "max_dataset_size = 5000"):
        assert line in text.splitlines()
