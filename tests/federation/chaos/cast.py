"""The processes of the field: a server, and for each hospital a node and a guard. Each knows files and sockets alone.

The server's grid reaches a node over a socket, as a SuperLink would; the node is the ClientApp that a server ships, and
passes messages to the guard, which is `lrdp guard` itself. A node that was killed stays listed for a while, as
Flower lists it, and comes back as another node. Nodes write down what passes through them, before they pass it on.
"""

from __future__ import annotations

import json
import math
import select
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Error, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import Message as ProtoMessage

from federation.worlds import initial
from lrdp.cli import app as commands
from lrdp.federation import (
    BufferedAverage,
    Consortium,
    InProcessGrid,
    Node,
    RoundReport,
    Terms,
    VerifiedAverage,
    guarded_client_app,
)
from lrdp.federation.client.guard import Guard
from lrdp.federation.server.saved_state import read_state
from lrdp.federation.server.schemes import SCHEMES
from lrdp.federation.wire.flower import from_message
from lrdp.integrity import ProofMethod

from .diary import append, die_after
from .schedule import Schedule

TIMEOUT = 120.0
TASK = """
import torch
from torch import nn
from federation.worlds import model, records
from lrdp.federation import LocalTask
from lrdp.training import CrossEntropy

def own_records(given):
    return records({"partition-id": given["number"]})

task = LocalTask(model=model, dataset=own_records, loss=CrossEntropy(classes=2))
"""


# ------------------------------------------------------------------------------------------------------------ hospital
def guard(folder: Path, number: int, calls: int) -> None:
    """`lrdp guard` of a hospital, mortal from its first message on."""
    home, serve = folder / "consortium" / "clients" / f"hospital-{number}", Guard.serve

    def mortal(self: Guard, listener: socket.socket, told: socket.socket) -> None:
        die_after(calls, folder, f"guard-{number}")
        serve(self, listener, told)

    Guard.serve = mortal  # type: ignore[method-assign]
    paths = [
        "--policy",
        home / "policy.toml",
        "--data",
        home / "task_of_the_chaos.py",
        "--socket",
        guard_path(folder, number),
    ]
    commands(["guard", *map(str, paths), "--set", f"number={number}", "--json"], standalone_mode=False)


def guard_path(folder: Path, number: int) -> Path:
    return folder / "sockets" / f"guard-{number}"


def node(folder: Path, number: int, birth: int, calls: int) -> None:
    """Flower's side of a hospital: it takes a message at a time, and brings the app's answer back."""
    app, log = guarded_client_app(str(guard_path(folder, number))), folder / "passed" / f"hospital-{number}"
    where = Node(app, {})
    identity = node_id(number, birth)
    context = InProcessGrid({identity: where}).context_of(identity)
    path = node_path(folder, identity)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(8)
        die_after(calls, folder, f"node-{number}")
        while True:
            connection, _ = listener.accept()
            with connection:
                sent = _all_of(connection)
                if not sent:
                    continue  # the server died before it said anything
                question = message_from_proto(ProtoMessage.FromString(sent))
                _write_down(log, question, question.metadata.message_id)
                reply = app(question, context)
                _write_down(log, reply, question.metadata.message_id)
                try:
                    connection.sendall(message_to_proto(reply).SerializeToString())
                except OSError:
                    continue  # the server is gone


def node_id(number: int, birth: int) -> int:
    return 1000 * (1 + number) + birth


def node_path(folder: Path, identity: int) -> Path:
    return folder / "sockets" / f"node-{identity}"


