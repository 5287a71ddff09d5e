"""Buffers of updates that were trained whenever their owners had time: staleness is recorded, and each is verified."""

import logging
from pathlib import Path

import pytest
from flwr.app import Message

from federation.worlds import TRAINING, World, initial, world
from lrdp.accounting import Budget, Training
from lrdp.errors import InvalidInput, NoVerifiedRound
from lrdp.federation import BufferedAverage, Order, Terms
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.settling import gathered, settled
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import Contributed, OwnTag, TrainedAhead, read_message
from lrdp.ledger import State


def buffered(place: World, buffer: int = 3, arrival: float = 20.0) -> BufferedAverage:
    terms = Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        min_roster=3,
        arrival=arrival,
    )
    return BufferedAverage(terms, place.reports.append, buffer=buffer)


def test_the_server_steps_when_a_buffer_is_full_and_records_how_stale_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = world(tmp_path, 7, min_roster=3)
    with caplog.at_level(logging.INFO, "flwr"):
        buffered(place).start(place.grid, initial(), num_rounds=4, timeout=5)
    assert [len(report.participants) for report in place.reports] == [3] * 4
    assert all(report.verified for report in place.reports)
    assert [max(report.staleness.values()) for report in place.reports] == [0, 1, 2, 2]
    assert place.audit().failure is None
    assert place.audit().rounds == 4
    lines = [record.getMessage() for record in caplog.records if record.name == "flwr"]
    assert lines[0].startswith("Beginning a session in ")
    assert [line.partition(" · ")[0] for line in lines[1:]] == [f"round {number}" for number in (1, 2, 3, 4)]


def test_each_update_is_charged_once_and_takes_part_once(tmp_path: Path) -> None:
    place = world(tmp_path, 6, min_roster=3)
    buffered(place).start(place.grid, initial(), num_rounds=5, timeout=5)
    taken = place.audit().participants
    assert sum(taken.values()) == 15
    for name in place.names:
        states = list(place.books(name).charges.states.values())
        assert states.count(State.SENT) == taken[name]
        assert states.count(State.READY) <= 1  # trained ahead, for a buffer that is not full yet
        assert sum(place.books(name).charges.history.values()) == len(states) * TRAINING.local_steps


def test_an_update_whose_round_failed_waits_and_takes_part_again_for_nothing(tmp_path: Path) -> None:
    mute = iter([True] * 2 + [False] * 100)

    def lose(message: Message) -> Message | None:
        tag = isinstance(read_message(from_message(message)), OwnTag)
        return None if tag and message.metadata.src_node_id == 1 and next(mute) else message

    place = world(tmp_path, 3, after=lose)
    buffered(place).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert [report.verified for report in place.reports] == [False, True]
    assert [len(place.books(name).charges.states) for name in place.names] == [1] * 3


def test_whoever_is_silent_when_a_roster_is_tried_again_has_its_update_still(tmp_path: Path) -> None:
    """It was ordered another, and the updates of the others waited for one that nobody asked for any more."""
    mute, away = iter([True] * 2), iter([False, True])

    def lose(message: Message) -> Message | None:
        answer = read_message(from_message(message))
        if message.metadata.src_node_id != 1:
            return message
        tag, update = isinstance(answer, OwnTag), isinstance(answer, Contributed)
        return None if (tag and next(mute, False)) or (update and next(away, False)) else message

    place = world(tmp_path, 3, after=lose)
    buffered(place).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert [report.problem.partition(":")[0] for report in place.reports] == [
        "hospital-0",  # its tag was lost, twice
        "2 updates, and a round needs 3",  # and then its update
        "",
    ]
    assert [len(place.books(name).charges.states) for name in place.names] == [1] * 3


def test_a_server_that_dies_while_others_train_anew_does_not_ask_the_old_roster_for_these(tmp_path: Path) -> None:
    """Its sum was out already: a second one of it, of other updates, shows everybody what differs."""
    trained = iter(range(100))

    def leave_and_die(message: Message) -> Message | None:
        answer, node = read_message(from_message(message)), message.metadata.src_node_id
        if isinstance(answer, OwnTag) and node == 3:
            place.node("hospital-2").present = False
            return None
        if isinstance(answer, TrainedAhead) and next(trained) == 4:  # after one of each, the first of another
            raise KeyboardInterrupt
        return message

    place = world(tmp_path, 4, min_roster=3, after=leave_and_die)
    started = place.strategy(min_roster=3, patience=0.0, arrival=20.0)._terms
    with pytest.raises(KeyboardInterrupt):
        BufferedAverage(started, place.reports.append, buffer=3).start(place.grid, initial(), num_rounds=1, timeout=20)
    assert [report.participants for report in place.reports] == [tuple(place.names[:3])]
    place.node("hospital-2").present = True
    place.grid._after = lambda message: message
    BufferedAverage(started, place.reports.append, buffer=3).start(place.grid, None, num_rounds=1, timeout=20)
    assert "update-spent" not in [word for report in place.reports for word in report.declined.values()]
    assert place.audit().failure is None


