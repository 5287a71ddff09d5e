"""Greeting nodes that nobody knows yet, so that one that hangs keeps nobody waiting twice."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from flwr.app import Message
from flwr.serverapp import Grid

from lrdp.federation.server.nodes import answered
from lrdp.federation.server.round_clock import RoundClock
from lrdp.federation.wire.questions import Answer, Here

_LOG: Final = logging.getLogger("lrdp.server")
Greet = Callable[[Iterable[int]], list[Message]]


class _Open(NamedTuple):
    """A greeting without an answer, and when another is sent."""

    message: Message
    until: float


class Greeter:
    """A first greeting is waited for. Whoever leaves it unanswered may come later, and is not waited for again."""

    def __init__(self, grid: Grid, clock: RoundClock) -> None:
        self._grid, self._clock = grid, clock
        self._silent: dict[int, _Open] = {}

    def heard(self, unknown: Collection[int], greet: Greet) -> dict[int, Answer]:
        """The answers of these nodes, of which those that are new are greeted first."""
        self._silent = {node: greeting for node, greeting in self._silent.items() if node in unknown}
        answers = self._late()
        new = greet(node for node in unknown if node not in self._silent)
        came = self._grid.send_and_receive(new, timeout=self._clock.aside) if new else []
        answers |= answered(new, came)
        again = greet(node for node, greeting in self._silent.items() if self._is_due(greeting, answers.get(node)))
        if again:
            self._grid.push_messages(again)
        unanswered = [message for message in new if message.metadata.dst_node_id not in answers]
        for message in unanswered:
            _LOG.warning("node %d did not answer a greeting: nobody waits for it now", message.metadata.dst_node_id)
        until = self._clock.after(2 * self._clock.aside)
        self._silent |= {message.metadata.dst_node_id: _Open(message, until) for message in (*unanswered, *again)}
        return answers

    def _late(self) -> dict[int, Answer]:
        asked = [greeting.message for greeting in self._silent.values() if greeting.message.metadata.message_id]
        return answered(asked, self._grid.pull_messages([message.metadata.message_id for message in asked]))

    def _is_due(self, greeting: _Open, answer: Answer | None) -> bool:
        """Whether a node that was silent is greeted again: it declined, or its time is over."""
        return not isinstance(answer, Here) and (answer is not None or self._clock.is_past(greeting.until))
