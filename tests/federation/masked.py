"""A session of `exact` rounds with a server that need not play by the rules, and a watch over all that it receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message

from lrdp.federation import ExactRounds, Order
from lrdp.federation.client.standing import Standing
from lrdp.federation.server.coordinator import Coordinator
from lrdp.federation.server.revealing import _asking
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.masked import AbleToMask, MaskedAnnouncement, Pledged, Pledging, Reveal, Revealed
from lrdp.federation.wire.questions import (
    Accepted,
    Answer,
    CatchUp,
    Decline,
    Here,
    OwnTag,
    Question,
    read_message,
    to_frame,
)
from lrdp.federation.wire.signing import sign_order
from lrdp.integrity import ClientState, CommittedUpdate, Gathering, Identity, Publish, Published, Train, Wire, server
from lrdp.integrity.client import Committed
from lrdp.integrity.fixed_point import aggregate_hash, inspect
from lrdp.ledger import Scheme

from .hostile import VICTIM
from .worlds import World, initial, world

ORDER = Order(steps=2, learning_rate=0.3)
Alter = Callable[[Message], Message | None]


def masked_world(folder: Path, count: int = 4, **hooks: Any) -> World:
    return world(folder, count, scheme=Scheme.EXACT, **hooks)


def state_of(place: World, name: str) -> ClientState | None:
    """Where a hospital stands, as its own folder says."""
    home = place.consortium.client(name)
    return Standing(home.standing).load(home.identity())


def true_update(place: World, name: str) -> np.ndarray:
    """What a hospital committed to, before masks; nobody but itself has this."""
    state = state_of(place, name)
    assert isinstance(state, Committed), state
    return np.array(state.values)


def charges(place: World) -> list[int]:
    return [len(place.books(name).charges.states) for name in place.names]


def question_in(message: Message) -> Question | Answer:
    return read_message(from_message(message))


@dataclass(repr=False)
class MaskedStage:
    """A world in which every step of a round is asked for by hand."""

    world: World
    coordinator: Coordinator
    identity: Identity
    received: list[Frame] = field(default_factory=list)

    @property
    def names(self) -> list[str]:
        return self.world.names

    @property
    def wire(self) -> Wire:
        return Wire(self.coordinator._idle.position)

    def ask(self, question: Question, name: str = VICTIM) -> Answer:
        node = 1 + self.names.index(name)
        (reply,) = self.world.grid.send_and_receive([Message(to_records(to_frame(question)), node, "train")])
        given = from_message(reply)
        self.received.append(given)
        answer = read_message(given)
        assert isinstance(answer, Answer)
        return answer

    def greet(self) -> None:
        for name in self.names:
            here = self.ask(self.coordinator.hello, name)
            assert isinstance(here, Here), (name, here)
            self.coordinator.greet(here)
        for name, asked in self.coordinator.can_you(self.names, ORDER, tuple(self.names)).items():
            able = self.ask(asked, name)
            assert isinstance(able, AbleToMask), (name, able)
            self.coordinator.reached(name)
            self.coordinator.keys.put(name, able.key)

    def invite(self) -> dict[str, Pledging]:
        invited = self.coordinator.invite(self.names, ORDER)
        return {name: work for name, work in invited.items() if isinstance(work, Pledging)}

    def invite_as(self, names: list[str], order: bytes, train: Train) -> dict[str, Pledging]:
        """What an honest server would not ask: the same order, whatever was shown before."""
        signature = sign_order(self.identity, self.coordinator._idle.position, order)
        work = Pledging(order=order, signature=signature, invitation=self.wire.train(train), keys=(), since=CatchUp())
        return dict.fromkeys(names, work)

    def pledge(self) -> dict[str, Pledging]:
        """Everybody is bound."""
        invited = self.invite()
        for name, work in invited.items():
            pledged = self.ask(work, name)
            assert isinstance(pledged, Pledged), (name, pledged)
            self.coordinator.reached(name, pledged.head)
            self.coordinator.take(pledged)
        return invited

    def asking(self) -> Reveal:
        return _asking(self.coordinator)

    def reveal(self) -> dict[str, CommittedUpdate]:
        """Everybody's masked update is in."""
        asked = self.asking()
        for name in self.names:
            revealed = self.ask(asked, name)
            assert isinstance(revealed, Revealed), (name, revealed)
            gathering = self.coordinator.state(Gathering)
            update = self.wire.read_update(revealed.update, revealed.values or b"")
            self.coordinator.gather(server.admit(gathering, update))
        return {each.pledge.name: each for each in self.coordinator.state(Gathering).updates}

    def publish(self) -> Publish:
        self.coordinator.announce()
        published = self.coordinator.state(Published)
        return Publish(
            header=published.header,
            signature=published.signature,
            aggregate=published.aggregate,
            relayed=published.updates,
        )

    def conclude(self, said: Publish) -> None:
        """The honest end."""
        for name in self.names:
            tagged = self.ask(self.announcement(said), name)
            assert isinstance(tagged, OwnTag), (name, tagged)
            self.coordinator.tag(tagged.tag)
        assert self.coordinator.proved()
        self.coordinator.conclude()
        for name, closing in self.coordinator.open_tags().items():
            accepted = self.ask(closing, name)
            assert isinstance(accepted, Accepted), (name, accepted)
            self.coordinator.accept(name, accepted.accept)

    def announcement(self, said: Publish) -> MaskedAnnouncement:
        made = ExactRounds().announcement(self.wire, said)
        return replace(made, aggregate=bytes(made.aggregate or b""), relayed=bytes(made.relayed or b""))

    def resigned(self, said: Publish, aggregate: np.ndarray | None = None, **changes: Any) -> Publish:
        """What a competent cheat publishes: every hash recomputed, everything signed anew."""
        relayed = changes.pop("relayed", said.relayed)
        total = said.aggregate if aggregate is None else aggregate
        header = replace(said.header, **changes)
        point, model = self.coordinator._idle.position.session.parameters.point, self.coordinator.model
        step = inspect(model, total, len(header.roster), point)
        header = replace(header, next_model=step.next_model_hash, aggregate=aggregate_hash(total))
        signature = self.identity.sign(b"server/v1", header.digest)
        return Publish(header=header, signature=signature, aggregate=total, relayed=relayed)

    def account(self, name: str = VICTIM) -> tuple[int, int, float]:
        books = self.world.books(name)
        return len(books.charges.states), books.charges.steps, self.world.spent(name)

    def refused(self, question: Question, code: str, name: str = VICTIM) -> None:
        """Declined with this word, nothing charged, nothing sent with it, and the client stands where it stood."""
        before = self.account(name), state_bytes(self.world, name)
        answer = self.ask(question, name)
        assert isinstance(answer, Decline), answer
        assert answer.code == code
        assert not self.received[-1].bodies
        assert (self.account(name), state_bytes(self.world, name)) == before


def state_bytes(place: World, name: str) -> bytes:
    return (place.consortium.client(name).standing / "state").read_bytes()


def masked_stage(folder: Path, count: int = 3) -> MaskedStage:
    place = masked_world(folder, count)
    coordinator = place.strategy(scheme=ExactRounds())._terms.open(initial())
    made = MaskedStage(place, coordinator, place.consortium.server_identity())
    made.greet()
    return made
