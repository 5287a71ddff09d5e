"""The office's days: cards that are not what they seem, steps that are forgotten, and registries that are in force."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import RegistryShelf, read_registry

from .test_integrity import consortium, failed, member_card, run

__all__ = ["consortium"]


@pytest.fixture
def signed(tmp_path: Path, consortium: Path) -> Path:
    path = tmp_path / "registry.json"
    run("registry", "new", path, "--key", consortium)
    run("registry", "add", path, *(member_card(tmp_path, name) for name in "abc"))
    assert run("registry", "sign", path, "--key", consortium).exit_code == 0
    return path


def test_of_many_cards_the_one_that_cannot_be_read_is_named(tmp_path: Path, signed: Path) -> None:
    before, wrong = signed.read_bytes(), tmp_path / "hospital-7.json"
    for text in ("", "[]", "no card", '{"name": "d"}'):
        wrong.write_text(text)
        failed(run("registry", "add", signed, member_card(tmp_path, "d"), wrong), NotVerified, f"{wrong} is no card: ")
        failed(run("registry", "verify", wrong), NotVerified, f"{wrong} is no registry: ")
    assert signed.read_bytes() == before


def test_a_signature_that_was_forgotten_is_named_where_it_is_missed(
    tmp_path: Path, signed: Path, consortium: Path
) -> None:
    RegistryShelf(tmp_path / "server").put(read_registry(signed.read_text()))
    following = tmp_path / "next.json"
    run("registry", "new", following, "--key", consortium, "--after", signed)
    said = f"{following} is not signed, or was changed since: `lrdp registry sign` it"
    failed(run("registry", "rotate", following, "--server", tmp_path / "server"), NotVerified, said)
    after_it = ("registry", "new", tmp_path / "third.json", "--key", consortium, "--after", following)
    failed(run(*after_it), NotVerified, said)
    assert run("registry", "sign", following, "--key", consortium).exit_code == 0
    assert run(*after_it).exit_code == 0


def test_the_card_of_the_old_keys_replaces_nothing_and_of_two_new_ones_none_is_chosen(
    tmp_path: Path, signed: Path
) -> None:
    before, old = signed.read_bytes(), member_card(tmp_path, "a")
    failed(run("registry", "replace-key", signed, old), InvalidInput, "these very keys of a", "nothing was written")
    new = [member_card(tmp_path, "a", generation) for generation in (1, 2)]
    failed(run("registry", "replace-key", signed, *new), InvalidInput, "two of these cards", "nothing was written")
    assert signed.read_bytes() == before
    assert "Replaced the keys of a." in run("registry", "replace-key", signed, new[0], new[0]).stderr


@pytest.mark.parametrize("indent", [None, 2, 4])
def test_a_registry_that_an_editor_laid_out_anew_is_signed_and_changed_as_before(
    tmp_path: Path, signed: Path, consortium: Path, indent: int | None
) -> None:
    before = read_registry(signed.read_text())
    signed.write_text(json.dumps(json.loads(signed.read_text()), indent=indent))
    assert run("registry", "sign", signed, "--key", consortium).exit_code == 0
    assert read_registry(signed.read_text()) == before
    signed.write_text(json.dumps(json.loads(signed.read_text()), indent=indent))
    assert run("registry", "add", signed, member_card(tmp_path, "d")).exit_code == 0


def test_a_change_of_what_was_signed_says_that_a_registry_in_use_has_a_next_version(
    tmp_path: Path, signed: Path
) -> None:
    assert "begin the next version" in run("registry", "remove", signed, "a", "a").stderr
    assert "begin the next version" not in run("registry", "add", signed, member_card(tmp_path, "a")).stderr


def test_a_server_that_has_yet_to_begin_is_handed_the_first_registry_and_then_the_next(
    tmp_path: Path, signed: Path, consortium: Path
) -> None:
    following, server = tmp_path / "next.json", tmp_path / "server"
    server.mkdir()
    run("registry", "new", following, "--key", consortium, "--after", signed)
    run("registry", "add", following, member_card(tmp_path, "d"))
    run("registry", "sign", following, "--key", consortium)
    handed_over = ("registry", "rotate", following, "--server", server)
    failed(run(*handed_over), InvalidInput, "first registry there as registry-00001.json")
    (server / "registry-00001.json").write_bytes(signed.read_bytes())
    assert run(*handed_over).exit_code == 0
    assert RegistryShelf(server).last() == read_registry(following.read_text())