def _all_of(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(1 << 16):
        parts.append(part)
    return b"".join(parts)


def _write_down(log: Path, message: Message, number: str) -> None:
    given = from_message(message)
    parts = [bytes(part).hex() for part in (given.prefix, *given.bodies)]
    append(log, json.dumps({"at": time.time(), "number": number, "parts": parts}))


# -------------------------------------------------------------------------------------------------------------- server
class SocketGrid(InProcessGrid):
    """The nodes whose sockets lie in a folder; whoever does not answer has no reply."""

    def __init__(self, folder: Path, birth: int) -> None:
        super().__init__({})
        self._folder, self._birth, self._number = folder, birth, 0
        self._asked: dict[str, Message] = {}
        self._open: dict[str, tuple[socket.socket, list[bytes]]] = {}

    def get_node_ids(self) -> Iterable[int]:
        """Also of those who died a moment ago."""
        return sorted(int(path.name.partition("-")[2]) for path in (self._folder / "sockets").glob("node-*"))

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Hand each to its node, if there is one."""
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str:
        self._number += 1
        number = f"{self._birth}-{self._number}"
        message.metadata.__dict__["_message_id"] = number
        connection = socket.socket(socket.AF_UNIX)
        with suppress(OSError):  # of a node that is gone; what is read from such a connection is its end
            connection.connect(str(node_path(self._folder, message.metadata.dst_node_id)))
            connection.sendall(message_to_proto(message).SerializeToString())
            connection.shutdown(socket.SHUT_WR)
        self._asked[number], self._open[number] = message, (connection, [])
        return number

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Those that are whole; for a node that died, Flower's own word."""
        found = []
        for number in list(message_ids):
            if number in self._open and self._ended(*self._open[number]):
                connection, parts = self._open.pop(number)
                connection.close()
                asked = self._asked.pop(number)
                found.append(message_from_proto(ProtoMessage.FromString(b"".join(parts))) if parts else _lost(asked))
        return found

    @staticmethod
    def _ended(connection: socket.socket, parts: list[bytes]) -> bool:
        while select.select([connection], [], [], 0)[0]:
            try:
                part = connection.recv(1 << 16)
            except OSError:
                part = b""
                parts.clear()
            if not part:
                return True
            parts.append(part)
        return False

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """All that come in time; of a node that died nothing will."""
        asked, replies = list(self.push_messages(messages)), list[Message]()
        deadline = time.monotonic() + (timeout or TIMEOUT)
        while (waiting := [number for number in asked if number in self._open]) and time.monotonic() < deadline:
            # Without looking again and again: how many calls a server makes should not depend on how fast others are.
            left = max(0.0, deadline - time.monotonic())
            select.select([self._open[number][0] for number in waiting], [], [], left)
            replies += self.pull_messages(waiting)
        return replies


def _lost(asked: Message) -> Message:
    return Message(Error(ErrorCode.NODE_UNAVAILABLE, "the node is gone"), reply_to=asked)


def server(folder: Path, schedule: Schedule, birth: int, calls: int, attempts: int) -> None:
    """The same script again after each death; ``attempts`` are those of the whole session."""
    consortium = Consortium(folder=folder / "consortium")
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        min_roster=3,
        patience=2.0,
        arrival=schedule.arrival,
        scheme=SCHEMES[ProofMethod(schedule.scheme)],
    )

    def observe(report: RoundReport) -> None:
        with (folder / "reports.jsonl").open("a") as file:
            file.write(report.as_json(life=str(birth)) + "\n")

    remove(schedule.without)
    grid = SocketGrid(folder, birth)
    die_after(calls, folder, "server-0")
    first = None if read_state(terms.folder) else initial()
    if schedule.buffer:
        run = BufferedAverage(terms, observe, buffer=schedule.buffer)
        result = run.start(grid, first, num_rounds=attempts, timeout=TIMEOUT, evaluate_fn=evaluate)
    else:
        strategy = VerifiedAverage(terms, observe)
        result = strategy.start(grid, first, num_rounds=attempts, timeout=TIMEOUT, evaluate_fn=evaluate)
    (folder / "ended").write_text(json.dumps({"reason": result.reason}))


def evaluate(_number: int, arrays: ArrayRecord) -> MetricRecord:
    return MetricRecord({"accuracy": score_of(np.concatenate([array.numpy().ravel() for array in arrays.values()]))})


def score_of(model: np.ndarray) -> float:
    """A number that goes up and down from round to round, so that the best model is seldom the last."""
    return math.sin(1e3 * float(model.astype(np.float64).sum()))


# ------------------------------------------------------------------------------------------------------------ controls
def remove(safety: str) -> None:
    """Take one line of defence away from this server, for a control."""
    if safety:
        CONTROLS[safety]()


def _forget_what_is_concluded() -> None:
    """The next model is shown before it and the state that names it are on disk."""
    from lrdp.federation.server.coordinator import Coordinator

    genuine = Coordinator.conclude

    def conclude(self: Coordinator) -> Any:
        self.note = lambda **_: None  # type: ignore[method-assign]
        try:
            return genuine(self)
        finally:
            del self.note

    Coordinator.conclude = conclude  # type: ignore[method-assign]


CONTROLS = {"state before tags": _forget_what_is_concluded}
