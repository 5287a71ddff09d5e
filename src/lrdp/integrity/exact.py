"""`exact`, the paper's literal reading: clients share encrypted updates, and check the sum itself.

    y_j = u_j + Σ_{l>j} PRG(K_jl) − Σ_{l<j} PRG(K_jl)  mod 2^w

Guarantees: no soundness error; the server learns A alone. It costs every client the download of all masked updates, and
one missing participant ends the attempt. Masks come from keys made for the session, which outlive it in no file, so
that a key stolen later opens nothing; and they are bound to TRAIN, so that each attempt has fresh ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from lrdp.codec import NAME, Format, many, packed, row
from lrdp.errors import InvalidInput
from lrdp.integrity.checks import Seen
from lrdp.integrity.commitments import opens, pledged
from lrdp.integrity.encoding import HASH, SIGNATURE, SIGNATURE_SIZE, Encoded, checked_name, digest, sized
from lrdp.integrity.fixed_point import CHUNK, FixedPoint, Whole, chunks, sums_to
from lrdp.integrity.keys import KEY_SIZE, Identity, agreement_key_sound
from lrdp.integrity.masks import Pairwise
from lrdp.integrity.messages import CommittedUpdate, Header, Pledge, Train
from lrdp.integrity.schemes import TagValues
from lrdp.integrity.session import Position, ProofMethod, Session
from lrdp.integrity.verdicts import Check, Verdict, rejection


@dataclass(frozen=True, kw_only=True)
class SessionKey(Encoded):
    """A member's agreement key for this session alone."""

    name: str
    agreement_key: bytes
    signature: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(b"HELLO/v1", name=NAME, agreement_key=HASH, signature=SIGNATURE)

    def __post_init__(self) -> None:
        checked_name(self.name)
        sized(self.agreement_key, KEY_SIZE)
        sized(self.signature, SIGNATURE_SIZE)


def session_key(identity: Identity, session: Session, secret: bytes) -> SessionKey:
    """Announce the key of ``secret``, 32 random bytes that are written down in saved states only, and die with them."""
    return _announced(identity, session.digest, replace(identity, agreement_secret=secret).member.agreement_key)


def _announced(identity: Identity, session: bytes, key: bytes) -> SessionKey:
    signature = identity.sign(b"hello/v1", session, identity.name.encode(), key)
    return SessionKey(name=identity.name, agreement_key=key, signature=signature)


def _same_as_pledged(seen: Seen) -> bool:
    return seen.header.roster == seen.pledges


def _relayed_open(seen: Seen) -> bool:
    point, relayed = seen.position.session.parameters.point, seen.publish.relayed
    kind = point.sum_type(len(seen.header.roster))
    shaped = all(update.values.dtype == kind and update.values.shape == (point.size,) for update in relayed)
    same = tuple(update.pledge for update in relayed) == seen.header.roster
    return shaped and same and all(opens(seen.position, update) for update in relayed)


def _relayed_add_up(seen: Seen) -> bool:
    return sums_to([update.values for update in seen.publish.relayed], seen.publish.aggregate)


RELAYED: tuple[Check[Seen], ...] = (
    Check(Verdict.SHARE_ALTERED, _same_as_pledged),
    Check(Verdict.SHARE_ALTERED, _relayed_open),
    Check(Verdict.SUM_MISMATCH, _relayed_add_up),
)


@dataclass(frozen=True, kw_only=True)
class MaskMemory(Encoded):
    """The session's mask key, the peers' public ones, and the labels of masks that are used up."""

    secret: bytes = field(repr=False)
    peers: tuple[tuple[str, bytes], ...]
    masked: tuple[bytes, ...]

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"EXACT-CLIENT/v1", secret=HASH, peers=many(row(NAME, HASH)), masked=many(HASH)
    )

    def __post_init__(self) -> None:
        names = [name for name, _ in self.peers]
        if names != sorted(set(names)) or list(self.masked) != sorted(set(self.masked)):
            raise rejection(Verdict.MALFORMED, "peers or masks are not sorted, or occur twice")


