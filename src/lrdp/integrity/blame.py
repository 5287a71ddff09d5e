"""Who is to blame when the tags do not add up: the tags without their masks, and one update opened to an auditor.

A bare tag tells one number about a noised update (post-processing: ε is unchanged), and only after a round that failed.
The server knows every update, so it can name whoever signed a wrong tag, and prove it by opening that one update;
``depositions`` draws the conclusions. Where the tags add up nobody is asked, so a server that colludes with a
participant is not found out: docs/integrity.md says what the two can do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lrdp.errors import InvalidInput
from lrdp.integrity import checks
from lrdp.integrity.client import Tagged
from lrdp.integrity.commitments import opens
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.fixed_point import FixedPoint, Whole, aggregate_hash, within
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import TAG_VALUE, CommittedUpdate, Header, Tag
from lrdp.integrity.schemes import is_update, transcript_challenge
from lrdp.integrity.server import Published
from lrdp.integrity.session import Position, ProofMethod
from lrdp.integrity.sketch import Challenge
from lrdp.integrity.verdicts import Check, Verdict


class Finding(StrEnum):
    """What an auditor concludes."""

    SOUND = "the aggregate is the sum of the updates"
    CLIENT = "the named client signed a tag that is not its update's"
    SERVER = "the server published an aggregate that is not the sum, or accused an honest client"
    BOTH = "the named client pledged what is not an update of this session, and the server admitted it"


def _bare(identity: Identity, header: Header, value: int) -> Tag:
    claim = (identity.name.encode(), header.digest, TAG_VALUE.write(value))
    return Tag(name=identity.name, value=value, signature=identity.sign(b"bare-tag/v1", *claim))


def bare_tag(tagged: Tagged) -> Tag:
    """A client's tag without its mask, under a label of its own."""
    values = tagged.committed.values
    return _bare(tagged.ready.identity, tagged.header, transcript_challenge(tagged.header, values.size).tag(values))


def accuse(published: Published, bare: Iterable[Tag]) -> CommittedUpdate | None:
    """The update of the first participant whose bare tag is wrong: the server's proof, for the auditor's eyes only."""
    drawn = transcript_challenge(published.header, published.aggregate.size)
    signed = {tag.name: tag.value for tag in bare}
    wrong = (update for update in published.updates if drawn.tag(update.values) != signed.get(update.pledge.name))
    return next(wrong, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """What lies before an auditor: what the server published, and the bare tags that were signed for it."""

    position: Position
    header: Header
    signature: bytes
    aggregate: Whole
    bare: tuple[Tag, ...]


def require_sketch(case: Case) -> None:
    """Refuse a case of exact rounds, whose tags say nothing about updates."""
    if case.position.session.parameters.method is not ProofMethod.SKETCH:
        raise InvalidInput("blame is for `sketch`: in `exact` rounds each client adds up the masked updates itself.")


def _drawn(case: Case) -> Challenge:
    return transcript_challenge(case.header, case.aggregate.size)


def examined(case: Case, update: CommittedUpdate) -> Finding:
    """What one opened update shows; SERVER where its owner signed nothing that the update could contradict."""
    if update.pledge not in case.header.roster or not opens(case.position, update):
        return Finding.SERVER  # which should not have admitted what it cannot open
    if not is_update(update.values, _point(case)):
        return Finding.BOTH
    signed = {tag.name: tag.value for tag in case.bare}.get(update.pledge.name)
    if signed is None:
        return Finding.SERVER
    return Finding.SOUND if _drawn(case).tag(update.values) == signed else Finding.CLIENT


def bare_signed(case: Case, tag: Tag) -> bool:
    """Whether the participant signed this as its tag without masks."""
    member = case.position.session.registry.by_name[tag.name]
    claim = (tag.name.encode(), case.header.digest, TAG_VALUE.write(tag.value))
    return tag.value < MERSENNE_127.prime and member.signed(tag.signature, b"bare-tag/v1", *claim)


def _point(case: Case) -> FixedPoint:
    return case.position.session.parameters.point


def _shaped(case: Case) -> bool:
    kind = _point(case).sum_type(len(case.header.roster))
    shaped = case.aggregate.shape == (_point(case).size,) and case.aggregate.dtype == kind
    return shaped and aggregate_hash(case.aggregate) == case.header.aggregate


CASE: tuple[Check[Case], ...] = (
    Check(Verdict.STALE_CONTEXT, checks.in_session),
    Check(Verdict.CHAIN_BREAK, checks.continues_history),
    Check(Verdict.ROSTER_MALFORMED, checks.roster_sorted),
    Check(Verdict.ROSTER_UNKNOWN, checks.roster_known),
    Check(Verdict.PEER_UPDATE_SIG, checks.peers_signed),
    Check(Verdict.SERVER_SIG, checks.server_signed_header),
    Check(Verdict.SHAPE, _shaped),
    Check(Verdict.RANGE, lambda case: within(case.aggregate, len(case.header.roster) * _point(case).most)),
)
