"""Before anybody is charged the server asks who can take part; where too few can, the run ends with its last model."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from flwr.app import Message

from federation.hostile import Stage
from federation.worlds import TRAINING, World, initial, world
from lrdp.errors import NoVerifiedRound
from lrdp.federation import ExactRounds, Order
from lrdp.federation.client.forwarding import NO_GUARD
from lrdp.federation.client.standing import MOST_ORDERS_PER_ROUND
from lrdp.federation.local.in_process import Alter
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.questions import Able, CanYou, Decline, Work, read_message, to_frame
from lrdp.federation.wire.signing import sign_order
from lrdp.ledger import Home, SigningKey, end_participation

SHORT = replace(TRAINING, rounds=2)


def charges(place: World) -> list[int]:
    return [len(place.books(name).charges.states) for name in place.names]


def test_one_of_three_is_spent_so_nobody_is_charged_and_the_run_ends_with_the_last_model_and_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = world(tmp_path, 3, trainings={"hospital-1": SHORT})
    with caplog.at_level(logging.INFO, "flwr"):
        result = place.run(5)
    assert charges(place) == [2] * 3
    assert [report.verified for report in place.reports] == [True, True, False]
    assert place.reports[2].declined == {"hospital-1": "budget"}
    assert "nobody was charged" in place.reports[2].problem
    assert result.reason.startswith("2 of 3 members have budget left, and a round needs 3; hospital-1 (budget)")
    assert any(array.numpy().any() for array in result.arrays.values())
    # Every receipt has its quorum, the last one too.
    found = place.audit()
    assert (found.failure, found.rounds) == (None, 2)
    lines = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert sum(line.startswith("round 1 · 3 took part · verified") for line in lines) == 1
    assert any("declined: hospital-1 (budget)" in line for line in lines)
    assert lines[-1].startswith("The run ends with the model of round 2: 2 of 3 members")
    logged = [json.loads(line) for line in (place.consortium.server_folder / "rounds.jsonl").read_text().splitlines()]
    assert [record["verified"] for record in logged] == [True, True, False]


def test_nodes_that_are_there_and_decline_the_session_are_named_with_why_where_a_run_ends_without_them(
    tmp_path: Path,
) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(NoVerifiedRound, match=r"3 more nodes are connected and not in the session \(3 × scheme\)"):
        place.strategy(scheme=ExactRounds(), arrival=0.1).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert charges(place) == [0] * 3


def test_nodes_that_answer_as_one_hospital_are_told_apart_from_those_that_are_silent(tmp_path: Path) -> None:
    """One policy, or one guard's socket, in the settings of several nodes."""
    place = world(tmp_path, 3)
    place.grid.nodes = dict.fromkeys((1, 2, 3), place.grid.nodes[1])
    with pytest.raises(NoVerifiedRound, match=r"not in the session \(2 × a newer node answers as hospital-0\)"):
        place.run(1, arrival=0.1)
    assert charges(place) == [0] * 3


def test_a_client_whose_budget_is_not_open_yet_enters_no_session_and_joins_it_once_it_is(tmp_path: Path) -> None:
    """Entered, its place would pass for that of a lost ledger, and `lrdp init` would open none."""
    place = world(tmp_path, 3)
    home = place.consortium.client("hospital-1").folder
    opened = {name: (home / name).rename(tmp_path / Path(name).name) for name in ("ledger.db", "keys/client.pem")}
    with pytest.raises(NoVerifiedRound, match=r"not in the session \(1 × invalid\)"):
        place.run(1, arrival=0.1)
    assert [path.name for path in (home / "session").iterdir()] == ["lock"]
    for name, aside in opened.items():
        aside.rename(home / name)
    place.run(1)
    assert charges(place) == [1] * 3


def test_all_are_spent_at_once_which_is_the_normal_end(tmp_path: Path) -> None:
    place = world(tmp_path, 3, trainings=dict.fromkeys(["hospital-0", "hospital-1", "hospital-2"], SHORT))
    result = place.run(9)
    assert place.audit().rounds == 2
    assert len(place.reports) == 3
    assert result.reason.startswith("0 of 3 members")


