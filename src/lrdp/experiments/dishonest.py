"""A server that cheats, to see it caught: for demonstrations, for tests, and for whoever will not take our word.

It is as clever as a server can be that has no client's keys: sum, next model, hashes and signature all fit together,
and every client's commitment is shown as it was made. One whole number in one sum differs by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.courier import Courier
from lrdp.federation.server.round_report import RoundReport
from lrdp.federation.server.settling import settled
from lrdp.federation.wire.questions import Closing, Decline, OwnTag
from lrdp.integrity import Gathering, Publish, Published, Room, server


class Cheat:
    """Alters the sum of the rounds in ``rounds``, once each, and repeats the round honestly when it is refused.

    A way to settle rounds, for :class:`lrdp.federation.VerifiedAverage`.
    """

    def __init__(self, rounds: Iterable[int]) -> None:
        self._rounds = set(rounds)

    def __call__(self, coordinator: Coordinator, courier: Courier, report: RoundReport) -> RoundReport:
        """As honest servers do, except in the rounds that are left to alter."""
        if coordinator.round not in self._rounds or len(report.participants) < coordinator.least:
            return settled(coordinator, courier, report)
        self._rounds.remove(coordinator.round)
        verdicts = _published_and_judged(coordinator, courier)
        coordinator.give_up()
        refused = sorted(set(verdicts.values())) or ["nobody noticed"]
        return replace(report, declined={**report.declined, **verdicts}, problem=", ".join(refused))


def _published_and_judged(coordinator: Coordinator, courier: Courier) -> dict[str, str]:
    """Publish the altered sum and pass on all tags as if nothing had happened; returns what each client says."""
    announcement, names = coordinator.announce(altered)
    answers = courier.exchange(dict.fromkeys(names, announcement))
    for answer in answers.values():
        if isinstance(answer, OwnTag):
            coordinator.tag(answer.tag)
    tagged = [name for name, answer in answers.items() if isinstance(answer, OwnTag)]
    answers |= courier.exchange(dict.fromkeys(tagged, Closing(tags=coordinator.all_tags())))
    return {name: answer.code for name, answer in answers.items() if isinstance(answer, Decline)}


def altered(gathering: Gathering, room: Room) -> tuple[Published, Publish]:
    """One participant's update, one quantum larger in one coordinate, under the commitment to the true one."""
    first, *rest = gathering.updates
    values = first.values.copy()
    values[0] += 1
    return server.publish(replace(gathering, updates=(replace(first, values=values), *rest)), room)
