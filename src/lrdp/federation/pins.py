"""With whom a client computes is its policy's to say: the registry, the server's key, and how small a round may be."""

from __future__ import annotations

from lrdp.errors import PolicyRefused
from lrdp.integrity import Identity, Position, Session, Verdict
from lrdp.integrity.encoding import number
from lrdp.integrity.keys import verifies
from lrdp.integrity.verdicts import rejection
from lrdp.ledger import Policy, Refusal


def check_pins(session: Session, policy: Policy) -> None:
    """Refuse a session of another consortium or server, or with smaller rounds than the policy has.

    Guarantees: of a session that passes, every round has ``min_roster`` members of the pinned registry, and a client
    that was absent believes in a round only if so many of them accepted it.
    """
    check_registry(session.registry.digest.hex(), policy)
    server, peers, fewest = session.server_key.hex(), policy.peers, session.parameters.min_roster
    if server not in peers.server_keys:
        raise PolicyRefused(
            f"the server's key {server} is not among the {len(peers.server_keys)} that the policy pins "
            f"({policy.where('peers.server_keys')}): nothing was trained; if it is your consortium's server, add it.",
            Refusal.SERVER,
        )
    if not fewest >= peers.min_roster:
        raise PolicyRefused(
            f"the session's rounds may have {fewest} participants, the policy wants at least {peers.min_roster} "
            f"({policy.where('peers.min_roster')}): nothing was trained.",
            Refusal.ROSTER,
        )


def check_registry(registry: str, policy: Policy) -> None:
    """Refuse a registry that is not the pinned one, by its hash alone."""
    pin = policy.peers.registry_sha256
    if registry != pin:
        raise PolicyRefused(
            f"the server's registry is {registry[:12]}, the policy pins {pin[:12] or 'none'} "
            f"({policy.where('peers.registry_sha256')}): nothing was trained.",
            Refusal.REGISTRY,
        )


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
    if order and not verifies(position.session.server_key, signature, *_order_claim(position, order)):
        raise rejection(Verdict.SERVER_SIG, "the order is not signed with the server's key for this round")


def _order_claim(position: Position, order: bytes) -> tuple[bytes, ...]:
    return b"order/v1", position.session.digest, number(position.round), position.head, order