def test_a_run_without_a_verified_round_says_so_and_returns_nothing(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(NoVerifiedRound, match="so there is no model to return") as ended:
        place.run(2, order=Order(noise_multiplier=0.01))
    assert ended.value.exit_code == 5
    assert charges(place) == [0] * 3


def without_guard(calls: int) -> Alter:
    """The app of the first hospital says so often that no guard answers, when it is asked whether it can."""
    left = iter(range(calls))

    def alter(message: Message) -> Message:
        answer = read_message(from_message(message))
        if message.metadata.src_node_id == 1 and isinstance(answer, Able) and next(left, None) is not None:
            message.content = to_records(to_frame(Decline(code=NO_GUARD)))
        return message

    return alter


def test_a_round_waits_for_a_guard_that_is_being_started_and_spends_no_attempt(tmp_path: Path) -> None:
    place = world(tmp_path, 3, after=without_guard(2))
    place.run(1)
    assert [report.verified for report in place.reports] == [True]
    assert charges(place) == [1] * 3


def test_a_guard_that_does_not_come_ends_the_run_with_the_reason_and_another_goes_on(tmp_path: Path) -> None:
    place = world(tmp_path, 3, after=without_guard(9))
    with pytest.raises(NoVerifiedRound, match=r"declined: hospital-0 \(no-guard\)\. Start what is missing"):
        place.run(2, arrival=0.9)
    assert (charges(place), place.reports) == ([0] * 3, [])
    place.run(2, arrival=30.0)
    assert [report.verified for report in place.reports] == [True, True]


def test_a_ledger_that_stopped_ends_the_run_with_the_reason_and_takes_no_attempt_from_when_it_is_mended(
    tmp_path: Path,
) -> None:
    place = world(tmp_path, 3)
    place.run(2)
    ledger = Home(folder=place.consortium.client("hospital-1").folder).ledger
    before = ledger.read_bytes()
    place.run(3)
    newest = ledger.read_bytes()
    ledger.write_bytes(before)
    stopped = place.run(12)
    assert [report.declined for report in place.reports[3:]] == [{"hospital-1": "ledger"}]
    assert "a round needs 3, and hospital-1 (ledger) declined" in stopped.reason
    ledger.write_bytes(newest)
    assert place.run(6).reason == ""
    assert [report.verified for report in place.reports] == [True] * 3 + [False, True, True]


def test_where_others_could_be_chosen_two_attempts_in_vain_do_not_end_the_run(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    place.run(1)
    ledger = Home(folder=place.consortium.client("hospital-2").folder).ledger
    before = ledger.read_bytes()
    place.run(2)
    ledger.write_bytes(before)
    left_out = iter(["hospital-3", "hospital-3", "hospital-2"])

    def chosen(_round: int, names: Sequence[str]) -> Sequence[str]:
        one = next(left_out)
        return [name for name in names if name != one]

    assert place.run(5, choose=chosen).reason == ""
    assert [report.declined for report in place.reports[2:]] == [{"hospital-2": "ledger"}] * 2 + [{}]
    assert place.reports[-1].verified


def test_whoever_ended_its_participation_is_not_asked_again_and_the_run_of_too_few_says_why(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    place.run(1)
    for name, attempts in (("hospital-0", 3), ("hospital-2", 9)):
        home = Home(folder=place.consortium.client(name).folder)
        with home.open() as ledger:
            end_participation(ledger, "the study has ended", SigningKey.read(home.administrator))
        result = place.run(attempts)
    assert [report.declined for report in place.reports] == [
        *({}, {"hospital-0": "closed"}, {}),
        {"hospital-0": "closed", "hospital-2": "closed"},
    ]
    assert "hospital-0 (closed), hospital-2 (closed) declined" in result.reason
    assert charges(place) == [1, 3, 3, 3]


def test_everybody_is_asked_once_in_a_round(tmp_path: Path) -> None:
    asked: Counter[tuple[int, bytes]] = Counter()

    def count(message: Message) -> Message:
        question = read_message(from_message(message))
        if isinstance(question, CanYou):
            asked[message.metadata.dst_node_id, question.signature] += 1
        return message

    place = world(tmp_path, 4, before=count, trainings={"hospital-2": SHORT})
    place.run(4)
    assert set(asked.values()) == {1}
    assert sorted(Counter(node for node, _ in asked).items()) == [(1, 4), (2, 4), (3, 3), (4, 4)]


def question(stage: Stage, order: Order) -> CanYou:
    position, asked = stage.coordinator._idle.position, order.encode()
    return CanYou(order=asked, signature=sign_order(stage.coordinator._idle.identity, position, asked))


def test_the_answer_is_the_refusal_that_the_work_would_meet_and_nothing_is_charged(settled: Stage) -> None:
    name = settled.names[0]
    before = len(settled.world.books(name).charges.states)
    assert isinstance(settled.ask(question(settled, Order()), name), Able)
    for order, code in ((Order(noise_multiplier=0.01), "noise"), (Order(steps=4), "steps")):
        answer = settled.ask(question(settled, order), name)
        assert isinstance(answer, Decline)
        assert answer.code == code
    unsigned = replace(question(settled, Order()), signature=bytes(64))
    forged = settled.ask(unsigned, name)
    assert isinstance(forged, Decline)
    assert forged.code == "server-sig"
    assert len(settled.world.books(name).charges.states) == before


def test_a_server_cannot_try_orders_until_it_knows_the_budget(settled: Stage) -> None:
    name = settled.names[1]
    codes = [settled.ask(question(settled, Order(steps=1, noise_multiplier=50.0 + n)), name) for n in range(9)]
    said = [type(answer).__name__ for answer in codes]
    assert said == ["Able"] * MOST_ORDERS_PER_ROUND + ["Decline"] * (9 - MOST_ORDERS_PER_ROUND)
    assert {answer.code for answer in codes if isinstance(answer, Decline)} == {"recharge"}


def test_no_work_is_sent_to_whoever_would_decline_it(tmp_path: Path) -> None:
    worked: Counter[int] = Counter()

    def count(message: Message) -> Message:
        worked[message.metadata.dst_node_id] += isinstance(read_message(from_message(message)), Work)
        return message

    place = world(tmp_path, 4, before=count, trainings={"hospital-3": SHORT})
    place.run(4)
    assert [worked[node] for node in (1, 2, 3, 4)] == [4, 4, 4, 2]
    assert place.books("hospital-3").refusals.by_reason
