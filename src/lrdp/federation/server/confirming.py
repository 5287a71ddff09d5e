"""Confirmations: whoever was not in a round believes in it because a quorum of those who were accepted it.

No other word takes their place. All tags of a round prove its sum too, but a server may gather all tags of two attempts
at the same round, and show each to others: an honest participant signs tags in both, and accepts one of them.
"""

from __future__ import annotations

from lrdp.federation.server.chronicle import Chronicle, Concluded
from lrdp.integrity import Registry
from lrdp.screen import visible


def lacking(chronicle: Chronicle) -> str:
    """Which round waits for whose confirmation, and what can be done; empty where every round has its quorum."""
    ended = chronicle.unconfirmed
    if ended is None:
        return ""
    given, owing = len(ended.receipt.accepts), visible(", ".join(ended.owing))
    return (
        f"round {ended.position.round + 1} was confirmed by {given} of its {len(ended.names)} participants, and "
        f"whoever was not in it follows once {ended.quorum} have: {owing} left before that. Bring back "
        f"{_so_many(ended)}, and start again: the session goes on. If that cannot be, begin a new "
        f"session from this model, in another folder: docs/federation.md shows how."
    )


def _so_many(ended: Concluded) -> str:
    missing = ended.quorum - len(ended.receipt.accepts)
    return "whom it waits for" if missing == len(ended.owing) else f"{missing} of them"


def would_strand(chronicle: Chronicle, registry: Registry, least: int) -> bool:
    """Whether a session would end for good with the members whose keys ``registry`` does not hold any more.

    That is so where a round needs their confirmation and too few can go on without it.
    """
    ended = chronicle.unconfirmed
    if ended is None:
        return False
    before, after = ended.position.session.registry.by_name, registry.by_name
    stay = {name for name, member in before.items() if after.get(name) == member}
    to_come = len(ended.receipt.accepts) + len(stay.intersection(ended.owing))
    return to_come < ended.quorum and sum(chronicle.can_follow(name) for name in stay) < least
