"""The server's side of a session: who stands where, what each client must be sent, and what came of it.

It knows nothing of Flower. A synchronous and an asynchronous loop drive it alike: greet, close, invite, take, announce,
tag, conclude.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from lrdp.errors import NotVerified
from lrdp.federation.archive import Archive
from lrdp.federation.layout import Layout, raw, unpack_values
from lrdp.federation.messages import Announcement, Closing, Done, Hello, Here, Work
from lrdp.federation.orders import Order
from lrdp.federation.pins import sign_order
from lrdp.federation.repetitions import Repetitions
from lrdp.integrity import Position, RoundReceipt, Wire, checks, endorse, server
from lrdp.integrity.fixed_point import Model, Room
from lrdp.integrity.repeats import Roster
from lrdp.integrity.schemes import transcript_challenge
from lrdp.integrity.server import Gathering, Idle, Published
from lrdp.ledger.policy import Retries

State = TypeVar("State")
_NOWHERE: Final = -1


@dataclass(frozen=True)
class Concluded:
    """A round that ended: where it began, its receipt, and the tags that prove it to those who took part."""

    position: Position
    receipt: RoundReceipt
    tags: bytes

    @property
    def names(self) -> tuple[str, ...]:
        return self.receipt.header.names

    @property
    def accepted(self) -> bool:
        """Whether so many accepted it that a client that was absent believes in it."""
        return len(self.receipt.accepts) >= self.position.session.parameters.quorum(len(self.names))


class Coordinator:
    """One session from its first model on."""

    def __init__(
        self, idle: Idle, hello: Hello, layout: Layout, archive: Archive, retries: Retries = Retries.SAME_ROSTER
    ) -> None:
        self._idle, self.hello, self.layout, self._archive = idle, hello, layout, archive
        self._retries, self.repetitions = retries, Repetitions(retries)
        self._gathering: Gathering | None = None
        self._published: Published | None = None
        self._history: list[Concluded] = []
        self._written = 0
        self._standing: dict[str, int] = {}
        self._owed: dict[str, int] = {}
        self._shown: memoryview | None = None
        self._room = Room()  # each round takes the memory of those before it

    @property
    def round(self) -> int:
        """The round to come."""
        return self._idle.position.round

    @property
    def model(self) -> Model:
        """The model after the last round that was concluded."""
        return self._idle.model

    @property
    def least(self) -> int:
        """How few can make a round."""
        return self._idle.position.session.parameters.min_roster

    @property
    def history(self) -> tuple[Concluded, ...]:
        """Every round that was concluded."""
        return tuple(self._history)

    # ------------------------------------------------------------------------------------------------- who stands where
    def greet(self, here: Here) -> None:
        """A client said where it stands; what it has not verified it will be shown."""
        heads = [ended.position.head for ended in self._history] + [self._idle.position.head]
        known = here.round < len(heads) and heads[here.round] == here.head
        if known and here.accept and here.round == self._owed.get(here.name, _NOWHERE) + 1:
            self.accept(here.name, here.accept)
        self._standing[here.name] = here.round if known else _NOWHERE
        if self._owed.get(here.name) != self._standing[here.name]:
            self._owed.pop(here.name, None)  # it has lost its tag

    def knows(self, here: Here) -> bool:
        """Whether a member of the registry said so, with its keys: nobody can stand in another's place."""
        session = self._idle.position.session
        member = session.registry.by_name.get(here.name)
        return member is not None and member.signed(here.signature, *here.claim(session.digest))

    def forget(self, name: str) -> None:
        """Whoever declined may have lost its place: it is asked again."""
        self._standing.pop(name, None)

    def _current(self, name: str) -> bool:
        took_part = name in self._owed and self._owed[name] == self.round - 1
        return took_part or self._standing.get(name) == self.round

    def can_follow(self, name: str) -> bool:
        """Whether the receipts that a client would need all have their quorum."""
        owed = self._owed.get(name)
        first = max(0, self._standing.get(name, _NOWHERE)) if owed is None else owed + 1
        return all(ended.accepted for ended in self._history[first:])

    def must_close(self, names: Collection[str]) -> bool:
        """Whether somebody invited was not there, and so needs the last round's receipt with its quorum."""
        return bool(self.open_tags()) and any(not self._current(name) for name in names)

    # -------------------------------------------------------------------------------------------------- closing a round
    def open_tags(self) -> dict[str, Closing]:
        """For everybody who took part in the last round and has not accepted it yet."""
        last = len(self._history) - 1
        return {name: Closing(tags=self._history[last].tags) for name, owed in self._owed.items() if owed == last}

    def accept(self, name: str, data: bytes) -> None:
        """An ACCEPT of the round that this client owed one for; what does not hold is left out of the receipt."""
        number = self._owed.get(name)
        if number is None:
            return
        ended = self._history[number]
        try:
            word = Wire(ended.position).read_accept(data)
        except NotVerified:
            return
        receipt = endorse(ended.position, ended.receipt, [word])
        if len(receipt.accepts) > len(ended.receipt.accepts):
            self._history[number] = replace(ended, receipt=receipt)
            self._standing[name] = number + 1
            del self._owed[name]

    # ---------------------------------------------------------------------------------------------------------- a round
    def invite(self, names: Sequence[str], order: Order | None) -> dict[str, Work]:
        """Open a round; without an order it is for updates that wait at the clients."""
        self._gathering, train = server.open_round(self._idle, names)
        opened = Wire(self._idle.position).train(train)
        asked = Work() if order is None else self._asking(self._renewed(order, train.invited))
        return {name: self._brought_up(name, replace(asked, train=opened)) for name in train.invited}

    def order_ahead(self, name: str, order: Order) -> Work:
        """Train now, for a round to come."""
        return self._brought_up(name, self._asking(self._renewed(order, ())))

    def _asking(self, order: Order) -> Work:
        """What everybody is asked in this round, under the server's signature."""
        asked = order.encode()
        return Work(order=asked, signature=sign_order(self._idle.identity, self._idle.position, asked))

    def _renewed(self, order: Order, roster: Roster) -> Order:
        """A count is never part of a sum, so the same one serves again."""
        return order if order.metrics else replace(order, renewal=self.repetitions.renewal(roster) or None)

    def _brought_up(self, name: str, asked: Work) -> Work:
        """With the tags of the last round it took part in, and the receipts of those it did not."""
        owed = self._owed.get(name)
        tags = b"" if owed is None else self._history[owed].tags
        work = replace(asked, heads=self._archive.heads_of(name), tags=tags)
        if self._current(name):
            return work
        first = max(0, self._standing.get(name, _NOWHERE)) if owed is None else owed + 1
        missed = tuple(ended.receipt.encode() for ended in self._history[first:])
        return replace(work, receipts=missed, model=self._model_bytes())

    def _model_bytes(self) -> memoryview:
        """The same object for all who need it in a round, so that it is serialised once."""
        if self._shown is None:
            self._shown = raw(self.model)
        return self._shown

    def reached(self, name: str, done: Done) -> None:
        """What every Done tells: the ledger's head, and that the client is up to date."""
        self._archive.keep_head(name, done.head)
        if name not in self._owed:
            self._standing[name] = self.round

    def take(self, done: Done) -> str:
        """Admit an update to the round; raises NotVerified or InvalidInput where it cannot be."""
        gathering = _there(self._gathering)
        values = unpack_values(done.values or b"", self._idle.position.session.parameters.point, self._room)
        update = Wire(self._idle.position).read_update(done.update, raw(values))
        self._gathering = server.admit(server.enlist(gathering, update.pledge), update)
        return update.pledge.name

    def publishable(self) -> bool:
        """Whether everybody whose update is there would stand by their sum."""
        gathering = _there(self._gathering)
        roster = tuple(sorted(update.pledge.name for update in gathering.updates))
        return self.repetitions.allow(roster, gathering.train.invited)

    def announce(self) -> tuple[Announcement, tuple[str, ...]]:
        """Sum what was admitted, and publish it to those whose it is."""
        self._published, publish = server.publish(_there(self._gathering), self._room)
        self.repetitions.publish(publish.header.names)
        self.write_down()
        head = Wire(self._idle.position).publish(publish)
        return Announcement(publish=head, aggregate=raw(publish.aggregate)), publish.header.names

    def tag(self, data: bytes) -> str:
        """A participant's tag; raises NotVerified where it does not hold."""
        tag = Wire(self._idle.position).read_tag(data)
        self._published = server.collect(_there(self._published), tag)
        return tag.name

    @property
    def missing_tags(self) -> set[str]:
        """Who has yet to sign what was published."""
        published = _there(self._published)
        return set(published.header.names) - {tag.name for tag in published.tags}

    def proved(self) -> bool:
        """Whether the tags sum up, as every participant will find: the masks cancel, so the server can tell too."""
        published = _there(self._published)
        tally = checks.TagTally(
            position=self._idle.position,
            header=published.header,
            tags=published.tags,
            expected=transcript_challenge(published.header, published.aggregate.size).tag(published.aggregate),
        )
        return checks.tags_sum_up(tally)

    def conclude(self) -> Concluded:
        """All tags are in: the next model."""
        published = _there(self._published)
        position = published.idle.position
        self._idle, receipt = server.conclude(published, [])
        tags = Wire(position).tags(server.all_tags(published), receipt.header)
        ended = Concluded(position, receipt, tags)
        self._owed.update(dict.fromkeys(ended.names, len(self._history)))
        self._history.append(ended)
        self._gathering = self._published = self._shown = None
        self.repetitions = Repetitions(self._retries)
        return ended

    def give_up(self) -> None:
        """Another attempt of the same round, from the same model. Who signed what in this one is kept."""
        if self._published is not None:
            published = self._published
            self.repetitions.fail(published.header.names, self.missing_tags)
            word = RoundReceipt(header=published.header, signature=published.signature, tags=published.tags, accepts=())
            self._archive.append_attempt(word)
        self._idle = replace(self._idle, attempt=self._idle.attempt + 1)
        self._gathering = self._published = None

    def write_down(self) -> None:
        """Keep the heads, and the receipts in order as far as each has its quorum: others prove nothing."""
        self._archive.save_heads()
        while self._written < len(self._history) and self._history[self._written].accepted:
            self._archive.append(self._history[self._written].receipt)
            self._written += 1


def _there(state: State | None) -> State:
    if state is None:
        raise RuntimeError("the steps of a round were called out of order.")
    return state
