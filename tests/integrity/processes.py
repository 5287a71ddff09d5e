"""A federation whose parties have bytes on a disk and nothing else, as under Flower: bytes in, bytes out.

A client forgets everything else between two messages; a server, which lives through a round, between two rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from integrity.parties import Federation
from lrdp.integrity import Wire, client, endorse, server, states
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import Accept, Header
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.session import Position


@dataclass
class Disk:
    """What outlives a process: one state and its vectors, each as bytes with its type."""

    state: bytes = b""
    vectors: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def write(self, state: bytes, vectors: Mapping[str, Whole]) -> None:
        self.state = state
        self.vectors = {name: (values.dtype.str, values.tobytes()) for name, values in vectors.items()}

    def read(self) -> dict[str, Whole]:
        return {name: np.frombuffer(raw, kind) for name, (kind, raw) in self.vectors.items()}


@dataclass
class ClientProcess:
    """Each method is one process: it reads the disk, does one step, writes the disk, and only then answers."""

    identity: Identity
    disk: Disk = field(default_factory=Disk)

    def load(self) -> Any:
        return states.decode_client(self.disk.state, self.identity, self.disk.read())

    def save(self, state: states.ClientState) -> None:
        self.disk.write(states.encode_client(state), states.client_vectors(state))

    def settle(self, tags: bytes) -> bytes:
        """M5: the last round is VERIFIED, or this raises and the disk is as it was."""
        tagged = self.load()
        wire = Wire(tagged.ready.position)
        ready, accept = client.settle(tagged, wire.read_tags(tags, tagged.header))
        self.save(ready)
        return wire.accept(accept)

    def catch_up(self, receipts: list[bytes], model: Whole) -> None:
        self.save(client.catch_up(self.load(), [RoundReceipt.decode(one) for one in receipts], model))

    def pledge(self, train: bytes, values: Whole, nonce: bytes) -> bytes:
        ready = self.load()
        wire = Wire(ready.position)
        committed = client.commit(
            client.begin(ready, wire.read_train(train)), values, nonce, update=ready.position.round + 1
        )
        self.save(committed)
        return wire.pledge(committed.pledge)

    def reveal(self, pledges: list[bytes]) -> tuple[bytes, bytes]:
        committed = self.load()
        wire = Wire(committed.begun.ready.position)
        committed, update = client.reveal(committed, [wire.read_pledge(one) for one in pledges])
        self.save(committed)
        return wire.update(update), update.values.tobytes()

    def answer(self, publish: bytes, *bodies: bytes) -> bytes:
        committed = self.load()
        wire = Wire(committed.begun.ready.position)
        tagged, tag = client.answer(committed, wire.read_publish(publish, *bodies))
        self.save(tagged)
        return wire.tag(tag)

    def give_up(self) -> None:
        """The server says that the attempt came to nothing: back to the last verified model."""
        state = self.load()
        self.save(client.roll_back(state) if isinstance(state, client.Tagged) else client.abandon(state))


@dataclass
class Open:
    """A receipt that still waits for ACCEPTs, and the position where its round began."""

    position: Position
    receipt: RoundReceipt

    def endorse(self, accepts: list[bytes]) -> RoundReceipt:
        wire = Wire(self.position)
        words: list[Accept] = [wire.read_accept(one) for one in accepts]
        self.receipt = endorse(self.position, self.receipt, words)
        return self.receipt


@dataclass
class ServerProcess:
    """``state`` is a round under way, which a process that dies forgets."""

    identity: Identity
    disk: Disk = field(default_factory=Disk)
    state: Any = None

    def load(self) -> server.Idle:
        return states.decode_server(self.disk.state, self.identity, self.disk.read()["model"])

    def save(self, idle: server.Idle) -> None:
        self.disk.write(states.encode_server(idle), {"model": idle.model})
        self.state = None

    @property
    def wire(self) -> Wire:
        return Wire(self.state.idle.position)

    def open(self, names: list[str]) -> bytes:
        self.state, train = server.open_round(self.load(), names)
        return self.wire.train(train)

    def enlist(self, pledge: bytes) -> None:
        self.state = server.enlist(self.state, self.wire.read_pledge(pledge))

    def admit(self, prefix: bytes, body: bytes) -> None:
        self.state = server.admit(self.state, self.wire.read_update(prefix, body))

    def pledges(self) -> list[bytes]:
        return [self.wire.pledge(one) for one in self.state.pledges]

    def publish(self) -> tuple[Header, list[bytes]]:
        self.state, publish = server.publish(self.state)
        bodies = [publish.aggregate.tobytes(), *(update.values.tobytes() for update in publish.relayed)]
        return publish.header, [self.wire.publish(publish), *bodies]

    def collect(self, tag: bytes) -> None:
        self.state = server.collect(self.state, self.wire.read_tag(tag))

    def tags(self) -> bytes:
        return self.wire.tags(server.all_tags(self.state), self.state.header)

    def conclude(self) -> Open:
        position = self.state.idle.position
        idle, receipt = server.conclude(self.state, [])
        self.save(idle)
        return Open(position, receipt)

    def retry(self) -> None:
        self.save(server.retry(self.load()))


def processes(world: Federation) -> tuple[ServerProcess, dict[str, ClientProcess]]:
    """The same federation, on disks."""
    host = ServerProcess(world.idle.identity)
    host.save(world.idle)
    clients = {name: ClientProcess(ready.identity) for name, ready in world.clients.items()}
    for name, ready in world.clients.items():
        clients[name].save(ready)
    return host, clients


def play_round(
    host: ServerProcess, clients: Mapping[str, ClientProcess], updates: Mapping[str, tuple[Whole, bytes]]
) -> tuple[Open, bytes]:
    """A round up to the tags, every client through its disk at every step; the receipt waits for ACCEPTs."""
    train = host.open(list(updates))
    for name, (values, nonce) in updates.items():
        host.enlist(clients[name].pledge(train, values, nonce))
    for name in updates:
        host.admit(*clients[name].reveal(host.pledges()))
    _, publish = host.publish()
    for name in updates:
        host.collect(clients[name].answer(*publish))
    tags = host.tags()
    return host.conclude(), tags
