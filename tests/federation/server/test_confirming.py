"""Somebody leaves right after a round that cannot do without its confirmation: what is said, and what is kept.

A round of three whose least roster is three needs all three words before those who were not in it can follow.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from typer.testing import CliRunner

from federation.rotations import rotate, shelf
from federation.worlds import World, initial, world
from lrdp.cli import app
from lrdp.federation import BufferedAverage, RoundReport, RunResult, Terms, VerifiedAverage
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.settling import settled
from lrdp.federation.server.terms import EvaluateFunction, everybody
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.model_files import read_model
from lrdp.federation.wire.questions import Able, Accepted, Closing, OwnTag, read_message
from lrdp.integrity import RoundReceipt
from lrdp.integrity.history import audit_history
from lrdp.ledger import State

LEAVER = "hospital-0"
PAGE = Path(__file__).parents[3] / "docs" / "federation.md"
Start = Callable[[World, int, EvaluateFunction | None], RunResult]


def terms(place: World) -> Terms:
    def others(round_: int, names: Sequence[str]) -> Sequence[str]:
        """The first three, and then the last three."""
        return names[-3:] if round_ else names[:3]

    return Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        min_roster=3,
        arrival=0.5,
        choose=others,
    )


def buffered(place: World, rounds: int, evaluate: EvaluateFunction | None = None) -> RunResult:
    run = BufferedAverage(terms(place), place.reports.append, buffer=3)
    return run.start(place.grid, initial(), num_rounds=rounds, timeout=5, evaluate_fn=evaluate)


def in_step(place: World, rounds: int, evaluate: EvaluateFunction | None = None) -> RunResult:
    run = VerifiedAverage(terms(place), place.reports.append)
    return run.start(place.grid, initial(), num_rounds=rounds, timeout=5, evaluate_fn=evaluate)


both = pytest.mark.parametrize("start", [buffered, in_step])


def left_after_its_tag(folder: Path, count: int = 5, *, excluded: bool = False) -> World:
    """The leaver signs its tag of the first round, and nobody sees it again."""

    def leave(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), OwnTag) and message.metadata.src_node_id == 1:
            place.node(LEAVER).present = False
            if excluded:
                rotate(place, without=[LEAVER])
        return message

    place = world(folder, count, min_roster=3, after=leave)
    return place


def come_back(place: World) -> None:
    place.node(LEAVER).present = True
    place.grid._after = lambda message: message


def charges(place: World) -> list[int]:
    return [len(place.books(name).charges.states) for name in place.names]


@both
def test_the_run_ends_with_what_it_waits_for_and_goes_on_once_that_comes(tmp_path: Path, start: Start) -> None:
    place = left_after_its_tag(tmp_path)
    result = start(place, 3, None)
    assert result.reason == (
        "round 1 was confirmed by 2 of its 3 participants, and whoever was not in it follows once 3 have: hospital-0 "
        "left before that. Bring back all of them, and start again: the session goes on. If that is not possible, "
        "begin a new session from this model, in another folder: docs/federation.md shows how."
    )
    assert place.audit().rounds == 0, "what too few have confirmed proves nothing to an auditor"
    assert all(not report.declined for report in place.reports), "nobody was asked for what it must decline"
    come_back(place)
    assert start(place, 3, None).reason == ""
    assert (place.audit().failure, place.audit().rounds) == (None, 3)


def test_a_confirmation_that_only_a_dead_server_heard_is_heard_again_although_a_registry_came_since(
    tmp_path: Path,
) -> None:
    """It was taken for the word of a client that owes none, and no later round ever had its receipt."""
    place = left_after_its_tag(tmp_path)
    in_step(place, 1)
    rotate(place, without=["hospital-4"])
    in_step(place, 2)

    def die(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), Able) and message.metadata.src_node_id == 1:
            raise KeyboardInterrupt
        return message

    come_back(place)
    place.grid._after = die
    together = VerifiedAverage(replace(terms(place), choose=everybody), place.reports.append)
    with pytest.raises(KeyboardInterrupt):
        together.start(place.grid, None, num_rounds=3, timeout=5)
    come_back(place)
    assert together.start(place.grid, None, num_rounds=4, timeout=5).reason == ""
    assert (place.audit().failure, place.audit().rounds) == (None, sum(report.verified for report in place.reports))


def test_an_auditor_of_the_servers_folder_is_told_what_is_not_in_the_receipts_yet(tmp_path: Path) -> None:
    """It is the server's word alone: whether the receipts hold does not depend on it."""
    place = left_after_its_tag(tmp_path)
    words = ["verify", str(place.consortium.server_folder), "--pin", place.consortium.registry().digest.hex()]

    def audited() -> tuple[str, int]:
        done = CliRunner().invoke(app, words)
        return done.stderr.partition(": ")[2].partition(".")[0], getattr(done.exception, "exit_code", 0)

    in_step(place, 3)
    assert audited() == ("1 round", 5), "and receipts of no round prove nothing"
    rotate(place, without=["hospital-4"])
    in_step(place, 3)
    assert audited() == ("1 round and the registry in force", 5)
    come_back(place)
    assert in_step(place, 3).reason == ""
    assert audited() == ("", 0)
    (receipts,) = place.consortium.server_folder.glob("receipts-*.txt")
    receipts.write_text("\n".join(receipts.read_text().split()[:2]) + "\n")
    assert audited() == ("2 rounds and the registry in force", 0)
    (place.consortium.server_folder / "session.state").write_text("damaged")
    assert audited() == ("", 0)


