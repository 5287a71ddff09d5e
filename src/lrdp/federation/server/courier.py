"""Exchanges with clients over a Flower grid, by name."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from flwr.app import Message
from flwr.serverapp import Grid

from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.greeting import Greeter
from lrdp.federation.server.nodes import SILENT, Nodes, answered
from lrdp.federation.server.round_clock import RoundClock
from lrdp.federation.wire.questions import Answer, Decline, Ending, Here, Question
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


class Courier:
    """Knows which node has which name, and who stands where."""

    def __init__(self, grid: Grid, coordinator: Coordinator, timeout: float) -> None:
        self._grid, self._coordinator, self.clock = grid, coordinator, RoundClock(timeout)
        self._nodes = Nodes()
        self._doubtful: set[str] = set()
        self._refused: dict[int, str] = {}
        self._greeter = Greeter(grid, self.clock)

    def messages(self, questions: Mapping[str, Question], seconds: float) -> list[Message]:
        """Questions that are worth an answer for so many seconds."""
        return self._nodes.addressed(questions, str(self._coordinator.round), seconds)

    def answers(self, asked: Iterable[Message], replies: Iterable[Message]) -> dict[str, Answer]:
        """By name; who did not answer is silent, and whoever declined is greeted again before the next round."""
        messages = list(asked)
        given = answered(messages, replies)
        named = {
            message.metadata.dst_node_id: self._nodes.name_of(message.metadata.dst_node_id) for message in messages
        }
        found = {name: given.get(node, SILENT) for node, name in named.items() if name is not None}
        for name, answer in found.items():
            if isinstance(answer, Ending) and answer.accept:
                self._coordinator.accept(name, answer.accept)
            if isinstance(answer, Decline):
                _LOG.info("%s declined: %s", name, visible(answer.code))
                self._doubtful.add(name)
        return found

    def exchange(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """Ask, wait and hear, within the time of a round."""
        return self._exchanged(questions, self.clock.share())

    def ask(self, questions: Mapping[str, Question]) -> dict[str, Answer]:
        """The same outside a round, where an answer costs nobody anything."""
        return self._exchanged(questions, self.clock.aside)

    def _exchanged(self, questions: Mapping[str, Question], seconds: float) -> dict[str, Answer]:
        asked = self.messages(questions, seconds)
        return self.answers(asked, self._grid.send_and_receive(asked, timeout=seconds) if asked else [])

    def present(self) -> list[str]:
        """The names of those who are there; newcomers are greeted first."""
        while self._doubtful:
            name = self._doubtful.pop()
            self._nodes.forget(name)
            self._coordinator.forget(name)
        ids = self._nodes.present(self._grid)
        for node, answer in self._greeter.heard(self._nodes.unknown(ids), self._greetings).items():
            if isinstance(answer, Here) and self._coordinator.knows(answer):
                for other in set(self._nodes.introduce(node, answer)).intersection(ids):
                    self._refuse(other, f"a newer node answers as {answer.name}")
                self._coordinator.greet(answer)
            else:
                declined = answer.code if isinstance(answer, Decline) else None
                self._refuse(node, declined or "it did not answer with the keys of a member")
        return self._nodes.names(ids)

    def _refuse(self, node: int, reason: str) -> None:
        if self._refused.get(node) != reason:  # it is greeted again and again
            _LOG.warning("node %d is not in the session: %s", node, visible(reason))
        self._refused[node] = reason

    def strangers(self) -> str:
        """What is to be said of nodes that are connected and that nobody knows; nothing where there are none."""
        silence = f"no answer within {round(self.clock.aside)} s"
        why = Counter(self._refused.get(node, silence) for node in self._nodes.unknown(self._nodes.present(self._grid)))
        said = ", ".join(f"{count} × {visible(reason)}" for reason, count in sorted(why.items()))
        return f"; {why.total()} more nodes are connected and not in the session ({said})" if why else ""

    def _greetings(self, nodes: Iterable[int]) -> list[Message]:
        """Worth an answer for as long as a round may take: whoever is slow is welcome later."""
        return self._nodes.greetings(nodes, self._coordinator.hello, self.clock.seconds)

    def dismiss(self, names: Iterable[str]) -> None:
        """Members whose keys the registry no longer holds are strangers: their nodes are asked again who they are."""
        for name in names:
            self._nodes.forget(name)
            self._doubtful.discard(name)

    def close(self) -> None:
        """Bring home the ACCEPTs of the last round, of those who are there."""
        there = set(self._nodes.names(self._nodes.present(self._grid)))
        self.ask({name: asked for name, asked in self._coordinator.open_tags().items() if name in there})

    def close_for(self, names: Collection[str]) -> None:
        """The same, with these there, if the next question would be too late for it."""
        if self._coordinator.must_close(names):
            self.close()
