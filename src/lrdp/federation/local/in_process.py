"""A Flower grid within one process: clients answer in turn, and every message is serialised for real.

For tests of an app, for studies of thousands of clients, and for anybody who wants to see a federation in a debugger.
No transport needs to be trusted here: a client behind this grid is as private as behind a SuperLink.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

SERVER_NODE = 1
Alter = Callable[[Message], Message | None]


def _unchanged(message: Message) -> Message | None:
    return message


@dataclass
class Node:
    """A client app with its node's settings. ``present`` may change between rounds.

    >>> Node(ClientApp(), {"partition-id": 0}).present
    True
    """

    app: ClientApp
    settings: Mapping[str, Any] = field(default_factory=dict)
    present: bool = True


class InProcessGrid(Grid):
    """``before`` and ``after`` see each message on its way out and back: they may change it, or lose it (None).

    ``run_config`` is the run's, which the server writes and every node is told.

    >>> grid = InProcessGrid({2: Node(ClientApp()), 3: Node(ClientApp(), present=False)})
    >>> grid.get_node_ids()
    [2]
    """

    def __init__(
        self,
        nodes: Mapping[int, Node],
        *,
        before: Alter = _unchanged,
        after: Alter = _unchanged,
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.nodes, self._before, self._after = nodes, before, after
        self._run_config = dict(run_config or {})
        self._replies: dict[str, Message] = {}
        self._count = 0
        self.sent_bytes = 0
        self.received_bytes = 0
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, SERVER_NODE

    def set_run(self, run: Any) -> None:
        """There is one run."""

    @property
    def run(self) -> NoReturn:
        """There is no SuperLink that knows of a run."""
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Deprecated in Flower: make a Message."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        """The nodes that are present."""
        return [number for number, node in self.nodes.items() if node.present]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Deliver each at once; its reply waits to be pulled."""
        return [self._deliver(message) for message in messages]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that came."""
        return [self._replies.pop(number) for number in list(message_ids) if number in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Both; a node that is absent does not answer, and nobody waits."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> str:
        self._count += 1
        number = f"message-{self._count}"
        message.metadata.__dict__["_message_id"] = number
        node = self.nodes.get(message.metadata.dst_node_id)
        arriving = self._before(_serialised(message))
        if node is None or not node.present or arriving is None:
            return number
        self.sent_bytes += size_of(arriving)
        reply = node.app(arriving, self.context_of(message.metadata.dst_node_id))
        returning = self._after(_serialised(reply))
        if returning is not None:
            self.received_bytes += size_of(returning)
            self._replies[number] = returning
        return number

    def context_of(self, number: int) -> Context:
        """What the app of a node is told about its node and the run."""
        return Context(
            run_id=1,
            node_id=number,
            node_config=dict(self.nodes[number].settings),
            state=RecordDict(),
            run_config=dict(self._run_config),
            series_id=1,
        )


def _serialised(message: Message) -> Message:
    """There and back, as through a network."""
    return message_from_proto(ProtoMessage.FromString(message_to_proto(message).SerializeToString()))


def size_of(message: Message) -> int:
    """The bytes of its arrays."""
    if not message.has_content():
        return 0
    return sum(array.count_bytes() for array in message.content.array_records.values())