def test_what_waits_for_a_buffer_is_kept_and_nobody_trains_for_one_that_cannot_fill(tmp_path: Path) -> None:
    place = left_after_its_tag(tmp_path, 6)
    buffered(place, 2)
    assert charges(place) == [1] * 6
    come_back(place)
    buffered(place, 2)
    for name in place.names[3:]:  # what they trained before it all stopped is the second buffer
        assert next(iter(place.books(name).charges.states.values())) == State.SENT
    assert place.audit().participants == dict.fromkeys(place.names, 1)


def test_where_others_are_enough_a_round_does_without_the_word_of_whoever_left(tmp_path: Path) -> None:
    place = left_after_its_tag(tmp_path)
    run = BufferedAverage(terms(place), place.reports.append, buffer=4)
    assert run.start(place.grid, initial(), num_rounds=2, timeout=5).reason == ""
    assert place.audit().rounds == 2


@both
def test_confirmations_are_home_before_a_model_is_evaluated(tmp_path: Path, start: Start) -> None:
    """An evaluation takes as long as it takes: whoever leaves meanwhile has given its word."""
    place = world(tmp_path, 5, min_roster=3)

    def leave(number: int, _arrays: ArrayRecord) -> MetricRecord:
        place.node(LEAVER).present = number == 0
        return MetricRecord({"accuracy": 0.5})

    assert start(place, 2, leave).reason == ""
    assert place.audit().rounds == 2


def away(place: World, *numbers: int) -> None:
    """These are elsewhere, and everybody else is there."""
    for number, node in enumerate(place.grid.nodes.values()):
        node.present = number not in numbers


@both
def test_whoever_leaves_during_an_evaluation_strands_nobody_who_was_away(tmp_path: Path, start: Start) -> None:
    """A round of the least roster needs every word of it, and who needs them is not there yet."""
    place = world(tmp_path, 5, min_roster=3)
    away(place, 3, 4)

    def leave(number: int, _arrays: ArrayRecord) -> MetricRecord:
        away(place, *([0] if number else [3, 4]))
        return MetricRecord({"accuracy": 0.5})

    assert start(place, 3, leave).reason == ""
    assert (place.audit().failure, place.audit().rounds) == (None, 3)
    assert place.audit().participants[LEAVER] == 1


def test_words_are_taken_home_while_too_few_are_there_to_go_on(tmp_path: Path) -> None:
    """The server died with a round just proved: those who are there now need not be there when others come."""
    words: list[int] = []

    def others_come(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), Accepted):
            words.append(message.metadata.src_node_id)
            away(place, *([0, 1] if {1, 2} <= set(words) else [2, 3, 4]))
        return message

    place = world(tmp_path, 5, min_roster=3, after=others_come)
    away(place, 3, 4)

    def power_cut(coordinator: Coordinator, courier: Courier, report: RoundReport) -> RoundReport:
        settled(coordinator, courier, report)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        VerifiedAverage(terms(place), settle=power_cut).start(place.grid, initial(), num_rounds=3, timeout=5)
    away(place, 2, 3, 4)
    assert in_step(place, 3).reason == ""
    assert (place.audit().failure, place.audit().rounds) == (None, 3)


@pytest.mark.parametrize(("members", "asked"), [(3, [3]), (4, [1, 2, 3])])
def test_a_consortium_of_the_least_roster_confirms_with_the_next_question(
    tmp_path: Path, members: int, asked: list[int]
) -> None:
    """Nobody else could need its words, so it pays for no exchange more; the control has one member besides."""
    rounds_of: list[int] = []

    def hear(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), Closing):
            rounds_of.append(int(message.metadata.group_id))
        return message

    place = world(tmp_path, members, min_roster=3, before=hear)
    away(place, 3)
    in_step(place, 3)
    assert place.audit().rounds == 3
    assert sorted(set(rounds_of)) == asked


