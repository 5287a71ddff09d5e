"""Flower's nodes and the registry's names: questions go out to nodes, answers come back under names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from flwr.app import Array, Message
from flwr.serverapp import Grid

from lrdp.errors import LrdpError
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.questions import Answer, Decline, Hello, Here, Question, Work, read_message, to_frame

TRAIN: Final = "train"
QUERY: Final = "query"
SILENT: Final = Decline(code="silent")
"""What is noted for a node that did not answer, or not in a way that could be read."""


class Nodes:
    """Who is there, by the names of the registry."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def present(self, grid: Grid) -> list[int]:
        """The nodes that Flower lists now; a dead one stays listed for about a minute."""
        return sorted(grid.get_node_ids())

    def unknown(self, ids: Iterable[int]) -> list[int]:
        return [node for node in ids if node not in self._names]

    def introduce(self, node: int, here: Here) -> list[int]:
        """The newest node of a name is the one that is asked; who had the name before comes back."""
        before = [known for known, name in self._names.items() if name == here.name]
        self.forget(here.name)
        self._names[node] = here.name
        return before

    def forget(self, name: str) -> None:
        """Ask again who that node is."""
        self._names = {known: other for known, other in self._names.items() if other != name}

    def names(self, ids: Iterable[int]) -> list[str]:
        """The known names among these nodes, sorted."""
        return sorted(self._names[node] for node in ids if node in self._names)

    def addressed(self, questions: Mapping[str, Question], group: str, ttl: float) -> list[Message]:
        """A message for each name that has a node; a vector that several are sent is serialised once."""
        by_name, known = {name: node for node, name in self._names.items()}, dict[int, Array]()
        frames = {name: to_frame(question) for name, question in questions.items() if name in by_name}
        return [
            Message(to_records(given, known), by_name[name], kind_of(questions[name]), group_id=group, ttl=ttl)
            for name, given in frames.items()
        ]

    def greetings(self, ids: Iterable[int], hello: Hello, ttl: float) -> list[Message]:
        """The first message to a node."""
        records = to_records(to_frame(hello))
        return [Message(records, node, QUERY, group_id="hello", ttl=ttl) for node in ids]

    def name_of(self, node: int) -> str | None:
        return self._names.get(node)


def answered(asked: Iterable[Message], replies: Iterable[Message]) -> dict[int, Answer]:
    """By node: an error's reply comes from Flower itself, so what counts is the message that it replies to."""
    nodes = {message.metadata.message_id: message.metadata.dst_node_id for message in asked}
    return {
        nodes[reply.metadata.reply_to_message_id]: read_reply(reply)
        for reply in replies
        if reply.metadata.reply_to_message_id in nodes
    }


def kind_of(question: Question) -> str:
    """Flower's message type."""
    return TRAIN if isinstance(question, Work) else QUERY


def read_reply(reply: Message) -> Answer:
    """The answer in a reply; whatever cannot be read counts as silence."""
    try:
        answer = read_message(from_message(reply))
    except LrdpError:
        return SILENT
    return answer if isinstance(answer, Answer) else SILENT
