"""The commands as a user runs them: data on stdout, words on stderr, one sentence and an exit code on failure."""

import json
import re
import shutil
from pathlib import Path

import pytest

from lrdp.errors import LedgerRolledBack
from lrdp.ledger import ReceivedModel, Request, SigningKey, read_policy, verify_export

from .clients import Client, folder


def test_show_and_verify_print_figures(client: Client) -> None:
    client.train(1)
    shown = client.json("ledger", "show", *folder(client))
    assert shown["client"] == "hospital-a"
    assert client.json("ledger", "verify", *folder(client)) == {
        "ok": True,
        "entries": 5,
        "charges": 1,
        "steps": 20,
        "signed": False,
        "digest": shown["ledger"]["digest"],  # type: ignore[index]
        "clock_went_back": 0,
    }
    assert "under any adaptivity" in client.run("ledger", "show", *folder(client))


def test_an_export_is_verified_without_the_folder(client: Client, tmp_path: Path) -> None:
    client.train(1)
    made = client.json("ledger", "export", str(tmp_path / "out.txt"), *folder(client))
    assert made["entries"] == 5
    shutil.move(client.home.folder, tmp_path / "away")
    assert client.json("ledger", "verify", str(tmp_path / "out.txt"))["signed"] is True
    wrong = client.run("ledger", "verify", str(tmp_path / "out.txt"), "--key", "00" * 32, code=6)
    assert "somebody else's" in wrong
    assert "hospital-a" in client.run("statement", str(tmp_path / "out.txt"))


def test_a_damaged_ledger_ends_with_code_six(client: Client) -> None:
    whole = bytearray(client.home.ledger.read_bytes())
    place = whole.rindex(b"POLICY")
    whole[place + 30] ^= 1
    client.home.ledger.write_bytes(whole)
    assert "does not match its hash" in client.run("ledger", "verify", *folder(client), code=6)
    assert "does not match its hash" in client.run("statement", *folder(client), code=6)


def test_a_rolled_back_ledger_ends_with_code_six_and_adopting_mends_it(client: Client, tmp_path: Path) -> None:
    backup = client.home.ledger.read_bytes()
    client.train(1)
    head = client.head(tmp_path / "head.txt")
    client.home.ledger.write_bytes(backup)
    assert "adopt-head" in client.run("ledger", "verify", *folder(client), "--head", str(head), code=6)
    assert client.json("ledger", "adopt-head", str(head), *folder(client))["steps"] == 20
    client.run("ledger", "verify", *folder(client), "--head", str(head))
    assert "nothing to adopt" in client.run("ledger", "adopt-head", str(head), *folder(client), code=2)


def test_the_head_that_suspended_a_ledger_is_adopted_without_a_file(client: Client) -> None:
    """A hospital has no file of it: a server showed the head, and the ledger wrote it down."""
    backup = client.home.ledger.read_bytes()
    client.train(1)
    with client.home.open() as ledger:
        head = ledger.head()
    client.home.ledger.write_bytes(backup)
    refused = client.run("ledger", "adopt-head", *folder(client), code=2)
    assert "is not suspended" in refused
    assert "nothing was charged" in refused
    with client.home.open() as ledger, pytest.raises(LedgerRolledBack):
        ledger.witness(head)
    assert client.json("ledger", "adopt-head", *folder(client))["steps"] == 20
    assert client.json("ledger", "show", *folder(client))["suspended"] is False
    with client.home.open() as ledger:
        ledger.witness(head)


@pytest.mark.parametrize("begun", [False, True])
def test_a_key_is_not_rotated_without_the_one_in_force(client: Client, begun: bool) -> None:
    """It would sign for nothing, and nothing would open the ledger again."""
    kept = client.home.key.read_bytes()
    if begun:
        SigningKey.generate().write(client.home.next_key)
    client.home.key.unlink()
    before = everything(client.home.folder)
    words = client.run("ledger", "rotate-key", *folder(client), code=2)
    assert "nothing was changed; restore it from the backup" in words
    assert everything(client.home.folder) == before
    SigningKey.generate().write(client.home.key)
    before = everything(client.home.folder)
    client.run("ledger", "rotate-key", *folder(client), code=4)
    assert everything(client.home.folder) == before, "another key hands over to nobody"
    client.home.key.write_bytes(kept)
    client.run("ledger", "rotate-key", *folder(client))
    client.train(1)


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_charge_is_voided_with_a_reason(client: Client) -> None:
    rule = read_policy(client.home.policy).mechanism
    with client.home.open() as ledger:
        receipt = ledger.charge(
            Request(
                run="run",
                round=1,
                model=ReceivedModel(digest="0" * 64, size=1, largest_weight=0.0),
                config_digest="1" * 64,
                mechanism=rule.costliest,
                steps=3,
                clip_norm=1.0,
            )
        )
    figures = client.json("ledger", "void", str(receipt.entry), "--reason", "power cut", *folder(client))
    assert figures["charges"]["void"] == 1  # type: ignore[index]


