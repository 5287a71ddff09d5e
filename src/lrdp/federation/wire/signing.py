"""What a server signs besides the integrity protocol, and how a session is named: both sides must agree on it."""

from __future__ import annotations

from lrdp.codec import NUMBER
from lrdp.integrity import Identity, Position, Session, Verdict, digest, rejection, verifies


def run_identifier(nonce: bytes, layout: bytes) -> bytes:
    """Names a run: the server's fresh nonce, bound to the model that everybody trains."""
    return digest(b"run/v1", nonce, layout)


def sign_session(identity: Identity, session: Session) -> bytes:
    """The server's word that the session is its own: anybody could name its key."""
    return identity.sign(b"hello/v1", session.digest)


def check_session_signed(session: Session, signature: bytes) -> None:
    """Refuse a session that the holder of its server's key did not open."""
    if not verifies(session.server_key, signature, b"hello/v1", session.digest):
        raise rejection(Verdict.SERVER_SIG, "the session is not signed with the key that it names")


def sign_order(identity: Identity, position: Position, order: bytes) -> bytes:
    """The server's word that it asks for this in this round, from this model on: an order costs budget."""
    return identity.sign(*_order_claim(position, order))


def check_order_signed(position: Position, order: bytes, signature: bytes) -> None:
    """Refuse an order that the server did not give for this round: else whoever brings messages could spend here."""
    if not verifies(position.session.server_key, signature, *_order_claim(position, order)):
        raise rejection(Verdict.SERVER_SIG, "the order is not signed with the server's key for this round")


def _order_claim(position: Position, order: bytes) -> tuple[bytes, ...]:
    return b"order/v1", position.session.digest, NUMBER.write(position.round), position.tip, order
