"""The server uses its memory again, round after round, and never what somebody still refers to."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federation.hostile import Stage, stage
from lrdp.federation.wire.layout import raw
from lrdp.integrity.fixed_point import Room, Whole
from lrdp.integrity.server import Published

PER_ROUND = 5
"""Vectors of a round of three: their updates, the sum and the next model."""


class Taking(Room):
    """The control: takes the memory of two rounds ago, whoever refers to it."""

    def __init__(self) -> None:
        super().__init__()
        self._turn = cycle(range(2 * PER_ROUND))
        self._lent: dict[int, Whole] = {}

    def vector(self, size: int, kind: np.dtype[Any]) -> Whole:
        place = next(self._turn)
        self._lent.setdefault(place, np.empty(size, kind))
        return self._lent[place].view(kind)


def play(given: Stage) -> list[Whole]:
    """An honest round; all the vectors that it consists of."""
    given.gather()
    given.publish()
    published = given.coordinator.state(Published)
    given.coordinator.conclude()
    given.close()
    return [published.aggregate, published.next_model, *(update.values for update in published.updates)]


def test_each_round_takes_the_memory_of_those_before_it(tmp_path: Path) -> None:
    made = stage(tmp_path)
    made.greet()
    places = [{one.ctypes.data for one in play(made)} for _ in range(4)]
    assert [len(each) for each in places] == [PER_ROUND] * 4
    # One more than a round has: while the next model is written, the last one is still there.
    assert len(set().union(*places)) == PER_ROUND + 1


@pytest.mark.parametrize(("room", "kept"), [(Room, True), (Taking, False)])
def test_what_somebody_refers_to_stays_as_it_was(tmp_path: Path, room: type[Room], kept: bool) -> None:
    made = stage(tmp_path)
    made.coordinator._room = room()
    made.greet()
    made.gather()
    announcement, _ = made.coordinator.announce()
    aggregate = announcement.aggregate
    assert aggregate is not None
    made.coordinator.give_up()
    _, following, update, *_ = play(made)
    held = [aggregate[:8], raw(following), update[1:].data]
    del following, update, announcement, aggregate
    before = list(map(bytes, held))
    for _ in range(3):
        play(made)
    after = list(map(bytes, held))
    assert [now == then for now, then in zip(after, before, strict=True)] == [kept] * 3
