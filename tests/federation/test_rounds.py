"""Rounds among clients that come and go, on a grid that serialises for real: who pays, who verifies, who can follow."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message

from federation.worlds import TRAINING, World, hospitals, initial, model, records, reopened, sampled, world
from lrdp.accounting import Budget, Mechanism, RenyiAccountant, SampledGaussian, Training
from lrdp.errors import InvalidInput, NoVerifiedRound
from lrdp.federation import Order
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.questions import (
    Announcement,
    Answer,
    Contributed,
    Decline,
    Here,
    OwnTag,
    Work,
    read_message,
    to_frame,
)
from lrdp.integrity import SketchClient, Verdict, sketch_client
from lrdp.integrity.checks import Seen
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.schemes import TagValues
from lrdp.ledger import Refusal, State
from lrdp.training import verification


def charges(place: World, name: str) -> int:
    return len(place.books(name).charges.states)


def test_everybody_trains_pays_and_verifies_and_an_auditor_agrees(tmp_path: Path) -> None:
    place = world(tmp_path)
    result = place.run(3)
    assert [report.verified for report in place.reports] == [True] * 3
    assert [charges(place, name) for name in place.names] == [3] * 4
    found = place.audit()
    assert found.failure is None
    assert found.rounds == 3
    assert found.participants == dict.fromkeys(place.names, 3)
    before, after = initial(), result.arrays
    assert any(not np.array_equal(before[name].numpy(), after[name].numpy()) for name in before)


def test_the_model_is_the_mean_of_what_the_clients_released(tmp_path: Path) -> None:
    """The oracle reads the updates off the wire and averages them in floating point."""
    seen: list[np.ndarray] = []

    def watch(message: Message) -> Message:
        answer = read_message(from_message(message))
        if isinstance(answer, Contributed) and answer.values:
            triples = np.frombuffer(answer.values, np.uint8).reshape(-1, 3).astype(np.int64)
            whole = triples @ np.array([1, 1 << 8, 1 << 16])
            seen.append(np.where(whole >= 1 << 23, whole - (1 << 24), whole) / 2.0**20)
        return message

    result = world(tmp_path, after=watch).run(1)
    flat = np.concatenate([array.numpy().reshape(-1) for array in initial().values()])
    ended = np.concatenate([array.numpy().reshape(-1) for array in result.arrays.values()])
    np.testing.assert_allclose(ended, flat + np.mean(seen, axis=0), atol=1e-6)


def test_each_client_is_charged_for_exactly_its_own_steps(tmp_path: Path) -> None:
    place = world(tmp_path, 7)
    place.run(6, choose=sampled(random.Random(3), 4))
    taken = place.audit().participants
    for name in place.names:
        assert charges(place, name) == taken.get(name, 0)
        with place.consortium.client(name).ledger() as ledger:
            steps = taken.get(name, 0) * TRAINING.local_steps
            history: dict[Mechanism, int] = {ledger.policy.mechanism.costliest: steps} if steps else {}
            assert dict(ledger.books.charges.history) == history
            tightest = RenyiAccountant(adjacency=ledger.policy.budget.adjacency).epsilon(history, 1e-5).epsilon
            assert tightest <= ledger.answer().spent.epsilon <= 8.0


def test_a_client_that_was_absent_joins_with_receipts(tmp_path: Path) -> None:
    place = world(tmp_path, 5)
    place.node("hospital-4").present = False

    def arrives(round_: int, present: list[str]) -> list[str]:
        place.node("hospital-4").present = round_ >= 1
        return present

    place.run(5, choose=arrives)
    assert all(report.verified for report in place.reports)
    assert place.audit().participants["hospital-4"] == 3
    assert charges(place, "hospital-4") == 3


def test_who_leaves_before_publishing_is_not_in_the_roster_and_the_round_goes_on(tmp_path: Path) -> None:
    lost: list[str] = []

    def lose(message: Message) -> Message | None:
        answer = read_message(from_message(message))
        if isinstance(answer, Contributed) and not lost:
            lost.append("one")
            return None
        return message

    place = world(tmp_path, 4, after=lose)
    place.run(3)
    assert [len(report.participants) for report in place.reports] == [3, 4, 4]
    assert all(report.verified for report in place.reports)
    assert place.reports[0].declined == {"hospital-0": "silent"}
    # It trained and released: the charge stands, though the server never got the update.
    assert charges(place, "hospital-0") == 3


def test_a_lost_tag_is_asked_for_again(tmp_path: Path) -> None:
    lost: list[str] = []

    def lose(message: Message) -> Message | None:
        if isinstance(read_message(from_message(message)), OwnTag) and not lost:
            lost.append("one")
            return None
        return message

    place = world(tmp_path, 3, after=lose)
    place.run(2)
    assert [report.verified for report in place.reports] == [True, True]


def test_a_round_that_cannot_be_proved_is_repeated_with_the_same_updates_for_nothing(tmp_path: Path) -> None:
    silent = iter([True] * 2 + [False] * 100)

    def mute(message: Message) -> Message | None:
        tag = isinstance(read_message(from_message(message)), OwnTag)
        return None if tag and message.metadata.src_node_id == 2 and next(silent) else message

    place = world(tmp_path, 4, after=mute)
    place.run(3)
    assert [report.verified for report in place.reports] == [False, True, True]
    assert "no tag of hospital-1" in place.reports[0].problem or "silent" in place.reports[0].problem
    # Three attempts, two rounds, two charges: the outbox answered the second attempt.
    assert [charges(place, name) for name in place.names] == [2] * 4
    assert place.audit().rounds == 2


def test_a_spent_client_refuses_and_is_not_asked_again(tmp_path: Path) -> None:
    short = Training(dataset_size=100, batch_size=8, rounds=2, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-5))
    place = world(tmp_path, 4, trainings={"hospital-2": short})
    place.run(5)
    assert charges(place, "hospital-2") == 2
    assert [report.declined for report in place.reports] == [{}, {}, {"hospital-2": "budget"}, {}, {}]
    assert all(report.verified for report in place.reports)
    assert place.books("hospital-2").refusals.by_reason[Refusal.BUDGET] == 1
    assert place.spent("hospital-2") <= 8.0


def test_too_few_clients_is_said_in_one_sentence(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    for name in place.names[:2]:
        place.node(name).present = False
    with pytest.raises(NoVerifiedRound, match=r"2 connected clients .* a round needs 3"):
        place.strategy(arrival=0.1).start(place.grid, initial(), num_rounds=1, timeout=5)


def test_a_second_folder_has_a_session_of_its_own_on_the_same_budget(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(2)
    half = place.spent("hospital-0")
    place.run(2, folder=place.another_folder())
    assert charges(place, "hospital-0") == 4
    assert place.spent("hospital-0") > half
    assert place.audit().rounds == 2


def test_a_client_that_lost_its_place_is_shown_the_history_again(tmp_path: Path) -> None:
    place = world(tmp_path, 4)

    def forgets(round_: int, present: list[str]) -> list[str]:
        if round_ == 2:
            for path in (place.consortium.client("hospital-3").folder / "session").glob("state*"):
                path.unlink()
        return present

    place.run(5, choose=forgets)
    assert [sorted(report.declined.items()) for report in place.reports] == [
        [], [], [("hospital-3", "behind")], [], [],
    ]  # fmt: skip
    assert place.audit().participants == {**dict.fromkeys(hospitals(3), 5), "hospital-3": 4}


def test_a_backup_restored_behind_the_servers_back_is_noticed(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    ledger = place.consortium.client("hospital-1").folder / "ledger.db"
    saved: list[bytes] = []

    def restores(round_: int, present: list[str]) -> list[str]:
        if round_ == 1:
            saved.append(ledger.read_bytes())
        if round_ == 2:
            ledger.write_bytes(saved[0])
        return present

    place.run(4, choose=restores)
    assert [report.declined.get("hospital-1") for report in place.reports] == [None, None, "ledger", "ledger"]


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (Order(noise_multiplier=0.01), "noise"),
        (Order(steps=4), "steps"),
        (Order(batch_size=9), "batch-size"),
        (Order(clip_norm=1.5), "clip-norm"),
    ],
)
def test_what_the_policy_forbids_is_declined_with_its_reason_and_costs_nothing(
    tmp_path: Path, order: Order, code: str
) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(NoVerifiedRound, match="without a verified round, so there is no model"):
        place.run(1, order=order)
    assert place.reports[0].declined == dict.fromkeys(place.names, code)
    assert [charges(place, name) for name in place.names] == [0] * 3


def test_a_stricter_order_is_obeyed(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.run(1, order=Order(steps=2, batch_size=4, noise_multiplier=20.0, clip_norm=0.5, learning_rate=0.01))
    ((mechanism, steps),) = place.books("hospital-0").charges.history.items()
    assert isinstance(mechanism, SampledGaussian)
    assert (steps, mechanism.batch_size, mechanism.noise_multiplier) == (2, 4, 20.0)


def test_flower_train_config_is_an_order(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    place.strategy().start(place.grid, initial(), num_rounds=1, timeout=5, train_config=ConfigRecord({"steps": 1}))
    assert list(place.books("hospital-0").charges.history.values()) == [1]
    with pytest.raises(InvalidInput, match="an order has no local_epochs"):
        place.strategy().start(place.grid, initial(), num_rounds=1, train_config=ConfigRecord({"local-epochs": 1}))


def test_an_altered_aggregate_is_caught_by_every_client_and_moves_nobody(tmp_path: Path) -> None:
    """By the network or the server: one coordinate, by one quantum."""

    def alter(message: Message) -> Message:
        question = read_message(from_message(message))
        if isinstance(question, Announcement):
            body = bytearray(question.aggregate or b"")
            body[0] ^= 1
            message.content = to_records(to_frame(Announcement(publish=question.publish, aggregate=bytes(body))))
        return message

    place = world(tmp_path, 3, before=alter)
    with pytest.raises(NoVerifiedRound):
        place.run(1)
    assert not place.reports[0].verified
    assert Verdict.SERVER_SIG.value in place.reports[0].problem
    assert place.audit().rounds == 0


def test_replies_hold_the_listed_fields_and_nothing_else(tmp_path: Path) -> None:
    kinds: set[str] = set()

    def watch(message: Message) -> Message:
        assert list(message.content) == ["lrdp"]
        answer = read_message(from_message(message))
        kinds.add(type(answer).__name__)
        assert to_records(to_frame(answer)) == message.content
        return message

    world(tmp_path, 3, after=watch).run(2)
    assert kinds == {"Here", "Able", "Contributed", "OwnTag", "Accepted"}


def test_released_bytes_are_those_of_the_outbox(tmp_path: Path) -> None:
    sent: list[bytes] = []

    def watch(message: Message) -> Message:
        answer = read_message(from_message(message))
        if isinstance(answer, Contributed) and message.metadata.src_node_id == 1:
            sent.append(bytes(answer.values or b""))
        return message

    place = world(tmp_path, 3, after=watch)
    place.run(2)
    with place.consortium.client("hospital-0").ledger() as ledger:
        states = ledger.books.charges.states
        replies = [ledger.reply_of(charge) for charge in states]
        assert [reply.body for reply in replies if reply is not None] == sent
        assert set(states.values()) == {State.SENT}


def test_a_work_message_that_is_sent_again_after_its_round_is_declined_and_costs_nothing_more(tmp_path: Path) -> None:
    works: list[Message] = []

    def keep(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), Work) and message.metadata.dst_node_id == 1:
            works.append(message)
        return message

    place = world(tmp_path, 3, before=keep)
    place.run(1)
    node = place.node("hospital-0")
    first = read_message(from_message(node.app(works[0], place.grid.context_of(1))))
    assert isinstance(first, Decline)
    assert first.code == "server-sig"  # the round is over here, and the order was signed for that one
    assert charges(place, "hospital-0") == 1


def test_worlds_are_honest(tmp_path: Path) -> None:
    """The clouds can be learned, so that a test which trains nothing would show."""
    assert len(records({"partition-id": 0})) == 120
    assert sum(parameter.numel() for parameter in model().parameters()) == 10


def answering_with(make: Callable[[Any], Answer]) -> Callable[[Message], Message]:
    """A client that lies, as the server sees it."""

    def lie(message: Message) -> Message:
        answer = read_message(from_message(message))
        if message.metadata.src_node_id == 4:
            message.content = to_records(to_frame(make(answer)))
        return message

    return lie


@pytest.mark.parametrize(
    "make",
    [
        lambda answer: replace(answer, name="nobody") if isinstance(answer, Here) else answer,
        lambda answer: replace(answer, name="hospital-0") if isinstance(answer, Here) else answer,
        lambda answer: replace(answer, accept=b"\xff" * 9) if isinstance(answer, Contributed | Here) else answer,
        lambda answer: replace(answer, update=b"\x03garbage") if isinstance(answer, Contributed) else answer,
        lambda answer: (
            replace(answer, values=bytes(answer.values or b"")[:-1]) if isinstance(answer, Contributed) else answer
        ),
        lambda answer: replace(answer, values=b"\x01" * 30) if isinstance(answer, Contributed) else answer,
        lambda answer: replace(answer, head="no head") if isinstance(answer, Contributed) else answer,
        lambda answer: OwnTag(tag=b"") if isinstance(answer, Contributed) else answer,
        lambda answer: Decline(code="made-up") if isinstance(answer, Contributed) else answer,
    ],
)
def test_a_lying_client_cannot_stop_the_server(tmp_path: Path, make: Callable[[Answer], Answer]) -> None:
    """What it sends is left out or does no harm; the others go on, and what is on record verifies."""
    place = world(tmp_path, 5, after=answering_with(make))
    place.run(3)
    assert any(report.verified for report in place.reports)
    assert place.audit().failure is None
    assert place.audit().rounds >= 1


@pytest.mark.parametrize("believed", [False, True])
def test_nobody_takes_the_place_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, believed: bool) -> None:
    """The liar answers later and signs with its own keys; the control believes any name.

    One round: before the next, whoever lost its name is greeted again, and takes it back.
    """
    if believed:
        monkeypatch.setattr("lrdp.federation.server.coordinator.Coordinator.knows", lambda coordinator, here: True)
    make = lambda answer: replace(answer, name="hospital-0") if isinstance(answer, Here) else answer  # noqa: E731
    place = world(tmp_path, 5, after=answering_with(make))
    place.run(1)
    assert charges(place, "hospital-0") == (0 if believed else 1)
    assert charges(place, "hospital-1") == 1


def test_a_client_that_frames_the_server_is_found_before_the_model_moves(tmp_path: Path) -> None:
    """A well-signed wrong tag: the masks cancel, so the server sees what every client would see."""

    class Framing(SketchClient):
        def answer(self, seen: Seen, values: np.ndarray) -> TagValues:
            honest = super().answer(seen, values)
            return TagValues((honest.value + 1) % MERSENNE_127.prime, honest.expected)

    place = world(tmp_path, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lrdp.federation.client.catching_up.sketch_client",
            lambda identity, session: (Framing if identity.name == "hospital-2" else SketchClient)(
                pairwise=sketch_client(identity, session).pairwise
            ),
        )
        patch.setattr(
            "lrdp.integrity.states._client_scheme",
            lambda session, identity, data: (Framing if identity.name == "hospital-2" else SketchClient)(
                pairwise=sketch_client(identity, session).pairwise
            ),
        )
        with pytest.raises(NoVerifiedRound):
            place.run(1)
    assert not place.reports[0].verified
    assert "sum-mismatch" in place.reports[0].problem
    assert place.audit().rounds == 0


def test_each_client_checks_its_gradients_once_and_on_weights_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else every update would pay for the check, and the server would choose the weights that it is made on."""
    seen = []
    genuine = verification._why_inexact

    def watched(exact: Any, task: Any, *given: Any) -> Any:
        seen.append(torch.cat([value.flatten() for value in task.model.state_dict().values()]))
        return genuine(exact, task, *given)

    monkeypatch.setattr(verification, "_why_inexact", watched)
    world(tmp_path, 3)
    here = reopened(tmp_path, 3)
    here.run(rounds=3)
    assert [report.verified for report in here.reports] == [True] * 3
    sent = torch.cat([torch.from_numpy(value).flatten() for value in initial().to_numpy_ndarrays()])
    assert len(seen) == 3
    assert not any(torch.equal(weights, sent) for weights in seen)
