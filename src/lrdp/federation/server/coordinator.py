"""The server's side of a session: who stands where, what each client must be sent, and what came of it.

It knows nothing of Flower. A synchronous and an asynchronous loop drive it alike: greet, close, invite, take, announce,
tag, conclude.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar, Unpack

from lrdp.federation.server.archive import Archive
from lrdp.federation.server.chronicle import Chronicle, Concluded
from lrdp.federation.server.mask_keys import MaskKeys
from lrdp.federation.server.repetitions import Repetitions, ShownSum
from lrdp.federation.server.saved_state import Progress, ProgressChange
from lrdp.federation.server.saving import saved
from lrdp.federation.server.schemes import Conduct
from lrdp.federation.wire.layout import Layout, raw
from lrdp.federation.wire.masked import Pledged
from lrdp.federation.wire.orders import Order
from lrdp.federation.wire.questions import (
    CanYou,
    CatchUp,
    Closing,
    Contribute,
    Contributed,
    Count,
    HandIn,
    Hello,
    Here,
    Sum,
    TrainAhead,
    Work,
)
from lrdp.federation.wire.signing import rotated_hello, sign_order
from lrdp.integrity import (
    Gathering,
    Idle,
    Model,
    Publish,
    Published,
    Registry,
    Room,
    Roster,
    Session,
    Wire,
    server,
)

Phase = TypeVar("Phase", Idle, Gathering, Published)
Publishing = Callable[[Gathering, Room], tuple[Published, Publish]]


class Coordinator:
    """One session from its first model on."""

    def __init__(
        self, idle: Idle, hello: Hello, layout: Layout, archive: Archive, conduct: Conduct | None = None
    ) -> None:
        self._state: Idle | Gathering | Published = idle
        self._retries, self.scheme = conduct or Conduct()
        self.keys, self.order = MaskKeys(idle.position.session, needed=self.scheme.masks), Order()
        self.hello, self.layout, self.archive = hello, layout, archive
        self.repetitions = Repetitions(self._retries)
        self.chronicle, self.progress = Chronicle(), Progress()
        self._shown: memoryview | None = None
        self._room = Room()  # each round takes the memory of those before it

    def go_on(self, chronicle: Chronicle, shown: Iterable[ShownSum], progress: Progress) -> None:
        """Take up a session where a state of it was saved."""
        self.chronicle, self.progress = chronicle, progress
        self.repetitions = Repetitions(self._retries, shown)

    @property
    def _idle(self) -> Idle:
        return self._state if isinstance(self._state, Idle) else self._state.idle

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
        """The fewest participants that a round may have."""
        return self._idle.position.session.parameters.min_roster

    @property
    def members(self) -> Collection[str]:
        """Everybody who may take part."""
        return self.registry.by_name.keys()

    @property
    def registry(self) -> Registry:
        """The one in force."""
        return self._idle.position.session.registry

    @property
    def history(self) -> tuple[Concluded, ...]:
        """Every round that was concluded."""
        return tuple(self.chronicle.rounds)

    # ------------------------------------------------------------------------------------------------- who stands where
    def greet(self, here: Here) -> None:
        """A client said where it stands; what it has not verified it will be shown."""
        self.chronicle.greet(here, self._idle.position.tip)

    def knows(self, here: Here) -> bool:
        """Whether a member of the registry said so, with its keys: nobody can stand in another's place."""
        member, opened = self.registry.by_name.get(here.name), Session.decode(self.hello.session)
        return member is not None and member.signed(here.signature, *here.claim(opened.digest))

    def forget(self, name: str) -> None:
        """Whoever declined may have lost its place: it is asked again."""
        self.chronicle.forget(name)
        self.keys.forget(name)

    def must_close(self, names: Collection[str]) -> bool:
        """Whether the last round's ACCEPTs are asked for now, with these there, and not with the next question."""
        return self.chronicle.must_confirm(names, self.members)

    def open_tags(self) -> dict[str, Closing]:
        """TAGS for everybody who took part in the last round and has yet to accept it."""
        return {name: Closing(tags=self.chronicle.tags_for(name)) for name in self.chronicle.waiting()}

    def accept(self, name: str, data: bytes) -> None:
        """An ACCEPT of the round that this client owed one for."""
        self.chronicle.accept(name, data)

    @property
    def between_rounds(self) -> bool:
        """Whether the registry may be replaced: nobody who signed a tag in a round follows another before it ends."""
        return isinstance(self._state, Idle) and not self.repetitions.begun

    def rotate(self, registry: Registry) -> set[str]:
        """Put the consortium's next registry in force; the names of those whose keys it does not hold any more.

        Raises NotVerified if it is not the consortium's, not due, or too small for the session's rounds.
        """
        before = self.state(Idle)
        self._state = server.rotate(before, registry)
        # Another registry makes another session, with mask keys of its own.
        self.keys = MaskKeys(self._idle.position.session, needed=self.scheme.masks)
        gone = self.chronicle.rotate(before.position, registry)
        self.hello = rotated_hello(self.hello, before.identity, self.chronicle.rotations)
        self.write_down()
        return gone

    # ---------------------------------------------------------------------------------------------------------- a round
    def can_you(self, names: Sequence[str], order: Order, roster: Roster) -> dict[str, CanYou]:
        """Ahead of work: would each obey the order that it would be sent, as one of ``roster``?"""
        asked, signature = self._asking(self._renewed(order, roster))
        return {name: CanYou(order=asked, signature=signature, since=self._since(name)) for name in names}

    def invite(self, names: Sequence[str], order: Order | None) -> dict[str, Work]:
        """Open a round; without an order it is for updates that wait at the clients."""
        self._state, train = server.open_round(self._idle, names)
        invitation = Wire(self._idle.position).train(train)
        if order is None:
            return {name: HandIn(invitation=invitation, since=self._since(name)) for name in train.invited}
        self.order = order
        asked, signature = self._asking(self._renewed(order, train.invited))
        work, keys = Contribute(order=asked, signature=signature, invitation=invitation), self.keys.of(train.invited)
        return {name: self.scheme.invitation(replace(work, since=self._since(name)), keys) for name in train.invited}

    def order_ahead(self, name: str, order: Order) -> TrainAhead:
        """Train now, for a round to come."""
        asked, signature = self._asking(self._renewed(order, ()))
        return TrainAhead(order=asked, signature=signature, since=self._since(name))

    def order_count(self, name: str, order: Order) -> Count:
        """A count is never part of a sum, so the same one serves again."""
        asked, signature = self._asking(order)
        return Count(order=asked, signature=signature, since=self._since(name))

    def _asking(self, order: Order) -> tuple[bytes, bytes]:
        """What everybody is asked in this round, and the server's signature on it."""
        asked = order.encode()
        return asked, sign_order(self._idle.identity, self._idle.position, asked)

    def _renewed(self, order: Order, roster: Roster) -> Order:
        return replace(order, renewal=self.repetitions.renewal(roster) or None)

    def _since(self, name: str) -> CatchUp:
        """The tags of the last round it took part in, and the receipts of those it did not."""
        since = CatchUp(heads=self.archive.heads_of(name), tags=self.chronicle.tags_for(name))
        model = None if self.chronicle.current(name) else self._model_bytes()
        return replace(since, receipts=self.chronicle.tell(name), model=model)

    def _model_bytes(self) -> memoryview:
        """The same object for all who need it in a round, so that it is serialised once."""
        if self._shown is None:
            self._shown = raw(self.model)
        return self._shown

    def reached(self, name: str, head: str = "") -> None:
        """What an answer tells: that the client is up to date, and after work its ledger's head."""
        self.archive.keep_head(name, head)
        self.chronicle.reached(name)

    def take(self, given: Contributed | Pledged) -> str:
        """Admit an update to the round; raises NotVerified or InvalidInput if it cannot be admitted."""
        self._state, name = self.scheme.taken(self.state(Gathering), given, self._room)
        return name

    def publishable(self) -> bool:
        """Whether everybody who is bound to an update would stand by their sum."""
        gathering = self.state(Gathering)
        roster = tuple(sorted(pledge.name for pledge in gathering.pledges))
        return self.repetitions.allow(roster, gathering.train.invited)

    def bury(self, lost: Collection[str]) -> None:
        """Those who were asked for an update again, and have lost it."""
        self.repetitions.bury(self.state(Gathering).train.invited, lost)

    def gather(self, gathering: Gathering) -> None:
        """The round that is open, with more pledges or updates."""
        self._state = gathering

    def announce(self, publish: Publishing = server.publish) -> tuple[Sum, tuple[str, ...]]:
        """Sum what was admitted, and publish it to those whose it is."""
        self._state, said = publish(self.state(Gathering), self._room)
        self.repetitions.publish(said.header.names)
        self.write_down()  # before anybody sees the sum: a server that forgot it might show another of the same updates
        return self.scheme.announcement(Wire(self._idle.position), said), said.header.names

    def tag(self, data: bytes) -> str:
        """A participant's tag; raises NotVerified where it does not hold."""
        tag = Wire(self._idle.position).read_tag(data)
        self._state = server.collect(self.state(Published), tag)
        return tag.name

    @property
    def missing_tags(self) -> set[str]:
        """Who has yet to sign what was published."""
        published = self.state(Published)
        return set(published.header.names) - {tag.name for tag in published.tags}

    def all_tags(self) -> bytes:
        """Everybody's tags, as they travel."""
        published = self.state(Published)
        return Wire(published.idle.position).tags(server.all_tags(published), published.header)

    def proved(self) -> bool:
        """Whether the tags add up, as every participant will find: the masks cancel, so the server can tell too."""
        return server.proved(self.state(Published))

    def conclude(self) -> Concluded:
        """All tags are in: the next model, on disk before anybody sees the tags and moves on to it."""
        published, tags = self.state(Published), self.all_tags()
        self._state, receipt = server.conclude(published, [])
        ended = Concluded(published.idle.position, receipt, tags)
        self.chronicle.conclude(ended)
        self._shown = None
        self.repetitions = Repetitions(self._retries)
        self.archive.models.put(self._idle.position, self.model, self.hello)
        self.note(tried=self.progress.tried + 1)
        return ended

    def give_up(self, liars: Collection[str] = ()) -> None:
        """Another attempt of the same round, from the same model. Who signed what in this one is kept."""
        if (shown := self.scheme.shown(self._state)) is not None and self.repetitions.published(shown[0]):
            self.repetitions.fail(shown[0], shown[1] | set(liars))
        if isinstance(published := self._state, Published):
            self.archive.append_attempt(server.conclude(published, [])[1])
        self._state = server.retry(self._idle)
        self.note(tried=self.progress.tried + 1)

    # ---------------------------------------------------------------------------------------------------------- on disk
    def begin(self) -> None:
        """Keep the first model and the session, before anybody is greeted."""
        self.archive.models.put(self._idle.position, self.model, self.hello)
        self.write_down()

    def note(self, **changes: Unpack[ProgressChange]) -> None:
        """Change the progress, and save."""
        self.progress = replace(self.progress, **changes)
        self.write_down()
        self.archive.models.keep_only({self.round, self.progress.best or self.round})

    def write_down(self) -> None:
        """Save the state that a restarted server goes on from; then the history, whose file says nothing beyond it."""
        known = self.chronicle, self.repetitions, self.progress
        shown = self.scheme.shown(self._state)
        self.archive.save(saved(self._idle, shown and shown[0], self.hello, *known, self.archive))
        self.archive.add_accepted(self.chronicle.steps)

    def state(self, kind: type[Phase]) -> Phase:
        """The state of the protocol, if it is of this kind; raises RuntimeError otherwise."""
        if not isinstance(self._state, kind):
            raise RuntimeError("the steps of a round were called out of order.")
        return self._state
