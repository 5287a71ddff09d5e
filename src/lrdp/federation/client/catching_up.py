"""Entering a session, and joining it after missed rounds: what a client believes of what a server shows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from lrdp.errors import InvalidInput
from lrdp.federation.client.lineage import Lineage
from lrdp.federation.client.pins import check_pins, check_registries
from lrdp.federation.wire.frames import Body
from lrdp.federation.wire.layout import Layout, as_model
from lrdp.federation.wire.questions import CatchUp, Hello
from lrdp.federation.wire.signing import check_session_signed, run_identifier
from lrdp.integrity import (
    KEY_SIZE,
    ClientScheme,
    ClientState,
    HistoryStep,
    Identity,
    ProofMethod,
    RoundReceipt,
    Session,
    client,
    exact_client,
    follow_all,
    genesis,
    model_hash,
    nothing_before,
    read_step,
    sketch_client,
)
from lrdp.ledger import Policy


class Behind(InvalidInput):
    """This client cannot follow: it must be greeted, and shown receipts and the model."""


def agreed_session(hello: Hello, policy: Policy, identity: Identity, layout: Layout) -> Session:
    """The session that a server proposes, as it was opened, if this client may take part in it.

    Guarantees: its registries, its server and its least roster are as the policy pins them, that server opened it and
    took these registries up, its scheme is the policy's, its model is the client's own. Nothing of a registry that the
    pinned one does not vouch for is decoded or kept.
    """
    shown = Lineage.of(hello)
    check_registries(shown.digests, policy)
    registries = shown.verified(bytes.fromhex(policy.peers.registry_sha256))
    session = Session.decode(hello.session)
    check_pins(session, shown.digests, policy)
    check_session_signed(session, registries[len(hello.ancestors) + 1 :], hello.signature)
    if identity.name != policy.identity.client:
        raise InvalidInput(f"the keys are those of {identity.name}, the policy is for {policy.identity.client}.")
    if not layout.is_described_by(hello.layout) or session.parameters.point.size != layout.size:
        raise InvalidInput(
            "the server's model is not this client's: names, order or shapes of parameters differ. A server starts "
            "from trained parameters alone, {name: p for name, p in model.named_parameters() if p.requires_grad}."
        )
    if session.identifier != run_identifier(hello.nonce, hello.layout):
        raise InvalidInput("the session is not bound to this model.")
    return session


def last_verified(state: ClientState) -> client.Ready:
    """Where a client can always go back to."""
    if isinstance(state, client.Ready):
        return state
    if isinstance(state, client.Begun):
        return state.ready
    if isinstance(state, client.Committed):
        return client.abandon(state)
    return client.roll_back(state)


@dataclass(frozen=True)
class ShownHistory:
    """What a server shows a client of a history: its steps, and the model after them where the client has another."""

    steps: tuple[HistoryStep, ...]
    model: Body | None

    @classmethod
    def of(cls, since: CatchUp) -> ShownHistory:
        return cls(tuple(read_step(data) for data in since.receipts), since.model)

    def __bool__(self) -> bool:
        return bool(self.steps) or self.model is not None


def caught_up(ready: client.Ready, shown: ShownHistory) -> client.Ready:
    """From where the client stands to the end of the steps, with a model that they end in."""
    model = ready.model if shown.model is None else as_model(shown.model, ready.model.size)
    return client.catch_up(ready, shown.steps, model, own_half)


def joined(identity: Identity, session: Session, shown: ShownHistory, last_update: int) -> client.Ready:
    """The same from the beginning of the session.

    A client that does not know what it showed in this session never again shows an update that it made before: all up
    to ``last_update`` are spent.
    """
    model = as_model(shown.model or b"", session.parameters.point.size)
    first = next((step.header.model for step in shown.steps if isinstance(step, RoundReceipt)), None)
    start = genesis(session, model_hash(model) if first is None else first)
    position = follow_all(start, shown.steps)
    return client.resume(identity, own_half(identity, position.session), position, model, nothing_before(last_update))


def own_half(identity: Identity, session: Session) -> ClientScheme:
    """A client's half of the session's method; where updates are masked, with a key made here and now."""
    halves: dict[ProofMethod, Callable[[], ClientScheme]] = {
        ProofMethod.SKETCH: lambda: sketch_client(identity, session),
        ProofMethod.EXACT: lambda: exact_client(identity, session, os.urandom(KEY_SIZE), ()),
    }
    return halves[session.parameters.method]()
