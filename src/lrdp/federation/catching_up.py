"""Entering a session, and joining it after rounds missed: what a client believes of what a server shows it."""

from __future__ import annotations

from functools import lru_cache

from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.federation.layout import Layout, as_model
from lrdp.federation.messages import Hello, Work
from lrdp.integrity import Identity, Method, Position, Receipt, Registry, Session, client, follow_all, genesis
from lrdp.integrity import registry as registries
from lrdp.integrity.encoding import digest
from lrdp.integrity.fixed_point import model_hash
from lrdp.integrity.schemes import sketch_client
from lrdp.integrity.session import named_registry
from lrdp.integrity.states import ClientState
from lrdp.ledger import Policy, Refusal


class Behind(InvalidInput):
    """This client cannot follow: it must be greeted, and shown receipts and the model."""


def run_identifier(nonce: bytes, layout: bytes) -> bytes:
    """Names a run: the server's fresh nonce, bound to the model that everybody trains."""
    return digest(b"run/v1", nonce, layout)


@lru_cache(maxsize=4)
def _verified(registry: Registry, pin: bytes) -> Registry:
    return registries.verify(registry, pin)


def agreed_session(hello: Hello, policy: Policy, identity: Identity, layout: Layout) -> Session:
    """The session that a server proposes, if this client may take part in it.

    Guarantees: its registry is the one that the policy pins, its model the client's own, its method `sketch`. Of any
    other registry nothing is decoded or kept.
    """
    named = named_registry(hello.session).hex()
    if named != policy.registry_sha256:
        raise PolicyRefused(
            f"the server's registry is {named[:12]}, the policy pins "
            f"{policy.registry_sha256[:12] or 'none'} ({policy.where('peers.registry_sha256')}): nothing was trained.",
            Refusal.REGISTRY,
        )
    session = Session.decode(hello.session)
    _verified(session.registry, session.registry.digest)
    if session.registry.by_name.get(identity.name) != identity.member:
        raise InvalidInput(f"the registry does not hold the keys of {identity.name}: have the consortium add them.")
    if identity.name != policy.identity.client:
        raise InvalidInput(f"the keys are those of {identity.name}, the policy is for {policy.identity.client}.")
    if hello.layout != layout.described or session.parameters.point.size != layout.size:
        raise InvalidInput("the server's model is not this client's: names, order or shapes of parameters differ.")
    if session.identifier != run_identifier(hello.nonce, hello.layout) or session.parameters.method != Method.SKETCH:
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


def caught_up(identity: Identity, session: Session, state: ClientState | None, work: Work) -> client.Ready:
    """At the end of the receipts, with a model that they end in."""
    receipts = [Receipt.decode(data) for data in work.receipts]
    model = as_model(work.model or b"", session.parameters.point.size)
    start: Position
    if state is not None and last_verified(state).position.session == session:
        ready = last_verified(state)
        return client.catch_up(ready, receipts, model)
    start = genesis(session, receipts[0].header.model if receipts else model_hash(model))
    return client.resume(identity, sketch_client(identity, session), follow_all(start, receipts), model)