@dataclass(frozen=True, kw_only=True)
class ExactClient:
    """Tags are mere signatures here: the echo that shows equivocation."""

    pairwise: Pairwise
    point: FixedPoint
    method: ProofMethod = ProofMethod.EXACT
    sums_all_invited: bool = True
    _masked: set[bytes] = field(default_factory=set, repr=False, compare=False)

    @property
    def checks(self) -> tuple[Check[Seen], ...]:
        return RELAYED

    def conceal(self, train: Train, values: Whole) -> Whole:
        """y; refuses to use a mask twice, for the difference of two such vectors is that of two updates."""
        label = digest(b"vectormask/v1", train.unsigned)
        if label in self._masked:
            raise InvalidInput("this attempt's masks are used up: roll back, and begin the next attempt.")
        self.require_keys(train)
        self._masked.add(label)
        masked = values.astype(self.point.sum_type(len(train.invited)))
        for sign, key in self.pairwise.signed(train.invited):
            _add_stream(masked, digest(b"vectormask-stream/v1", key, label), sign)
        return masked

    def require_keys(self, train: Train) -> None:
        """Raise NotVerified unless everybody invited has announced a mask key."""
        if any(name not in self.pairwise.peers for name in train.invited):
            raise rejection(Verdict.ROSTER_UNKNOWN, "somebody invited has announced no key for this session")

    def require_openable(self, position: Position, train: Train, pledges: tuple[Pledge, ...]) -> None:
        """Only when everybody invited is bound: otherwise the last one could choose its update to suit the others'."""
        if tuple(given.name for given in pledges) != train.invited:
            raise rejection(Verdict.ROSTER_MALFORMED, "not exactly the pledges of all invited, sorted by name")
        if not all(pledged(position, given) for given in pledges):
            raise rejection(Verdict.PEER_UPDATE_SIG)

    def answer(self, seen: Seen, values: Whole) -> TagValues:  # noqa: ARG002 — every check was made on the vectors themselves
        return TagValues(value=0, expected=0)

    @property
    def announced(self) -> SessionKey:
        """One's own mask key, for the peers."""
        own = self.pairwise.identity
        return _announced(own, self.pairwise.session, own.member.agreement_key)

    def keyed(self, session: Session, hellos: Iterable[SessionKey]) -> ExactClient:
        """The same client with these mask keys of the members; masks that were used up stay used up."""
        own = self.pairwise.identity
        peers = _checked_keys(session, hellos)
        if peers.get(own.name) != own.member.agreement_key:
            raise rejection(Verdict.ROSTER_UNKNOWN, f"the key given as that of {own.name} is not the one it has now")
        return replace(self, pairwise=replace(self.pairwise, peers=peers, _known={}))

    def encode(self) -> bytes:
        """As a saved state holds it."""
        peers = tuple(sorted(self.pairwise.peers.items()))
        secret, masked = self.pairwise.identity.agreement_secret, tuple(sorted(self._masked))
        return MaskMemory(secret=secret, peers=peers, masked=masked).encode()


def exact_client(identity: Identity, session: Session, secret: bytes, hellos: Iterable[SessionKey]) -> ExactClient:
    """The client's half, with mask keys that members announced and signed for this session."""
    return _exact_client(identity, session, secret, _checked_keys(session, hellos))


def _checked_keys(session: Session, hellos: Iterable[SessionKey]) -> dict[str, bytes]:
    peers = dict[str, bytes]()
    for given in hellos:
        member = session.registry.by_name.get(given.name)
        claim = (session.digest, given.name.encode(), given.agreement_key)
        fresh = given.name not in peers and agreement_key_sound(given.agreement_key)
        if member is None or not fresh or not member.signed(given.signature, b"hello/v1", *claim):
            raise rejection(Verdict.ROSTER_UNKNOWN, f"the key announced for {given.name} is not its own")
        peers[given.name] = given.agreement_key
    return peers


def require_own_key(session: Session, name: str, data: bytes) -> None:
    """Raise NotVerified unless these bytes announce a mask key of this member, as its peers will check."""
    if name not in _checked_keys(session, [SessionKey.decode(data)]):
        raise rejection(Verdict.ROSTER_UNKNOWN, f"the key that {name} announces is another member's")


def _exact_client(
    identity: Identity, session: Session, secret: bytes, peers: dict[str, bytes], masked: Iterable[bytes] = ()
) -> ExactClient:
    ephemeral = replace(identity, agreement_secret=secret)
    pairwise = Pairwise(identity=ephemeral, session=session.digest, purpose=b"vectormask/v1", peers=peers)
    return ExactClient(pairwise=pairwise, point=session.parameters.point, _masked=set(masked))


def read_exact_client(identity: Identity, session: Session, data: bytes) -> ExactClient:
    """What ``ExactClient.encode`` wrote; the peers' keys were checked when they were announced."""
    memory = MaskMemory.decode(data)
    return _exact_client(identity, session, memory.secret, dict(memory.peers), memory.masked)


def _add_stream(masked: Whole, key: bytes, sign: int) -> None:
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    size = min(CHUNK, masked.size) * masked.itemsize
    zeros, buffer = bytes(size), bytearray(size)
    for part in chunks(masked.size):
        width = (part.stop - part.start) * masked.itemsize
        stream.update_into(memoryview(zeros)[:width], memoryview(buffer)[:width])
        drawn = np.frombuffer(buffer, masked.dtype, part.stop - part.start)
        (np.add if sign > 0 else np.subtract)(masked[part], drawn, out=masked[part])


@dataclass(frozen=True)
class ExactServer:
    """Cannot see what it sums, so it admits any vector of the right shape, and relays them all."""

    method: ProofMethod = ProofMethod.EXACT

    def admissible(self, values: Whole, train: Train, point: FixedPoint) -> bool:
        return values.dtype == point.sum_type(len(train.invited)) and values.shape == (point.size,)

    def relayed(self, updates: tuple[CommittedUpdate, ...]) -> tuple[CommittedUpdate, ...]:
        return updates

    def expected(self, header: Header, aggregate: Whole) -> int:  # noqa: ARG002 — clients added the updates up
        return 0
