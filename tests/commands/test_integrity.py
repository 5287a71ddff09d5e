"""The commands: keys, registry and an auditor's verdict on a session's receipts."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from integrity.parties import federation, honest_round, identity
from integrity.test_registry import rotated_world
from lrdp.commands.integrity import keys_app, verify
from lrdp.commands.registry import registry_app
from lrdp.errors import InvalidInput, LrdpError, NotVerified
from lrdp.integrity import history
from lrdp.integrity.cards import card
from lrdp.integrity.verdicts import Verdict

app = typer.Typer()
app.add_typer(keys_app, name="keys")
app.add_typer(registry_app, name="registry")
app.command()(verify)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def failed(result: Result, kind: type[LrdpError], *parts: str) -> None:
    assert isinstance(result.exception, kind), result.output
    assert all(part in str(result.exception) for part in parts), result.exception


@pytest.fixture
def consortium(tmp_path: Path) -> Path:
    path = tmp_path / "consortium.pem"
    assert run("keys", "new", "consortium", "--out", path).exit_code == 0
    return path


def member_card(folder: Path, name: str, generation: int = 0) -> Path:
    path = folder / f"{name}.{generation}.json"
    path.write_text(json.dumps(card(identity(name, generation).member)))
    return path


def test_new_keys_are_secret_and_their_card_is_public(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = run("keys", "new", "hospital-1", "--json")
    shown = run("keys", "show", "hospital-1.pem", "--json")
    assert json.loads(made.stdout) == json.loads(shown.stdout)
    assert stat.S_IMODE(Path("hospital-1.pem").stat().st_mode) == 0o600
    assert "hospital-1" in run("keys", "show", "hospital-1.pem").stdout
    failed(run("keys", "new", "hospital-1"), InvalidInput, "never overwritten")
    failed(run("keys", "new", "Hospital 1"), InvalidInput, "is not a name")


def test_a_registry_is_made_filled_signed_and_verified(tmp_path, consortium):
    path = tmp_path / "registry.json"
    assert run("registry", "new", path, "--key", consortium).exit_code == 0
    cards = [member_card(tmp_path, name) for name in ("c", "a", "b")]
    assert run("registry", "add", path, *cards).exit_code == 0
    failed(run("registry", "verify", path), NotVerified, "REGISTRY_REFUSED")
    signed = json.loads(run("registry", "sign", path, "--key", consortium, "--json").stdout)
    assert signed["members"] == ["a", "b", "c"]
    verified = run("registry", "verify", path, "--pin", signed["digest"], "--json")
    assert json.loads(verified.stdout) == {**signed, "pinned": True}
    assert "anybody may have made" in run("registry", "verify", path).stderr
    failed(run("registry", "verify", path, "--pin", "00" * 32), NotVerified, "pinned is")
    failed(run("registry", "verify", path, "--pin", "zz"), InvalidInput, "64 hexadecimal digits")


def test_a_registry_changes_only_with_a_new_signature(tmp_path, consortium):
    path = tmp_path / "registry.json"
    run("registry", "new", path, "--key", consortium)
    run("registry", "add", path, *(member_card(tmp_path, name) for name in "abc"))
    run("registry", "sign", path, "--key", consortium)
    assert run("registry", "verify", path).exit_code == 0
    run("registry", "add", path, member_card(tmp_path, "d"))
    failed(run("registry", "verify", path), NotVerified, "REGISTRY_REFUSED")
    failed(run("registry", "new", path, "--key", consortium), InvalidInput, "never overwritten")


def test_the_next_version_links_to_the_last(tmp_path, consortium):
    path, following = tmp_path / "registry.json", tmp_path / "next.json"
    run("registry", "new", path, "--key", consortium)
    run("registry", "add", path, *(member_card(tmp_path, name) for name in "abc"))
    first = json.loads(run("registry", "sign", path, "--key", consortium, "--json").stdout)
    assert run("registry", "new", following, "--key", consortium, "--after", path, "--first-round", 7).exit_code == 0
    failed(run("registry", "add", following, member_card(tmp_path, "b", 1)), InvalidInput, "other keys of b")
    replaced = run("registry", "replace-key", following, member_card(tmp_path, "b", 1))
    assert "Replaced the keys of b" in replaced.stderr
    run("registry", "sign", following, "--key", consortium)
    record = json.loads(following.read_text())
    assert (record["version"], record["first_round"], record["previous"]) == (2, 7, first["digest"])
    assert run("registry", "verify", following).exit_code == 0


def test_nobody_else_signs_and_no_card_is_forged(tmp_path, consortium):
    path, other = tmp_path / "registry.json", tmp_path / "other.pem"
    run("registry", "new", path, "--key", consortium)
    run("keys", "new", "other", "--out", other)
    failed(run("registry", "sign", path, "--key", other), InvalidInput, "another consortium")
    forged = {**card(identity("a").member), "name": "b"}
    (tmp_path / "b.json").write_text(json.dumps(forged))
    failed(run("registry", "add", path, tmp_path / "b.json"), NotVerified, "not signed by their owner")


@pytest.mark.parametrize("names", ["", "a", "ab"])
def test_a_registry_too_small_for_any_round_is_not_signed(tmp_path, consortium, names):
    path = tmp_path / "registry.json"
    run("registry", "new", path, "--key", consortium)
    if names:
        run("registry", "add", path, *(member_card(tmp_path, name) for name in names))
    before = path.read_bytes()
    words = f"has {len(names)} of at least 3 members", "of two each could subtract itself", "nothing was signed"
    failed(run("registry", "sign", path, "--key", consortium), InvalidInput, *words)
    assert path.read_bytes() == before


def test_only_the_same_consortium_goes_on(tmp_path, consortium):
    path, following, other = tmp_path / "registry.json", tmp_path / "next.json", tmp_path / "other.pem"
    run("registry", "new", path, "--key", consortium, "--first-round", 4)
    run("registry", "add", path, *(member_card(tmp_path, name) for name in "abc"))
    run("registry", "sign", path, "--key", consortium)
    run("keys", "new", "other", "--out", other)
    after = "registry", "new", following, "--after", path
    failed(run(*after, "--key", other, "--first-round", 9), InvalidInput, "a key other than --key")
    assert not following.exists()
    assert run(*after, "--key", consortium, "--first-round", 2).exit_code == 0, "sessions count their own rounds"


NO_REGISTRIES = [
    "",
    "[]",
    "{}",
    "[" * 100_000,
    '{"members": 3}',
    '{"members": [3]}',
    '{"members": [], "version": true}',
]


@pytest.mark.parametrize("text", NO_REGISTRIES, ids=range(len(NO_REGISTRIES)))
def test_a_file_that_is_no_registry_is_a_typed_error(tmp_path, text):
    path = tmp_path / "registry.json"
    path.write_text(text)
    failed(run("registry", "verify", path), NotVerified, "MALFORMED")
    failed(run("registry", "verify", tmp_path / "absent.json"), InvalidInput, "cannot be read")


# -------------------------------------------------------------------------------------------------------------- verify
def session_of(rounds: int) -> list[str]:
    world = federation(4)
    lines = [history.session_line(world.session)]
    return [*lines, *(history.step_line(honest_round(world).encode()) for _ in range(rounds))]


@pytest.fixture
def receipts(tmp_path: Path) -> Path:
    path = tmp_path / "receipts"
    path.write_text("\n".join(session_of(3)) + "\n")
    return path


def test_an_auditor_without_model_or_data_verifies_a_session(receipts):
    pin = federation(4).session.registry.digest.hex()
    result = run("verify", receipts, "--pin", pin, "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (found["verified"], found["consistent"], found["rounds"], found["pinned"]) == (True, True, 3, True)
    assert found["participants"] == {"c000": 3, "c001": 3, "c002": 3, "c003": 3}
    assert found["scheme"] == "sketch"
    assert run("verify", receipts, "--pin", pin, "--tip", found["tip"]).exit_code == 0
    assert "rounds        3" in run("verify", receipts, "--unpinned").stdout


def test_without_a_pin_nothing_is_called_verified(receipts):
    failed(run("verify", receipts), InvalidInput, "--pin HASH", "--unpinned")
    assert getattr(run("verify", receipts).exception, "exit_code", None) == 2
    failed(run("verify", receipts, "--pin", "00" * 32, "--unpinned"), InvalidInput, "--pin HASH")
    result = run("verify", receipts, "--unpinned", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (found["verified"], found["consistent"], found["pinned"]) == (False, True, False)
    assert "only consistent" in result.stderr


def test_receipts_may_lie_in_a_directory(tmp_path):
    folder = tmp_path / "receipts"
    folder.mkdir()
    for index, line in enumerate(session_of(2)):
        (folder / f"{index:04d}").write_text(line)
    assert json.loads(run("verify", folder, "--unpinned", "--json").stdout)["rounds"] == 2


def test_a_servers_own_folder_is_searched_for_its_receipts(tmp_path, receipts):
    """Its keys, heads and failed attempts lie there too."""
    folder = tmp_path / "server"
    folder.mkdir()
    receipts.rename(folder / "receipts-0123456789abcdef.txt")
    for name in ("identity.pem", "heads.json", "attempts-0123456789abcdef.txt"):
        (folder / name).write_text("no receipt")
    assert json.loads(run("verify", folder, "--unpinned", "--json").stdout)["rounds"] == 3
    (folder / "receipts-fedcba9876543210.txt").write_text("another session")
    failed(
        run("verify", folder, "--unpinned"), InvalidInput, "of 2 sessions", "name one of receipts-0123456789abcdef.txt"
    )


def test_a_receipt_that_fails_gives_round_reason_and_exit_code(receipts):
    lines = receipts.read_text().split()
    lines[2] = lines[2][:-2] + ("00" if lines[2][-2:] != "00" else "01")
    receipts.write_text("\n".join(lines))
    result = run("verify", receipts, "--unpinned", "--json")
    failed(result, NotVerified, "Round 1 is not verified", "QUORUM_MISSING")
    assert getattr(result.exception, "exit_code", None) == 5
    found = json.loads(result.stdout)
    assert (found["verified"], found["round"], found["verdict"]) == (False, 1, "QUORUM_MISSING")


@pytest.mark.parametrize(
    ("alter", "verdict"),
    [
        (lambda lines: [lines[0], *lines[2:]], Verdict.CHAIN_BREAK),
        (lambda lines: [lines[0], lines[1], lines[3]], Verdict.STALE_CONTEXT),
        (lambda lines: [*lines, lines[1]], Verdict.STALE_CONTEXT),
        (lambda lines: lines[1:], Verdict.MALFORMED),
        (lambda lines: [], Verdict.MALFORMED),
        (lambda lines: lines[:1], Verdict.MALFORMED),
        (lambda lines: [*lines, "xyz"], Verdict.MALFORMED),
        (lambda lines: [*lines, "ff"], Verdict.MALFORMED),
        (lambda lines: [lines[0], lines[0]], Verdict.MALFORMED),
    ],
)
def test_missing_repeated_and_foreign_lines_are_found(receipts, alter, verdict):
    receipts.write_text("\n".join(alter(receipts.read_text().split())))
    result = run("verify", receipts, "--unpinned")
    assert isinstance(result.exception, NotVerified)
    assert result.exception.verdict in {verdict, Verdict.STALE_CONTEXT}


def test_rounds_missing_at_the_end_are_found_with_the_head(receipts):
    tip = json.loads(run("verify", receipts, "--unpinned", "--json").stdout)["tip"]
    receipts.write_text("\n".join(receipts.read_text().split()[:-1]))
    assert run("verify", receipts, "--unpinned").exit_code == 0
    failed(run("verify", receipts, "--unpinned", "--tip", tip), NotVerified, "rounds are missing")
    failed(run("verify", receipts, "--unpinned", "--tip", "zzz"), InvalidInput, "--tip must be 64 hexadecimal digits")


def test_a_session_of_another_registry_is_found_with_the_pin(receipts):
    failed(run("verify", receipts, "--pin", "00" * 32), NotVerified, "pinned is")


def test_an_auditor_follows_a_rotation(tmp_path):
    world, _, receipts, following = rotated_world()
    receipts.append(honest_round(world))
    lines = [history.step_line(receipt.encode()) for receipt in receipts]
    lines = [history.session_line(federation(4).session), *lines]
    path = tmp_path / "receipts"
    path.write_text("\n".join([*lines[:3], history.step_line(following.encode()), lines[3]]))
    found = json.loads(run("verify", path, "--pin", federation(4).session.registry.digest.hex(), "--json").stdout)
    assert (found["rounds"], found["registry"]) == (3, following.digest.hex())
    began = federation(4).session
    assert found["registries"] == {began.registry.digest.hex(): 1, following.digest.hex(): 3}
    assert found["session"] == began.digest.hex(), "as its receipts and models are named"
    path.write_text("\n".join(lines))
    failed(run("verify", path, "--unpinned"), NotVerified, "STALE_CONTEXT")
    path.write_text("\n".join([lines[0], history.step_line(following.encode()), *lines[1:]]))
    failed(run("verify", path, "--unpinned"), NotVerified, "before the first round")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"\x00" * 50, b"ab" * 5000])
def test_any_bytes_are_a_typed_error(tmp_path, content):
    path = tmp_path / "receipts"
    path.write_bytes(content)
    failed(run("verify", path, "--unpinned"), NotVerified, "MALFORMED")


def test_nobody_is_called_removed_before_the_file_says_so(tmp_path):
    consortium, path = tmp_path / "consortium.pem", tmp_path / "registry.json"
    run("keys", "new", "consortium", "--out", consortium)
    run("registry", "new", path, "--key", consortium)
    run("registry", "add", path, *(member_card(tmp_path, name) for name in "abcd"))
    result = run("registry", "remove", path, "a", "nobody")
    failed(result, InvalidInput, "no member 'nobody', its members are a, b, c, d: nothing was written")
    assert "Removed" not in result.stderr


def test_a_server_that_has_opened_no_session_has_nothing_that_could_be_wrong(tmp_path, consortium):
    consortium.rename(tmp_path / "identity.pem")
    failed(run("verify", tmp_path, "--pin", "00" * 32), InvalidInput, "no session was opened in it so far")