def test_an_update_whose_answer_was_lost_is_not_paid_for_again_although_rounds_went_on(tmp_path: Path) -> None:
    lost = iter([True])

    def lose(message: Message) -> Message | None:
        ahead = isinstance(read_message(from_message(message)), TrainedAhead)
        return None if ahead and message.metadata.src_node_id == 1 and next(lost, False) else message

    place = world(tmp_path, 4, min_roster=3, after=lose)
    buffered(place).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert place.reports[0].participants == tuple(place.names[1:])
    buffered(place).start(place.grid, num_rounds=3, timeout=5)  # a server that knows nothing of what it missed
    first = next(report for report in place.reports if "hospital-0" in report.participants)
    assert first.staleness["hospital-0"] == 1
    states = list(place.books("hospital-0").charges.states.values())
    assert states[0] is State.SENT
    assert states.count(State.SENT) == place.audit().participants["hospital-0"]


def test_the_slow_join_a_later_buffer_and_the_absent_hold_nobody_up(tmp_path: Path) -> None:
    place = world(tmp_path, 5)
    place.node("hospital-4").present = False
    buffered(place, 4).start(place.grid, initial(), num_rounds=2, timeout=5)
    assert "hospital-4" not in place.audit().participants
    assert len(place.books("hospital-4").charges.states) == 0


def test_a_spent_client_is_left_alone_and_too_few_is_said_in_one_sentence(tmp_path: Path) -> None:
    short = Training(dataset_size=100, batch_size=8, rounds=1, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-5))
    place = world(tmp_path, 3, trainings={"hospital-0": short})
    result = buffered(place).start(place.grid, initial(), num_rounds=3, timeout=5)
    assert result.reason == (
        "2 of 3 members have budget left, and a round needs 3; hospital-0 (budget) declined for the rest of this run."
    )
    # Two others could have trained for a buffer that never fills: nobody was asked to.
    assert [len(place.books(name).charges.states) for name in place.names] == [1] * 3
    assert place.audit().rounds == 1


def test_buffers_that_do_not_come_together_end_the_run(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    for name in place.names[:2]:
        place.node(name).present = False
    with pytest.raises(NoVerifiedRound, match=r"no buffer of 3 came together in 0\.5 seconds.*0 are verified"):
        buffered(place, arrival=0.5).start(place.grid, initial(), num_rounds=3, timeout=5)
    assert [len(place.books(name).charges.states) for name in place.names] == [0] * 4


def test_a_buffer_of_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="buffer must be at least 3, got 2"):
        buffered(world(tmp_path, 3), 2)


def test_an_update_that_took_part_in_a_verified_round_is_not_given_again(tmp_path: Path) -> None:
    """Whatever the server asks: else one client's update could count in every round."""
    place = world(tmp_path, 3)
    terms = Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
    )
    coordinator = terms.open(initial())
    courier = Courier(place.grid, coordinator, 5)
    names = courier.present()
    for name, done in courier.exchange({name: coordinator.order_ahead(name, Order()) for name in names}).items():
        assert isinstance(done, TrainedAhead)
        coordinator.reached(name, done.head)
    report = gathered(coordinator, courier.exchange(coordinator.invite(names, None)))
    assert settled(coordinator, courier, report).verified
    again = courier.exchange(coordinator.invite(names, None))
    assert [getattr(answer, "code", answer) for answer in again.values()] == ["behind"] * 3


def test_nothing_of_an_update_leaves_before_its_round(tmp_path: Path) -> None:
    early: list[Message] = []

    def watch(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), TrainedAhead):
            early.append(message)
        return message

    place = world(tmp_path, 4, after=watch)
    buffered(place).start(place.grid, initial(), num_rounds=2, timeout=5)
    assert early
    sizes = [from_message(message).sizes for message in early]
    assert all(len(parts) == 1 for parts in sizes), "a prefix, and no vector"


def test_whoever_loses_its_place_while_its_update_waits_trains_another_and_the_buffer_fills(tmp_path: Path) -> None:
    """It cannot know whether that update was shown; giving it out again, it would be declined for ever."""
    lost: list[Path] = []

    def lose_place(message: Message) -> Message:
        if isinstance(read_message(from_message(message)), TrainedAhead) and message.metadata.src_node_id == 1:
            state = place.consortium.client("hospital-0").standing / "state"
            if not lost:
                state.unlink()
                lost.append(state)
        return message

    place = world(tmp_path, 3, after=lose_place)
    buffered(place).start(place.grid, initial(), num_rounds=1, timeout=5)
    assert place.reports[-1].verified
    assert [len(place.books(name).charges.states) for name in place.names] == [2, 1, 1]
    assert place.audit().rounds == 1
