"""Consortium's days with updates that wait: members join, leave, are excluded and get new keys between two buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from flwr.app import Message

from federation.rotations import newcomer, replace_key, rotate
from federation.worlds import World, initial, world
from lrdp.federation import BufferedAverage, InProcessGrid, RoundReport, RunResult, Terms
from lrdp.federation.server.saved_state import read_state
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import TrainAhead, read_message
from lrdp.integrity import new_identity

Act = Callable[[], object]


def buffered(place: World, rounds: int, acts: dict[int, Act], *, arrival: float = 3.0) -> RunResult:
    """So many buffers of three; once a number of them is verified, something happens."""
    terms = Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        min_roster=3,
        arrival=arrival,
    )

    def observe(report: RoundReport) -> None:
        place.reports.append(report)
        acts.pop(sum(each.verified for each in place.reports), lambda: None)()

    return BufferedAverage(terms, observe, buffer=3).start(place.grid, initial(), num_rounds=rounds, timeout=5)


def charges(place: World, name: str) -> int:
    return len(place.books(name).charges.states)


def checked(place: World, rounds: int) -> dict[str, int]:
    """Every buffer holds for an auditor; how often each took part."""
    found = place.audit()
    assert found.failure is None
    assert found.rounds == rounds
    for name in place.names:
        # Each update is part of one buffer, and at most one waits at the end.
        assert found.participants.get(name, 0) <= charges(place, name) <= found.participants.get(name, 0) + 1
    return found.participants


def test_a_hospital_joins_and_another_leaves_between_two_buffers(tmp_path: Path) -> None:
    place = world(tmp_path, 4, min_roster=3)
    fresh = new_identity("hospital-4")

    def change() -> None:
        following = rotate(place, without=["hospital-0"], having={"hospital-4": fresh})
        newcomer(place, 4, fresh, following)

    buffered(place, 5, {1: change})
    taken = checked(place, 5)
    assert taken["hospital-4"] >= 2
    assert all("hospital-0" not in report.participants for report in place.reports[1:])
    position = place.audit().position
    assert position is not None
    assert position.session.registry.version == 2


def test_whoever_is_excluded_while_its_update_waits_is_not_waited_for(tmp_path: Path) -> None:
    """Four train for the first buffer of three, and the fourth is excluded before the second."""
    place = world(tmp_path, 4, min_roster=3)
    result = buffered(place, 3, {1: lambda: rotate(place, without=["hospital-3"])})
    assert "hospital-3" not in checked(place, 3)
    assert result.reason == ""
    state = read_state(place.consortium.server_folder)
    assert state is not None
    assert "hospital-3" not in state.progress.waiting
    assert charges(place, "hospital-3") == 1


def test_an_excluded_member_with_an_update_is_no_hope_for_a_buffer(tmp_path: Path) -> None:
    place = world(tmp_path, 4, min_roster=3)

    def change() -> None:
        rotate(place, without=["hospital-3"])
        place.node("hospital-0").present = False

    result = buffered(place, 3, {1: change}, arrival=0.5)
    assert result.reason.startswith("no buffer of 3 came together")
    # Two are left that could train, and what the fourth has trained is no third: nobody is asked to.
    assert [charges(place, name) for name in place.names] == [1] * 4


def test_a_lost_key_is_replaced_while_the_update_waits_and_its_owner_trains_anew(tmp_path: Path) -> None:
    place = world(tmp_path, 4, min_roster=3)
    buffered(place, 4, {1: lambda: rotate(place, having={"hospital-3": replace_key(place, "hospital-3")})})
    found = place.audit()
    assert (found.failure, found.rounds) == (None, 4)
    assert found.participants["hospital-3"] >= 1
    # What it made under the old key was not shown to anybody, and is never shown: it is the one that is lost.
    assert charges(place, "hospital-3") <= found.participants["hospital-3"] + 2
    assert all(report.verified for report in place.reports), "no buffer was tried with an update that is spent"


class Slow(InProcessGrid):
    """Work is answered late: once so many looks for answers were in vain."""

    def __init__(self, place: World, name: str, looks: int) -> None:
        super().__init__(place.grid.nodes)
        self._node, self._looks, self._held = 1 + place.names.index(name), looks, set[str]()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        given = list(messages)
        numbers = list(super().push_messages(given))
        for message, number in zip(given, numbers, strict=True):
            ahead = isinstance(read_message(from_message(message)), TrainAhead)
            if ahead and message.metadata.dst_node_id == self._node and self._looks:
                self._held.add(number)
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        asked = list(message_ids)
        if self._held & set(asked):
            self._looks -= 1
        if not self._looks:
            self._held.clear()
        return super().pull_messages([number for number in asked if number not in self._held])


@pytest.mark.parametrize("keys", ["new", "same"])
def test_whoever_trains_while_its_key_or_its_node_is_replaced_is_asked_again(tmp_path: Path, keys: str) -> None:
    place = world(tmp_path, 4, min_roster=3)
    place.grid = Slow(place, "hospital-3", looks=2)

    def change() -> None:
        if keys == "new":
            rotate(place, having={"hospital-3": replace_key(place, "hospital-3")})
        else:  # the same hospital comes back as another node, as a SuperNode does that was started again
            place.grid.nodes[9] = place.grid.nodes.pop(4)  # type: ignore[index,attr-defined]

    buffered(place, 5, {1: change})
    assert place.audit().rounds == 5
    assert place.audit().participants["hospital-3"] >= 1, "it was taken for busy for ever"