@both
def test_a_registry_without_whoever_must_confirm_waits_until_it_has(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Else its word could never come, and the session would be over for all."""
    place = left_after_its_tag(tmp_path, excluded=True)
    caplog.set_level(logging.WARNING, "lrdp.server")
    assert "hospital-0 left before that" in start(place, 3, None).reason
    assert "not taken up: a round needs the confirmation of whoever leaves with it" in caplog.text
    come_back(place)
    assert start(place, 3, None).reason == ""
    found = place.audit()
    assert (found.failure, found.rounds, found.participants[LEAVER]) == (None, 3, 1)
    assert found.position is not None
    assert found.position.session.registry.version == 2


@both
def test_a_run_that_ends_with_a_round_too_few_confirmed_says_so(
    tmp_path: Path, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    place = left_after_its_tag(tmp_path, 3)
    caplog.set_level(logging.WARNING, "flwr")
    assert start(place, 1, None).reason == ""
    assert "A receipt is missing: round 1 was confirmed by 2 of its 3 participants" in caplog.text


def shown_in(page: str, language: str) -> str:
    """The code of that language in the section on rounds that lack a confirmation."""
    section = page.partition("### When a round lacks a confirmation")[2].partition("\n## ")[0]
    (code,) = re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)
    return code


def begun_again(place: World, folder: Path, rounds: int, **own: Any) -> RunResult:
    """As the page says, word for word, in a folder that holds the consortium's."""
    page = PAGE.read_text(encoding="utf-8")
    shell = f'set -eu -o pipefail; lrdp() {{ "{sys.executable}" -m lrdp "$@"; }}\n'
    subprocess.run(["bash", "-c", shell + shown_in(page, "bash")], cwd=folder, check=True, capture_output=True)
    known: dict[str, Callable[..., RunResult]] = {}
    exec(shown_in(page, "python"), known)
    return known["begin_again"](replace(terms(place), **own), place.grid, rounds)


def test_a_new_session_in_another_folder_goes_on_from_the_model_and_the_ledgers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The way out that the run's reason names, where whoever must confirm is gone for good."""
    monkeypatch.chdir(tmp_path)
    place = left_after_its_tag(tmp_path, excluded=True)
    assert "begin a new session" in in_step(place, 3).reason
    old, first = place.consortium.server_folder, tmp_path / "consortium" / "server-2"
    (last,) = old.glob("model-*.safetensors")
    before = {path: path.read_bytes() for path in old.iterdir()}
    spent = [place.spent(name) for name in place.names]
    assert begun_again(place, tmp_path, 3).reason == ""
    (receipts,) = first.glob("receipts-*.txt")
    found = audit_history(receipts.read_text().split(), shelf(place).newest(place.consortium.registry()).digest)
    assert (found.failure, found.rounds) == (None, 3)
    assert found.participants == {"hospital-1": 1, "hospital-2": 3, "hospital-3": 3, "hospital-4": 2}
    assert charges(place) == [1, 2, 4, 3, 2], "the ledgers go on, and whoever left pays for nothing more"
    assert [now > then for now, then in zip(map(place.spent, place.names), spent, strict=True)] == [False] + [True] * 4
    _, opening, *_ = receipts.read_text().split()
    assert RoundReceipt.decode(bytes.fromhex(opening)).header.model.hex() == read_model(last).digest
    assert {path: path.read_bytes() for path in old.iterdir()} == before, "the old session is an auditor's"


@pytest.mark.parametrize(("server", "client", "took_part"), [(True, False, 0), (False, True, 0), (False, False, 1)])
def test_a_ledger_that_was_rolled_back_is_found_out_in_the_new_session_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: bool, client: bool, took_part: int
) -> None:
    """By the heads that go along, and by the one that the client keeps itself; the control has neither."""
    monkeypatch.chdir(tmp_path)
    place = left_after_its_tag(tmp_path, excluded=True)
    ledger = place.consortium.client("hospital-1").folder / "ledger.db"
    backup = ledger.read_bytes()
    in_step(place, 3)
    ledger.write_bytes(backup)
    heads = place.consortium.server_folder / "heads.json"
    heads.write_text(heads.read_text() if server else "{}")
    if not client:
        (place.consortium.client("hospital-1").standing / "head").unlink()
    begun_again(place, tmp_path, 1, choose=everybody)
    (receipts,) = (tmp_path / "consortium" / "server-2").glob("receipts-*.txt")
    found = audit_history(receipts.read_text().split(), None)
    assert found.participants.get("hospital-1", 0) == took_part
