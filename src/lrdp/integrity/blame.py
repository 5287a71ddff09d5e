"""Who is to blame when the tags do not sum up: tags once more without masks, and one update opened to an auditor.

A bare tag tells participants one number about a noised update (post-processing: ε is unchanged), and only after a round
that failed. The server knows every update, so it can name whoever signed a wrong tag, and prove it; if it names nobody,
or somebody whose tag is right, then the aggregate itself is wrong and the server is convicted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from lrdp.integrity import checks
from lrdp.integrity.client import Tagged
from lrdp.integrity.commitments import opens
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.fixed_point import Whole, aggregate_hash
from lrdp.integrity.keys import Identity
from lrdp.integrity.messages import TAG_SIZE, Header, Tag, Update
from lrdp.integrity.schemes import transcript_challenge
from lrdp.integrity.server import Published
from lrdp.integrity.session import Position
from lrdp.integrity.verdicts import Check, Verdict, require


class Finding(StrEnum):
    """What an auditor concludes."""

    SOUND = "the aggregate is the sum of the updates"
    CLIENT = "the named client signed a tag that is not its update's"
    SERVER = "the server published an aggregate that is not the sum, or accused an honest client"


def _bare(identity: Identity, header: Header, value: int) -> Tag:
    claim = (identity.name.encode(), header.digest, value.to_bytes(TAG_SIZE, "little"))
    return Tag(name=identity.name, value=value, signature=identity.sign(b"bare-tag/v1", *claim))


def bare_tag(tagged: Tagged) -> Tag:
    """A client's tag without its mask, under a label of its own."""
    values = tagged.committed.values
    return _bare(tagged.ready.identity, tagged.header, transcript_challenge(tagged.header, values.size).tag(values))


def accuse(published: Published, bare: Iterable[Tag]) -> Update | None:
    """The update of the first participant whose bare tag is wrong: the server's proof, for the auditor's eyes only."""
    drawn = transcript_challenge(published.header, published.aggregate.size)
    signed = {tag.name: tag.value for tag in bare}
    wrong = (update for update in published.updates if drawn.tag(update.values) != signed.get(update.pledge.name))
    return next(wrong, None)


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """What lies before an auditor: what the server published, and everybody's bare tag."""

    position: Position
    header: Header
    signature: bytes
    aggregate: Whole
    bare: tuple[Tag, ...]


def judge(case: Case, accused: Update | None) -> Finding:
    """What follows from the case and from the update that the server opens, if it accuses anybody."""
    require(CASE, case)
    drawn = transcript_challenge(case.header, case.aggregate.size)
    if accused is None:
        total = sum(tag.value for tag in case.bare)
        return Finding.SOUND if (total - drawn.tag(case.aggregate)) % MERSENNE_127.prime == 0 else Finding.SERVER
    if accused.pledge not in case.header.roster or not opens(case.position, accused):
        return Finding.SERVER  # it must not have admitted what it cannot open
    signed = {tag.name: tag.value for tag in case.bare}[accused.pledge.name]
    return Finding.CLIENT if drawn.tag(accused.values) != signed else Finding.SERVER


def _signed(case: Case, tag: Tag) -> bool:
    member = case.position.session.registry.by_name[tag.name]
    claim = (tag.name.encode(), case.header.digest, tag.value.to_bytes(TAG_SIZE, "little"))
    return tag.value < MERSENNE_127.prime and member.signed(tag.signature, b"bare-tag/v1", *claim)


CASE: tuple[Check[Case], ...] = (
    Check(Verdict.STALE_CONTEXT, checks.in_session),
    Check(Verdict.CHAIN_BREAK, checks.continues_history),
    Check(Verdict.ROSTER_MALFORMED, checks.roster_sorted),
    Check(Verdict.ROSTER_UNKNOWN, checks.roster_known),
    Check(Verdict.PEER_UPDATE_SIG, checks.peers_signed),
    Check(Verdict.SERVER_SIG, checks.server_signed_header),
    Check(Verdict.SHAPE, lambda case: aggregate_hash(case.aggregate) == case.header.aggregate),
    Check(Verdict.TAGS_INCOMPLETE, lambda case: sorted(tag.name for tag in case.bare) == list(case.header.names)),
    Check(Verdict.TAG_SIG, lambda case: all(_signed(case, tag) for tag in case.bare)),
)
