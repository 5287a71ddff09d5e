"""Entering a session, and joining it after rounds missed: what a client believes of what a server shows it."""

from __future__ import annotations

from functools import lru_cache

from lrdp.errors import InvalidInput
from lrdp.federation.client.pins import check_pins, check_registry
from lrdp.federation.wire.layout import Layout, as_model
from lrdp.federation.wire.questions import CatchUp, Hello
from lrdp.federation.wire.signing import check_session_signed, run_identifier
from lrdp.integrity import (
    ClientState,
    Identity,
    ProofMethod,
    Registry,
    RoundReceipt,
    Session,
    client,
    follow_all,
    genesis,
    model_hash,
    named_registry,
    nothing_before,
    sketch_client,
)
from lrdp.integrity import registry as registries
from lrdp.ledger import Policy


class Behind(InvalidInput):
    """This client cannot follow: it must be greeted, and shown receipts and the model."""


@lru_cache(maxsize=4)
def _verified(registry: Registry, pin: bytes) -> Registry:
    return registries.verify(registry, pin)


def agreed_session(hello: Hello, policy: Policy, identity: Identity, layout: Layout) -> Session:
    """The session that a server proposes, if this client may take part in it.

    Guarantees: its registry, its server and its least roster are as the policy pins them, that server opened it, its
    model is the client's own, its method `sketch`. Of any other registry nothing is decoded or kept.
    """
    check_registry(named_registry(hello.session).hex(), policy)
    session = Session.decode(hello.session)
    check_pins(session, policy)
    check_session_signed(session, hello.signature)
    _verified(session.registry, session.registry.digest)
    if session.registry.by_name.get(identity.name) != identity.member:
        raise InvalidInput(f"the registry does not hold the keys of {identity.name}: have the consortium add them.")
    if identity.name != policy.identity.client:
        raise InvalidInput(f"the keys are those of {identity.name}, the policy is for {policy.identity.client}.")
    if not layout.is_described_by(hello.layout) or session.parameters.point.size != layout.size:
        raise InvalidInput(
            "the server's model is not this client's: names, order or shapes of parameters differ. A server starts "
            "from the trained alone, {name: p for name, p in model.named_parameters() if p.requires_grad}."
        )
    if (
        session.identifier != run_identifier(hello.nonce, hello.layout)
        or session.parameters.method != ProofMethod.SKETCH
    ):
        raise InvalidInput("the session is not bound to this model, or is not of the method `sketch`.")
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


def caught_up(ready: client.Ready, since: CatchUp) -> client.Ready:
    """From where the client stands to the end of the receipts, with a model that they end in."""
    receipts = [RoundReceipt.decode(data) for data in since.receipts]
    return client.catch_up(ready, receipts, as_model(since.model or b"", ready.model.size))


def joined(identity: Identity, session: Session, since: CatchUp, last_update: int) -> client.Ready:
    """The same from the session's beginning on.

    A client that does not know what it showed in this session shows no update again that it made before: up to
    ``last_update`` all are spent.
    """
    receipts = [RoundReceipt.decode(data) for data in since.receipts]
    model = as_model(since.model or b"", session.parameters.point.size)
    start = genesis(session, receipts[0].header.model if receipts else model_hash(model))
    position, scheme = follow_all(start, receipts), sketch_client(identity, session)
    return client.resume(identity, scheme, position, model, nothing_before(last_update))
