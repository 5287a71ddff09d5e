"""Exchanges with clients over a Flower grid, by name."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from flwr.app import Message
from flwr.serverapp import Grid

from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.nodes import SILENT, Nodes
from lrdp.federation.wire.questions import Answer, Decline, Ending, Here, Question
from lrdp.screen import visible

_LOG: Final = logging.getLogger("lrdp.server")


class Courier:
    """Knows which node has which name, and who stands where."""

    def __init__(self, grid: Grid, coordinator: Coordinator, timeout: float) -> None:
        self._grid, self._coordinator, self.timeout = grid, coordinator, timeout
        self._nodes = Nodes()
        self._doubtful: set[str] = set()

    def messages(self, questions: Mapping[str, Question]) -> list[Message]:
        return self._nodes.addressed(questions, str(self._coordinator.round), self.timeout)

    def answers(self, asked: Iterable[Message], replies: Iterable[Message]) -> dict[str, Answer]:
        """By name; who did not answer is silent, and whoever declined is greeted again before the next round."""
        messages = list(asked)
        given = self._nodes.answered(messages, replies)
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
        """Ask, wait, and hear."""
        asked = self.messages(questions)
        return self.answers(asked, self._grid.send_and_receive(asked, timeout=self.timeout))

    def present(self) -> list[str]:
        """The names of those who are there; newcomers are greeted first."""
        while self._doubtful:
            name = self._doubtful.pop()
            self._nodes.forget(name)
            self._coordinator.forget(name)
        ids = self._nodes.present(self._grid)
        unknown = self._nodes.unknown(ids)
        asked = self._nodes.greetings(unknown, self._coordinator.hello, self.timeout)
        replies = self._grid.send_and_receive(asked, timeout=self.timeout) if asked else []
        for node, answer in self._nodes.answered(asked, replies).items():
            if isinstance(answer, Here) and self._coordinator.knows(answer):
                self._nodes.introduce(node, answer)
                self._coordinator.greet(answer)
            else:
                reason = answer.code if isinstance(answer, Decline) else "it did not answer with the keys of a member"
                _LOG.warning("node %d is not in the session: %s", node, visible(reason))
        return self._nodes.names(ids)

    def dismiss(self, names: Iterable[str]) -> None:
        """Members whose keys the registry no longer holds are strangers: their nodes are asked again who they are."""
        for name in names:
            self._nodes.forget(name)
            self._doubtful.discard(name)

    def close(self) -> None:
        """Bring home the ACCEPTs of the last round, of those who are there."""
        there = set(self._nodes.names(self._nodes.present(self._grid)))
        self.exchange({name: asked for name, asked in self._coordinator.open_tags().items() if name in there})

    def close_for(self, names: Collection[str]) -> None:
        """The same, with these there, if the next question would be too late for it."""
        if self._coordinator.must_close(names):
            self.close()
