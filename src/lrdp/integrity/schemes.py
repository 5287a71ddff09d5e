"""The interface of both methods, and `sketch`, the default: updates in the clear, the aggregate proved by masked tags.

A client's half hides its values, says when they may leave, adds checks of its own, and answers PUBLISH with a tag; the
server's half says what is admissible and what it relays.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from lrdp.errors import InvalidInput
from lrdp.integrity.checks import Seen
from lrdp.integrity.encoding import digest, sized
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.fixed_point import SMALL, FixedPoint, Whole, vector, within
from lrdp.integrity.keys import Identity
from lrdp.integrity.masks import Pairwise, mask
from lrdp.integrity.messages import CommittedUpdate, Header, Pledge, Train
from lrdp.integrity.session import Position, ProofMethod, Session
from lrdp.integrity.sketch import Challenge, challenge
from lrdp.integrity.verdicts import Check


@dataclass(frozen=True)
class TagValues:
    """The value of one's own tag, and what all tags must sum to."""

    value: int
    expected: int


class ClientScheme(Protocol):
    """A client's half of a method."""

    @property
    def method(self) -> ProofMethod: ...
    @property
    def checks(self) -> tuple[Check[Seen], ...]:
        """What is checked of PUBLISH besides checks.PUBLISH."""

    @property
    def sums_all_invited(self) -> bool:
        """Whether what is sent can be summed over all invited only: then the roster is fixed when it leaves."""

    def conceal(self, train: Train, values: Whole) -> Whole:
        """What is committed to and sent."""

    def require_openable(self, position: Position, train: Train, pledges: tuple[Pledge, ...]) -> None:
        """Raise NotVerified unless what was committed to may be sent now."""

    def answer(self, seen: Seen, values: Whole) -> TagValues:
        """The tag of one's own values, after every check."""

    def encode(self) -> bytes:
        """What a saved state must hold so that this half can be made again from identity and session."""


class ServerScheme(Protocol):
    """The server's half of a method."""

    @property
    def method(self) -> ProofMethod: ...
    def admissible(self, values: Whole, train: Train, point: FixedPoint) -> bool:
        """Whether what a client sent can be summed."""

    def relayed(self, updates: tuple[CommittedUpdate, ...]) -> tuple[CommittedUpdate, ...]:
        """What PUBLISH carries of them."""

    def expected(self, header: Header, aggregate: Whole) -> int:
        """What all tags must sum to: the masks cancel, so the server can tell too."""


def small_vector(values: Whole, point: FixedPoint) -> Whole:
    """``values`` if they are an update of this session."""
    if vector(values, SMALL).size != point.size or not within(values, point.most):
        raise InvalidInput(f"an update has {point.size} coordinates within ±{point.most}: make it with quantise.")
    return values


def is_update(values: Whole, point: FixedPoint) -> bool:
    """Whether the values have the session's type and size, and each lies in its range."""
    return values.dtype == SMALL and values.shape == (point.size,) and within(values, point.most)


def transcript_challenge(header: Header, size: int) -> Challenge:
    """The challenge that the whole of PUBLISH determines, so that nobody knows it before the aggregate is fixed."""
    return challenge(digest(b"challenge/v1", header.digest), size, MERSENNE_127)


@dataclass(frozen=True, kw_only=True)
class SketchClient:
    """tag = ⟨r, u⟩ + mask; all tags must sum to ⟨r, A⟩."""

    pairwise: Pairwise
    method: ProofMethod = ProofMethod.SKETCH
    checks: tuple[Check[Seen], ...] = ()
    sums_all_invited: bool = False

    def conceal(self, train: Train, values: Whole) -> Whole:  # noqa: ARG002 — the server may see a noised update
        return values

    def require_openable(self, position: Position, train: Train, pledges: tuple[Pledge, ...]) -> None:
        """At once: the server sums in the clear, and A is fixed before the challenge."""

    def answer(self, seen: Seen, values: Whole) -> TagValues:
        drawn = transcript_challenge(seen.header, values.size)
        hidden = mask(self.pairwise, seen.header.names, seen.header.digest, MERSENNE_127)
        return TagValues((drawn.tag(values) + hidden) % MERSENNE_127.prime, drawn.tag(seen.publish.aggregate))

    def encode(self) -> bytes:
        """Nothing: the keys are the identity's and the registry's."""
        return b""


@lru_cache(maxsize=16)
def sketch_client(identity: Identity, session: Session) -> SketchClient:
    """The client's half, with mask keys from the registry.

    The same one for all rounds of a session, even for states read from disk: a peer's key is agreed on once. It opens
    no more than the identity's own secret does, and fresh masks are drawn from it for every PUBLISH.
    """
    peers = {member.name: member.agreement_key for member in session.registry.members}
    return SketchClient(
        pairwise=Pairwise(identity=identity, session=session.digest, purpose=b"tagmask/v1", peers=peers)
    )


def read_sketch_client(identity: Identity, session: Session, data: bytes) -> SketchClient:
    """What ``SketchClient.encode`` wrote."""
    sized(data, 0)
    return sketch_client(identity, session)


@dataclass(frozen=True)
class SketchServer:
    """Admits updates in range and relays none."""

    method: ProofMethod = ProofMethod.SKETCH

    def admissible(self, values: Whole, train: Train, point: FixedPoint) -> bool:  # noqa: ARG002
        return is_update(values, point)

    def relayed(self, updates: tuple[CommittedUpdate, ...]) -> tuple[CommittedUpdate, ...]:  # noqa: ARG002
        return ()

    def expected(self, header: Header, aggregate: Whole) -> int:
        return transcript_challenge(header, aggregate.size).tag(aggregate)
