"""What a server signs besides the integrity protocol, and how a session is named: both sides must agree on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lrdp.codec import NUMBER
from lrdp.federation.wire.questions import Hello
from lrdp.integrity import Identity, Position, Registry, Session, Verdict, digest, rejection, verifies


def run_identifier(nonce: bytes, layout: bytes) -> bytes:
    """Names a run: the server's fresh nonce, bound to the model that everybody trains."""
    return digest(b"run/v1", nonce, layout)


def sign_session(identity: Identity, session: Session, rotations: Sequence[Registry] = ()) -> bytes:
    """The server's word that the session is its own, and under which registries: anybody can name another's key."""
    return identity.sign(b"hello/v1", session.digest, *(registry.digest for registry in rotations))


def rotated_hello(hello: Hello, identity: Identity, rotations: Sequence[Registry]) -> Hello:
    """The same greeting after these registries were taken up."""
    signature = sign_session(identity, Session.decode(hello.session), rotations)
    return replace(hello, rotations=tuple(each.encode() for each in rotations), signature=signature)


def check_session_signed(session: Session, rotations: Sequence[Registry], signature: bytes) -> None:
    """Refuse a session that its server's key did not sign, with the registries that the server took up in it."""
    digests = (registry.digest for registry in rotations)
    if not verifies(session.server_key, signature, b"hello/v1", session.digest, *digests):
        raise rejection(Verdict.SERVER_SIG, "the session is not signed with the key that it names")


def sign_order(identity: Identity, position: Position, order: bytes) -> bytes:
    """The server's word that it asks for this in this round, from this model: an order costs budget."""
    return identity.sign(*_order_claim(position, order))


def check_order_signed(position: Position, order: bytes, signature: bytes) -> None:
    """Refuse an order that the server did not give for this round: whoever carries messages must not spend here."""
    if not verifies(position.session.server_key, signature, *_order_claim(position, order)):
        raise rejection(Verdict.SERVER_SIG, "the order is not signed with the server's key for this round")


def _order_claim(position: Position, order: bytes) -> tuple[bytes, ...]:
    return b"order/v1", position.session.digest, NUMBER.write(position.round), position.tip, order
