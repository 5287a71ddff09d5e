"""A policy says with whom its client computes: registry, server's key, how small a round may be, and what is seen."""

from __future__ import annotations

from collections.abc import Collection

from lrdp.errors import PolicyRefused
from lrdp.integrity import Repeats, Session, same_roster, smaller_roster
from lrdp.ledger import Policy, Refusal, Retries


def check_pins(session: Session, registries: Collection[bytes], policy: Policy) -> None:
    """Refuse a session of another consortium or server, with smaller rounds than the policy has, or of another scheme.

    ``registries`` are the digests of the session's own and of those that replaced it.

    Guarantees: of a session that passes, every round has ``min_roster`` members of the pinned registry, or of one that
    its consortium put before or after it, and a client that was absent believes in a round only if at least
    ``min_roster`` of them accepted it. Where the policy says `exact`, the server sees sums alone.
    """
    check_registries(registries, policy)
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
    if session.parameters.method.value != peers.scheme.value:
        raise PolicyRefused(
            f"the session's rounds are of the scheme {session.parameters.method}, the policy wants {peers.scheme} "
            f"({policy.where('peers.scheme')}): nothing was trained.",
            Refusal.SCHEME,
        )


def check_registries(registries: Collection[bytes], policy: Policy) -> None:
    """Refuse registries of which none is the pinned one, by their hashes alone."""
    pin, shown = policy.peers.registry_sha256, [digest.hex() for digest in registries]
    if pin not in shown:
        raise PolicyRefused(
            f"the server's registry is {', '.join(each[:12] for each in shown)}, the policy pins {pin[:12] or 'none'} "
            f"({policy.where('peers.registry_sha256')}): nothing was trained.",
            Refusal.REGISTRY,
        )


def allowed_repeats(policy: Policy) -> Repeats:
    """In which other sums the policy lets an update stand that was already shown in one."""
    allowed: dict[Retries, Repeats] = {Retries.SAME_ROSTER: same_roster, Retries.SMALLER_ROSTER: smaller_roster}
    return allowed[policy.peers.retries]
