"""`lrdp init` pins what the consortium's files say, and refuses what could not be kept."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from lrdp.commands.init import init
from lrdp.errors import LrdpError
from lrdp.integrity import Registry, new_identity
from lrdp.integrity import registry as registries
from lrdp.integrity.cards import card, registry_record
from lrdp.ledger import Policy, read_policy
from lrdp.ledger.policy import PeersRule
from lrdp.ledger.starting import Home

app = typer.Typer()
app.command()(init)
SERVER = new_identity("server").member
OTHER = "5e" * 32


def write_registry(folder: Path, members: int) -> Registry:
    office = new_identity("consortium")
    unsigned = Registry(
        version=1,
        first_round=0,
        previous=registries.NO_PREVIOUS,
        consortium=office.member.signing_key,
        members=tuple(new_identity(f"hospital-{number}").member for number in range(members)),
    )
    signed = registries.sign_registry(unsigned, office)
    (folder / "registry.json").write_text(json.dumps(registry_record(signed)))
    (folder / "server.json").write_text(json.dumps(card(SERVER)))
    return signed


def run(folder: Path, *words: str) -> str:
    """What was said; raises what the command raised."""
    given = ["--folder", str(folder / "home"), "--client", "hospital-0", "--policy-only", *words]
    result = CliRunner().invoke(app, given)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def pins(folder: Path) -> tuple[str, ...]:
    return "--registry", str(folder / "registry.json"), "--server-key", str(folder / "server.json")


def policy(folder: Path) -> Policy:
    return read_policy(Home(folder=folder / "home").policy)


@pytest.mark.parametrize(("members", "least"), [(3, 3), (5, 3), (8, 5), (9, 5)])
def test_registry_server_and_a_majority_are_filled_in(tmp_path: Path, members: int, least: int) -> None:
    registry = write_registry(tmp_path, members)
    said = run(tmp_path, *pins(tmp_path))
    assert f"Compare {registry.digest.hex()} with the office's" in said
    assert policy(tmp_path).peers == PeersRule(
        registry_sha256=registry.digest.hex(), server_keys=(SERVER.signing_key.hex(),), min_roster=least
    )


def test_keys_may_be_typed_and_the_least_roster_chosen(tmp_path: Path) -> None:
    write_registry(tmp_path, 9)
    run(tmp_path, *pins(tmp_path), "--server-key", OTHER.upper(), "--server-key", OTHER, "--min-roster", "7")
    peers = policy(tmp_path).peers
    assert peers.server_keys == (SERVER.signing_key.hex(), OTHER)
    assert peers.min_roster == 7


def test_without_a_registry_nobody_is_pinned_and_no_session_is_joined(tmp_path: Path) -> None:
    run(tmp_path)
    assert policy(tmp_path).peers == PeersRule()


def test_without_a_server_it_is_said_that_no_session_is_joined(tmp_path: Path) -> None:
    write_registry(tmp_path, 4)
    assert "No server is pinned: no session is joined" in run(tmp_path, *pins(tmp_path)[:2])
    assert policy(tmp_path).peers.server_keys == ()


WRONG = {
    "a server without a registry": (["--server-key", OTHER], "--server-key and --min-roster go with --registry"),
    "a least roster without a registry": (["--min-roster", "3"], "go with --registry"),
    "more than there are": (["--min-roster", "5"], "--min-roster must be at most the 4 members"),
    "too few": (["--min-roster", "2"], "min_roster must be at least 3, got 2"),
    "no file": (["--server-key", "nowhere.json"], "nowhere.json cannot be read"),
    "not a member": (["--client", "hospital-9"], "has no member hospital-9"),
}


@pytest.mark.parametrize(("words", "message"), WRONG.values(), ids=WRONG.keys())
def test_what_could_not_be_kept_is_refused_and_no_policy_is_written(
    tmp_path: Path, words: list[str], message: str
) -> None:
    write_registry(tmp_path, 4)
    given = [] if "go with" in message else pins(tmp_path)
    with pytest.raises(LrdpError, match=message):
        run(tmp_path, *given, *words)
    assert not Home(folder=tmp_path / "home").policy.exists()


def test_a_registry_or_a_card_that_was_tampered_with_is_refused(tmp_path: Path) -> None:
    write_registry(tmp_path, 4)
    for file, field in (("server.json", "signing_key"), ("registry.json", "consortium")):
        path, whole = tmp_path / file, (tmp_path / file).read_text()
        record = json.loads(whole)
        path.write_text(json.dumps({**record, field: new_identity("x").member.signing_key.hex()}))
        with pytest.raises(LrdpError):
            run(tmp_path, *pins(tmp_path))
        path.write_text(whole)
    assert not Home(folder=tmp_path / "home").policy.exists()
    run(tmp_path, *pins(tmp_path))
