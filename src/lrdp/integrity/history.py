"""A session's history as text: one line for the session, then one for each receipt and each rotation, in hexadecimal.

It holds no model data. An auditor walks it with nothing but the pinned hash of the first registry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lrdp.codec import MOST_BYTES, pack
from lrdp.errors import NotVerified
from lrdp.integrity.receipts import RoundReceipt, follow
from lrdp.integrity.registry import Registry, verify_registry
from lrdp.integrity.session import Position, Session, genesis, registry_title
from lrdp.integrity.verdicts import Verdict, rejection

_REGISTRY = pack(*Registry.FORMAT.label)
LONGEST_LINE = 2 * MOST_BYTES + 2
"""Characters of a line of a history: the bytes of the largest step in hexadecimal, and the end of the line."""
HistoryStep = RoundReceipt | Registry
"""How a history goes on: by a round, or by a registry that replaces the one before."""


@dataclass(frozen=True, kw_only=True)
class VerifiedLine:
    """A line that holds: where the history stands after it, and who took part."""

    position: Position
    participants: tuple[str, ...] = ()


def session_line(session: Session) -> str:
    """The first line."""
    return session.encode().hex()


def step_line(data: bytes) -> str:
    """The line of a receipt, or of a registry where it replaced the one before, from its bytes."""
    return data.hex()


def read_session(line: str, pin: bytes | None) -> Session:
    """What ``session_line`` wrote; a registry that is not the pinned one is not decoded."""
    data = _bytes(line)
    if pin is not None and (named := registry_title(data).digest) != pin:
        raise rejection(Verdict.REGISTRY_REFUSED, f"its hash is {named.hex()}, pinned is {pin.hex()}")
    return Session.decode(data)


def read_step(data: bytes) -> HistoryStep:
    """A receipt, or a registry."""
    return Registry.decode(data) if data.startswith(_REGISTRY) else RoundReceipt.decode(data)


def follow_all(position: Position, steps: Sequence[HistoryStep]) -> Position:
    """The position after all of them, each of which must hold where it stands."""
    for step in steps:
        position = position.rotated(step) if isinstance(step, Registry) else follow(position, step)
    return position


def walk_history(lines: Iterable[str], pin: bytes | None) -> Iterator[VerifiedLine]:
    """Check line by line; raises NotVerified at the first that does not hold.

    Guarantees: with ``pin``, every round yielded was accepted by a quorum of members of the pinned registry or of those
    that the consortium put in its place. Without it, only that the lines agree with each other. That lines are missing
    at the end cannot be seen: compare the last tip with a client's.
    """
    remaining = iter(lines)
    first = next(remaining, "")
    session = read_session(first, pin)
    verify_registry(session.registry, session.registry.digest)
    position: Position | None = None
    for line in remaining:
        step = read_step(_bytes(line))
        names = () if isinstance(step, Registry) else step.header.names
        position = follow_all(position or _beginning(session, step), [step])
        yield VerifiedLine(position=position, participants=names)


def _beginning(session: Session, step: HistoryStep) -> Position:
    """The first receipt says from which model the session began."""
    if isinstance(step, Registry):
        raise rejection(Verdict.REGISTRY_REFUSED, "no registry is replaced before the first round")
    return genesis(session, step.header.model)


def _bytes(line: str) -> bytes:
    if len(line) > LONGEST_LINE:
        raise rejection(Verdict.MALFORMED, f"a line of {len(line)} characters, at most {LONGEST_LINE} are read")
    try:
        return bytes.fromhex(line)
    except ValueError:
        raise rejection(Verdict.MALFORMED, "a line is not hexadecimal") from None


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an auditor can say: how far the history holds, and what was found there if it does not reach the end.

    ``participants`` took part in so many rounds; ``registries`` are the hashes of all that were in force, each with its
    first round. ``session`` is the hash that the receipts and models are named by: that of the first registry's.
    """

    position: Position | None
    rounds: int
    participants: dict[str, int]
    registries: dict[str, int]
    session: str | None
    failure: NotVerified | None = None


def audit_history(lines: Iterable[str], pin: bytes | None) -> Audit:
    """Walk the whole history, or up to the first line that does not hold."""
    position, session, failure = None, None, None
    taken, registries = dict[str, int](), dict[str, int]()
    try:
        for step in walk_history(lines, pin):
            position = step.position
            session = session or position.session.digest.hex()
            registries.setdefault(position.session.registry.digest.hex(), position.round + 1 if registries else 1)
            for name in step.participants:
                taken[name] = taken.get(name, 0) + 1
    except NotVerified as found:
        failure = found
    rounds = 0 if position is None else position.round
    return Audit(
        position=position,
        rounds=rounds,
        participants=dict(sorted(taken.items())),
        registries=registries,
        session=session,
        failure=failure,
    )