def test_the_operator_imports_exports_and_reports(client: Client, tmp_path: Path) -> None:
    client.train(1)
    other = Client(tmp_path / "other")
    other.run("init", *folder(other), "--client", "bank-b")
    client.run("ledger", "export", str(tmp_path / "a.txt"), *folder(client))
    other.run("ledger", "export", str(tmp_path / "b.txt"), "--report", *folder(other))
    fleet = str(tmp_path / "fleet.npz")
    client.run("ledger", "import", str(tmp_path / "a.txt"), "--fleet", fleet)
    seen = client.json("ledger", "import", str(tmp_path / "b.txt"), "--fleet", fleet)
    assert seen["clients"] == 2
    names = [row["client"] for row in seen["next_to_run_out"]]  # type: ignore[attr-defined]
    assert names == ["hospital-a", "bank-b"]
    assert client.json("ledger", "import", "--fleet", fleet) == seen
    assert "bank-b" in client.run("ledger", "import", "--fleet", fleet)
    assert "nothing to show" in client.run("ledger", "import", code=2)


def test_a_policy_that_allows_less_counts_before_and_after_a_message_records_it(tmp_path: Path) -> None:
    client = Client(tmp_path)
    client.run("init", *folder(client), "--rounds", "5", "--local-steps", "2", "--accountant", "rdp")
    client.train(1)
    opened = client.json("ledger", "show", *folder(client))
    budget, used = opened["budget"]["epsilon"], opened["guaranteed"]["epsilon"]  # type: ignore[index]
    allowed = used + (budget - used) / 2
    text = client.home.policy.read_text()
    client.home.policy.write_text(re.sub(r"(?m)^((per_run_)?epsilon) = .*", rf"\1 = {allowed!r}", text))
    for _ in range(2):
        shown = client.json("ledger", "show", *folder(client))["budget"]
        assert (shown["epsilon"], shown["policy_epsilon"]) == (budget, allowed)  # type: ignore[index]
        assert allowed - used - 1e-9 < shown["left"] <= allowed - used  # type: ignore[index]
        assert shown["rounds_left"] < opened["budget"]["rounds_left"]  # type: ignore[index]
        for words in (("ledger", "show"), ("statement",)):
            said = " ".join(client.run(*words, *folder(client)).split())
            assert f"; the policy allows {allowed} of the budget of {budget}" in said, words
        client.home.open().close()


def test_a_backup_from_before_the_key_was_replaced_names_the_key_before(client: Client, tmp_path: Path) -> None:
    client.train(1)
    copy = str(tmp_path / "monday.db")
    client.run("ledger", "backup", copy, *folder(client))
    client.run("ledger", "rotate-key", *folder(client))
    client.home.ledger.unlink()
    assert "`rotate-key` left beside it" in client.run("ledger", "restore", copy, *folder(client), code=6)
    (before,) = client.home.key.parent.glob("client-*.pem")
    before.replace(client.home.key)
    client.run("ledger", "restore", copy, *folder(client))


def test_a_key_to_compare_is_64_digits_in_either_case_and_half_of_one_is_not_said_to_be_somebody_elses(
    client: Client,
) -> None:
    known = verify_export(client.home.ledger).books.client_key
    for typed in (known, known.upper()):
        assert client.json("ledger", "verify", *folder(client), "--key", typed)["ok"]
    for typed in (known[:-1], "zz", ""):
        assert "--key must be 64 hexadecimal digits" in client.run(
            "ledger", "verify", *folder(client), "--key", typed, code=2
        )
    assert "somebody else's" in client.run("ledger", "verify", *folder(client), "--key", "0" * 64, code=6)


def test_a_page_is_not_written_over_the_ledger(client: Client) -> None:
    before = client.home.ledger.read_bytes()
    assert "of another kind" in client.run("statement", *folder(client), "--html", str(client.home.ledger), code=2)
    assert client.home.ledger.read_bytes() == before


def test_the_statement_is_text_json_and_html(client: Client, tmp_path: Path) -> None:
    client.train(1)
    before = client.home.ledger.read_bytes()
    page = tmp_path / "statement.html"
    figures = client.json("statement", *folder(client), "--html", str(page))
    assert figures["schema"] == "lrdp-statement/1"
    assert str(figures["ledger"]["head"]).startswith("lrdp-head-2")  # type: ignore[index]
    assert page.read_text().startswith("<!doctype html>")
    assert "right answers in 100" in client.run("statement", *folder(client))
    entry = json.loads(client.run("statement", *folder(client), "--registry"))
    assert entry["entry"]["status"] == "Draft"
    assert "deployment.basic.intended_use" in entry["to_add"]
    assert client.home.ledger.read_bytes() == before


@pytest.mark.parametrize("words", [["ledger", "show"], ["ledger", "verify"], ["statement"]])
def test_without_a_ledger_a_sentence_says_so(tmp_path: Path, words: list[str]) -> None:
    assert "cannot be read" in Client(tmp_path).run(*words, "--folder", str(tmp_path), code=2)


def test_the_rounds_that_are_left_are_those_of_the_servers_share(tmp_path: Path) -> None:
    """A budget that was raised, and a share that was not: every request would be refused as run-quota."""
    client = Client(tmp_path)
    client.run("init", *folder(client), "--rounds", "5", "--local-steps", "2", "--accountant", "rdp")
    client.train(1)
    before = client.json("ledger", "show", *folder(client))
    used = before["guaranteed"]["epsilon"]  # type: ignore[index]
    text = client.home.policy.read_text()
    client.home.policy.write_text(re.sub(r"(?m)^per_run_epsilon = .*", f"per_run_epsilon = {used!r}", text))
    shown = client.json("ledger", "show", *folder(client))["budget"]
    assert (before["budget"]["rounds_left"] > 0, shown["rounds_left"]) == (True, 0)  # type: ignore[index]
