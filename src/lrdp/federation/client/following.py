"""Where a client stands in a session, and how it comes to where the others are: over rounds and registries."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from lrdp.federation.client.catching_up import Behind, ShownHistory, agreed_session, caught_up, joined, last_verified
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.lineage import Lineage, require_member
from lrdp.federation.client.local_task import Workbench
from lrdp.federation.client.pins import check_pins
from lrdp.federation.client.standing import Standing
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import CatchUp, Hello, read_message, to_frame
from lrdp.integrity import ClientState, Session, client


@dataclass(frozen=True)
class Follower:
    """A client's session on disk, and what its policy pins."""

    home: ClientHome
    bench: Workbench
    standing: Standing

    def entered(self, hello: Hello) -> Session:
        """The session that a server proposes, as it was opened, once the client is in it."""
        session, shown = self._agreed_session(hello), Lineage.of(hello)
        shown.require_newest(Lineage(self.standing.registries()))
        self.standing.follow(shown.encoded)  # even if it is no longer a member: it takes part in nothing older
        require_member(self.home.identity(), shown.newest)
        self.standing.enter(session.digest, to_frame(hello).prefix)
        return session

    def up_to_date(self, since: CatchUp) -> tuple[client.Ready, tuple[bytes, ...]]:
        """The verified state to train from, and the digests of the registries up to the one in force.

        The session must still be as the policy pins it.
        """
        state, shown = self.standing.load(self.home.identity()), ShownHistory.of(since)
        if state is None and shown.model is None:
            raise Behind("this client has no model: it needs the model and the receipts of all rounds so far.")
        ready = last_verified(state) if state is not None and not shown else self._followed(state, shown)
        registries = Lineage(self.standing.registries()).followed(ready.position.session.registry, ())
        check_pins(ready.position.session, registries.digests, self.home.policy())  # it may have changed
        return ready, registries.digests

    def _followed(self, state: ClientState | None, shown: ShownHistory) -> client.Ready:
        """After rounds that this client did not take part in, or under a registry that replaced another."""
        identity, session = self.home.identity(), self._agreed_session(self._agreed())
        if state is not None:
            start = last_verified(state)
            before, ready = start.position.session.registry, caught_up(start, shown)
        else:
            before, ready = session.registry, joined(identity, session, shown, self._last_update())
        registries = Lineage(self.standing.registries()).followed(before, shown.steps)
        self.standing.follow(registries.encoded)
        require_member(identity, ready.position.session.registry)
        self.standing.save(ready)
        return ready

    def _agreed(self) -> Hello:
        hello = read_message(Frame(self.standing.agreed() or b""))
        if not isinstance(hello, Hello):
            raise Behind("this client has not been greeted.")
        return hello

    def _agreed_session(self, hello: Hello) -> Session:
        return agreed_session(hello, self.home.policy(), self.home.identity(), self.bench.layout)

    def _last_update(self) -> int:
        with closing(self.home.ledger()) as ledger:
            return ledger.books.seq
