"""Confirmations: whoever was not in a round believes in it because a quorum of those who were accepted it.

No other word takes their place. All tags of a round prove its sum too, but a server may gather all tags of two attempts
at the same round, and show each to others: an honest participant signs tags in both, and accepts one of them.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from lrdp.federation.server.chronicle import Chronicle, Concluded
from lrdp.federation.server.saved_state import read_state
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Hello, read_message
from lrdp.integrity import Position, Registry, Session
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
        f"{_enough_of(ended)}, and start again: the session goes on. If that is not possible, begin a new "
        f"session from this model, in another folder: docs/federation.md shows how."
    )


def _enough_of(ended: Concluded) -> str:
    """How many of those who left would do."""
    missing = ended.quorum - len(ended.receipt.accepts)
    return "all of them" if missing == len(ended.owing) else f"{missing} of them"


def overtaken(chronicle: Chronicle, names: Collection[str], least: int) -> str:
    """Why no round can be made with these where too many went on without this server; empty where enough did not."""
    further = chronicle.further(names)
    if not further or len(names) < least or len(names) - len(further) >= least:
        return ""
    return (
        f"{visible(', '.join(sorted(further)))} verified up to {max(further.values())} rounds of this session, and "
        f"this folder knows of {len(chronicle.rounds)}: it was restored from an older backup, or another server went "
        f"on with a copy of it. Bring back its newest state, receipts and models, and start again; if there are none, "
        f"begin a new session, in another folder, from the model that a client verified: docs/federation.md shows how. "
        f"Nobody was charged."
    )


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


def outstanding(folder: Path, reached: Position | None) -> str:
    """What the state in a server's folder has beyond receipts that lead to ``reached``; empty where that is nothing.

    It is the server's word, and proves nothing. Raises LrdpError where the state cannot be read.
    """
    state = read_state(folder)
    hello = None if state is None else read_message(Frame(state.hello))
    if state is None or not isinstance(hello, Hello):
        return ""
    opened = Session.decode(hello.session)
    if not (folder / f"receipts-{opened.digest.hex()[:16]}.txt").exists():
        return ""  # the state is of a later session than the receipts
    rounds, registry = (0, opened.registry) if reached is None else (reached.round, reached.session.registry)
    more = state.round - rounds
    parts = [f"{more} round{'s' if more > 1 else ''}"] if more > 0 else []
    parts += ["the registry in force"] if opened.registry.version + len(hello.rotations) > registry.version else []
    if not parts:
        return ""
    return (
        f"Not in these receipts yet, by the server's own word: {' and '.join(parts)}. They are added once a quorum has "
        f"confirmed the first round of them."
    )
