"""A server with real keys that need not play by the rules: it talks to real client apps, whose ledgers are on disk."""

from __future__ import annotations

import os
import pickle
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict

from lrdp.codec import pack, unpack
from lrdp.federation import Order
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.masked import MaskedAnnouncement
from lrdp.federation.wire.questions import (
    NOWHERE,
    Accepted,
    Announcement,
    Answer,
    CatchUp,
    Contribute,
    Contributed,
    Count,
    Decline,
    Here,
    OwnTag,
    Question,
    TrainAhead,
    read_message,
    to_frame,
)
from lrdp.federation.wire.signing import sign_order
from lrdp.integrity import Identity, Position, Session, Train, Verdict, Wire, genesis, server
from lrdp.integrity.fixed_point import MODEL, Model, model_hash
from lrdp.ledger import Books, Refusal
from lrdp.ledger.starting import Home

from .worlds import World, initial, world

VICTIM = "hospital-0"
HONEST = Order(steps=2, learning_rate=0.3)
CODES = frozenset(
    {each.value for each in Refusal}
    | {each.value for each in Verdict}
    | {"behind", "left", "no-member", "answered", "ledger", "invalid", "failed", "no-guard"}
)
"""Everything that a client may say when it declines."""


@dataclass(repr=False)
class Stage:
    """A world, and the session of a server that has all of the real server's keys."""

    world: World
    coordinator: Coordinator
    identity: Identity

    @property
    def names(self) -> list[str]:
        return self.world.names

    @property
    def session(self) -> Session:
        return self.coordinator._idle.position.session

    @property
    def wire(self) -> Wire:
        return Wire(self.coordinator._idle.position)

    # ---------------------------------------- asking
    def post(self, content: RecordDict, kind: str = "train", name: str = VICTIM) -> Message:
        """A message of this content through the real app; the reply as it arrives."""
        node = 1 + self.names.index(name)
        (reply,) = self.world.grid.send_and_receive([Message(content, node, kind)])
        return reply

    def send(self, given: Frame, name: str = VICTIM) -> Answer:
        return answer_in(self.post(to_records(given), name=name))

    def ask(self, question: Question, name: str = VICTIM) -> Answer:
        return self.send(to_frame(self.signed(question)), name)

    def signed(self, question: Question) -> Question:
        """The same question; whatever it orders, the server stands by it."""
        if not isinstance(question, Contribute | TrainAhead | Count):
            return question
        position = self.coordinator._idle.position
        since = question.since
        if since.model is not None and not since.receipts:
            position = self._beginning(np.frombuffer(since.model, dtype=MODEL))
        return replace(question, signature=sign_order(self.identity, position, question.order))

    def _beginning(self, model: Model) -> Position:
        """Of the session, if this were its first model; nobody can hash what is not finite."""
        return genesis(self.session, model_hash(model) if np.isfinite(model).all() else NOWHERE)

    # ---------------------------------------- honest behaviour
    def greet(self) -> None:
        for name in self.names:
            here = self.ask(self.coordinator.hello, name)
            assert isinstance(here, Here), (name, here)
            self.coordinator.greet(here)

    def invitation(self, order: Order = HONEST) -> Contribute:
        """What an honest server would send the victim now."""
        asked = self.coordinator.invite(self.names, order)[VICTIM]
        assert isinstance(asked, Contribute), asked
        return asked

    def gather(self, order: Order = HONEST) -> None:
        for name, work in self.coordinator.invite(self.names, order).items():
            done = self.ask(work, name)
            assert isinstance(done, Contributed), (name, done)
            self.coordinator.reached(name, done.head)
            self.coordinator.take(done)

    def publish(self, announced: tuple[Announcement | MaskedAnnouncement, tuple[str, ...]] | None = None) -> None:
        announcement, names = announced or self.coordinator.announce()
        for name in names:
            tagged = self.ask(announcement, name)
            assert isinstance(tagged, OwnTag), (name, tagged)
            self.coordinator.tag(tagged.tag)
        assert self.coordinator.proved()

    def close(self) -> None:
        for name, closing in self.coordinator.open_tags().items():
            accepted = self.ask(closing, name)
            assert isinstance(accepted, Accepted), (name, accepted)
            self.coordinator.accept(name, accepted.accept)

    def honest_round(self) -> None:
        self.greet()
        self.gather()
        self.publish()
        self.coordinator.conclude()
        self.close()

    def fresh(self) -> Stage:
        """The same world in a session of its own."""
        return Stage(self.world, opened(self.world), self.identity)

    # ---------------------------------------- dishonest means
    def signed_train(self, signer: Identity | None = None, **changes: Any) -> bytes:
        """TRAIN with changes, and a signature that is right for them."""
        _, train = server.open_round(self.coordinator._idle, self.names)
        changed: Train = replace(train, **changes)
        signature = (signer or self.identity).sign(b"train/v1", changed.unsigned)
        return self.wire.train(replace(changed, signature=signature))

    def from_model(self, model: Model) -> Contribute:
        """An invitation to a session's first round on any model, signed for the history that begins with it."""
        position = self._beginning(model)
        train = Train(
            session=self.session.digest, round=0, attempt=0, tip=position.tip, invited=tuple(sorted(self.names))
        )
        signature = self.identity.sign(b"train/v1", train.unsigned)
        signed = Wire(position).train(replace(train, signature=signature))
        since = CatchUp(model=model.tobytes())
        return Contribute(order=HONEST.encode(), signature=b"", invitation=signed, since=since)

    # ---------------------------------------- the books
    def books(self, name: str = VICTIM) -> Books:
        return self.world.books(name)

    def account(self, name: str = VICTIM) -> tuple[int, int, float]:
        """Charges, steps and ε: what must not move when something is refused."""
        books = self.books(name)
        return len(books.charges.states), books.charges.steps, self.world.spent(name)

    def files(self) -> set[str]:
        """Every file of the consortium that is not a state's vector."""
        folder = self.world.consortium.folder
        found = {str(path.relative_to(folder)) for path in folder.rglob("*")}
        return {name for name in found if "/session/" not in name}


