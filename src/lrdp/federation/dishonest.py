"""A server that cheats, to see it caught: for demonstrations, for tests, and for whoever will not take our word.

It is as clever as a server can be that has no client's keys: sum, next model, hashes and signature all fit together,
and every client's commitment is shown as it was made. One whole number in one sum differs by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from flwr.app import ArrayRecord, Message, MetricRecord

from lrdp.federation.messages import Closing, Decline, OwnTag
from lrdp.federation.progress import Observe, silence
from lrdp.federation.rounds import EXHAUSTED, gathered
from lrdp.federation.strategy import VerifiedAverage
from lrdp.federation.terms import Terms
from lrdp.integrity import Wire, server
from lrdp.integrity.server import Gathering


class DishonestAverage(VerifiedAverage):
    """Alters the sum of the rounds in ``cheats``, once each, and repeats the round honestly when it is refused."""

    def __init__(self, terms: Terms, observe: Observe = silence, *, cheats: Iterable[int] = ()) -> None:
        super().__init__(terms, observe)
        self._cheats = set(cheats)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """As honest servers do, but for the rounds in ``cheats``."""
        coordinator, courier = self.coordinator, self._courier
        if coordinator.round not in self._cheats:
            return super().aggregate_train(server_round, replies)
        report = gathered(coordinator, courier.answers(self._asked, replies))
        self._exhausted |= {name for name, code in report.declined.items() if code in EXHAUSTED}
        if len(report.participants) >= coordinator.least:
            self._cheats.remove(coordinator.round)
            verdicts = self._published_and_judged()
            refused = sorted(set(verdicts.values())) or ["nobody noticed"]
            report = replace(report, declined={**report.declined, **verdicts}, problem=", ".join(refused))
        coordinator.give_up()
        self._observe(report)
        return None, None

    def _published_and_judged(self) -> dict[str, str]:
        """Publish the altered sum, and send everybody's tags around as if nothing were; what each client says of it."""
        coordinator, courier = self._coordinator, self._courier
        coordinator._gathering = altered(coordinator._gathering)
        announcement, names = coordinator.announce()
        answers = courier.exchange(dict.fromkeys(names, announcement))
        for answer in answers.values():
            if isinstance(answer, OwnTag):
                coordinator.tag(answer.tag)
        published = coordinator._published
        tags = Wire(published.idle.position).tags(server.all_tags(published), published.header)
        tagged = [name for name, answer in answers.items() if isinstance(answer, OwnTag)]
        answers |= courier.exchange(dict.fromkeys(tagged, Closing(tags=tags)))
        return {name: answer.code for name, answer in answers.items() if isinstance(answer, Decline)}


def altered(gathering: Gathering) -> Gathering:
    """One participant's update, one quantum larger in one coordinate, under the commitment to the true one."""
    first, *rest = gathering.updates
    values = first.values.copy()
    values[0] += 1
    return replace(gathering, updates=(replace(first, values=values), *rest))
