"""A round has one time for all of its exchanges; a client that hangs, wherever it does, takes no more than that."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from flwr.app import Message

from federation.worlds import World, initial, world
from lrdp.errors import InvalidInput
from lrdp.federation import BufferedAverage, InProcessGrid, Terms
from lrdp.federation.server.round_clock import RoundClock
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import (
    Announcement,
    CanYou,
    Closing,
    Contribute,
    Count,
    HandIn,
    Hello,
    Question,
    TrainAhead,
    read_message,
)

TIMEOUT = 840.0
ASIDE = TIMEOUT / 8
HUNG = 4  # the node of hospital-3


class HangingGrid(InProcessGrid):
    """One node is listed and does not answer questions of one kind; time passes where somebody waits for it."""

    def __init__(self, place: World, kind: type[Question]) -> None:
        super().__init__(place.grid.nodes)
        self._kind, self.time = kind, 0.0
        self.kinds: list[type] = []
        self.waits: list[tuple[str, float]] = []
        self.work: list[float] = []
        self.hangs = True

    def now(self) -> float:
        return self.time

    def _deliver(self, message: Message) -> str:
        question = read_message(from_message(message))
        self.kinds.append(type(question))
        concerned = message.metadata.dst_node_id == HUNG and isinstance(question, self._kind)
        node = self.nodes[message.metadata.dst_node_id]
        node.present = node.present and not (concerned and self.hangs)
        try:
            return super()._deliver(message)
        finally:
            node.present = True  # it is listed all the time

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        asked = list(messages)
        kinds = {type(read_message(from_message(message))) for message in asked}
        if kinds & {Contribute, HandIn}:
            self.work.append(self.time)
        replies = list(super().send_and_receive(asked))
        if len(replies) < len(asked):
            assert timeout is not None, "nobody waits for ever"
            self.time += timeout
            self.waits.append((min(kind.__name__ for kind in kinds), timeout))
        return replies


def hanging(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Question]) -> tuple[World, HangingGrid]:
    place = world(folder, 4)
    grid = HangingGrid(place, kind)
    place.grid = grid
    monkeypatch.setattr("lrdp.federation.server.courier.RoundClock", partial(RoundClock, now=grid.now))
    return place, grid


def run(place: World, rounds: int, *metrics: str) -> list[float]:
    """The moment at which each attempt was over."""
    ends: list[float] = []
    grid = place.grid
    assert isinstance(grid, HangingGrid)
    strategy = place.strategy(patience=0.0, metrics=metrics)
    strategy._observers = (place.reports.append, lambda _: ends.append(grid.time))
    strategy.start(grid, initial(), num_rounds=rounds, timeout=TIMEOUT)
    return ends


@pytest.mark.parametrize(
    ("kind", "attempts", "verified"),
    [(Hello, 3, 3), (CanYou, 3, 3), (Contribute, 3, 3), (Announcement, 5, 1), (Closing, 3, 3)],
)
def test_whoever_hangs_takes_no_more_than_the_time_of_a_round_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Question], attempts: int, verified: int
) -> None:
    place, grid = hanging(tmp_path, monkeypatch, kind)
    ends = run(place, attempts)
    assert sum(report.verified for report in place.reports) == verified
    taken = [end - began for began, end in zip(grid.work, ends, strict=True)]
    assert max(taken) < TIMEOUT
    # What is not part of a round is waited for an eighth as long, and no more than twice between two rounds.
    begun = [after - end for end, after in zip([0.0, *ends], grid.work, strict=False)]
    assert max(begun) <= 2 * ASIDE
    assert {seconds for name, seconds in grid.waits if name in {"Hello", "CanYou", "Closing"}} <= {ASIDE}


def test_a_node_that_answers_no_greeting_is_waited_for_once_and_welcome_as_soon_as_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, grid = hanging(tmp_path, monkeypatch, Hello)

    def wakes(_number: int, _arrays: object) -> None:
        if len(place.reports) == 2:
            grid.hangs, grid.time = False, grid.time + 2 * ASIDE

    strategy = place.strategy()
    strategy.start(grid, initial(), num_rounds=5, timeout=TIMEOUT, evaluate_fn=wakes)
    assert grid.waits == [("Hello", ASIDE)]
    assert [len(report.participants) for report in place.reports] == [3, 3, 3, 3, 4]
    assert grid.kinds.count(Hello) == 5  # one each, and a second one for whoever kept silent
    assert place.audit().rounds == 5


def test_what_was_paid_for_has_time_to_be_proved_however_late_the_exchanges_before_it_ended() -> None:
    time = [70.0]
    clock = RoundClock(TIMEOUT, now=lambda: time[0])
    time[0] += 9 * TIMEOUT  # clients came late, which is no part of a round
    waits = [clock.begin()]
    for _ in range(15):
        time[0] += waits[-1]
        waits.append(clock.share())
    assert waits[:4] == [TIMEOUT / 2, TIMEOUT / 4, TIMEOUT / 8, TIMEOUT / 16]
    assert min(waits) == 1.0
    assert clock.begin() == TIMEOUT / 2  # the next round has a time of its own


def test_a_count_that_does_not_come_is_waited_for_as_long_as_an_update(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, grid = hanging(tmp_path, monkeypatch, Count)
    run(place, 1, "correct")
    assert [wait for wait in grid.waits if wait[0] == "Count"] == [("Count", TIMEOUT / 2)]


@pytest.mark.parametrize("kind", [Hello, CanYou, TrainAhead])
def test_a_buffer_fills_beside_a_node_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[Question]
) -> None:
    place, grid = hanging(tmp_path, monkeypatch, kind)
    own = place.strategy()._terms
    terms = Terms(identity=own.identity, registry=own.registry, folder=own.folder, min_roster=3, arrival=5.0)
    BufferedAverage(terms, place.reports.append, buffer=3).start(grid, initial(), num_rounds=3, timeout=TIMEOUT)
    assert [report.verified for report in place.reports] == [True] * 3
    assert len(grid.waits) <= (3 if kind is CanYou else 1)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_is_none_is_refused_before_anything_starts(tmp_path: Path, seconds: float) -> None:
    place = world(tmp_path, 3)
    with pytest.raises(InvalidInput, match="timeout must be above 0"):
        place.strategy().start(place.grid, initial(), timeout=seconds)
    assert not (place.consortium.server_folder / "rounds.jsonl").exists()