def opened(given: World) -> Coordinator:
    return given.strategy()._terms.open(initial())


def stage(folder: Path, **policy: str) -> Stage:
    """Three hospitals that were greeted; ``policy`` changes lines of each one's policy before."""
    made = world(folder, 3)
    for name in made.names:
        change_policy(made, name, **policy)
    return Stage(made, opened(made), made.consortium.server_identity())


def change_policy(given: World, name: str, **changes: str) -> None:
    path = Home(folder=given.consortium.client(name).folder).policy
    lines = path.read_text(encoding="utf-8").splitlines()
    for key, value in changes.items():
        (place,) = (place for place, line in enumerate(lines) if line.startswith(f"{key} ="))
        lines[place] = f"{key} = {value}"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def answer_in(reply: Message) -> Answer:
    """The answer in a reply, which must be a listed one, encoded in the one way there is, and nothing beside it."""
    assert not reply.has_error()
    assert list(reply.content) == ["lrdp"]
    given = from_message(reply)
    answer = read_message(given)
    assert isinstance(answer, Answer)
    again = to_frame(answer)
    assert again.prefix == given.prefix
    assert list(map(bytes, again.bodies)) == list(map(bytes, given.bodies))
    if isinstance(answer, Decline):
        assert answer.code in CODES
        assert not given.bodies
    return answer


def shown(work: Contribute, **changes: Any) -> Contribute:
    """The same work for a client that is brought up to date otherwise."""
    return replace(work, since=replace(work.since, **changes))


def ordering(work: Contribute, order: bytes) -> Contribute | Count:
    """The same with another order; one that counts is asked as a count."""
    counts = order.startswith(b"\x08order/v1") and bool(unpack(order)[-1])
    return Count(order=order, signature=b"", since=work.since) if counts else replace(work, order=order)


def raw_order(**given: Any) -> bytes:
    """An order that our own class would not let anybody write."""
    whole = [given.pop(name, None) for name in ("steps", "batch_size", "renewal")]
    scales = [given.pop(name, None) for name in ("noise_multiplier", "clip_norm", "learning_rate")]
    metrics = pack(*map(str.encode, given.pop("metrics", ())))
    assert not given, "an order has no such field"
    numbers = [b"" if value is None else value.to_bytes(8, "little") for value in whole]
    return pack(
        b"order/v1", *numbers, *(b"" if value is None else struct.pack("<d", value) for value in scales), metrics
    )


class Bomb:
    """What a pickle can do to whoever loads it: here it makes a file."""

    def __init__(self, canary: Path) -> None:
        self._canary = canary

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._canary),)


def pickled(canary: Path) -> bytes:
    return pickle.dumps(Bomb(canary), protocol=0)


def standing(given: Stage) -> dict[str, bytes]:
    """Where the victim stands, as it lies on disk."""
    folder = given.world.consortium.client(VICTIM).standing
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name in ("agreed", "state", "waiting")}


def refused(given: Stage, question: Question, code: str) -> None:
    """Declined with this code; nothing charged, no file made, and the client stands where it stood."""
    before = given.account(), given.files(), standing(given)
    answer = given.ask(question)
    assert isinstance(answer, Decline), answer
    assert answer.code == code
    assert (given.account(), given.files(), standing(given)) == before
