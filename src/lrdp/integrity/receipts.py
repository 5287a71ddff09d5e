"""Receipts: a round's header, tags and ACCEPTs, no model data; with the registry, anybody can check the history."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from lrdp.codec import Format, many, packed
from lrdp.integrity import checks
from lrdp.integrity.encoding import SIGNATURE, SIGNATURE_SIZE, Encoded, part_of, sized
from lrdp.integrity.messages import Accept, Header, Tag
from lrdp.integrity.session import Position
from lrdp.integrity.verdicts import Check, Verdict, require


@dataclass(frozen=True, kw_only=True)
class RoundReceipt(Encoded):
    """What remains of a verified round."""

    header: Header
    signature: bytes
    tags: tuple[Tag, ...]
    accepts: tuple[Accept, ...]

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"RECEIPT/v1",
        header=part_of(Header),
        signature=SIGNATURE,
        tags=many(part_of(Tag)),
        accepts=many(part_of(Accept)),
    )

    def __post_init__(self) -> None:
        sized(self.signature, SIGNATURE_SIZE)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A receipt at the place where it must fit."""

    position: Position
    receipt: RoundReceipt

    @property
    def header(self) -> Header:
        return self.receipt.header

    @property
    def signature(self) -> bytes:
        return self.receipt.signature

    @property
    def tags(self) -> tuple[Tag, ...]:
        return self.receipt.tags

    @property
    def tally(self) -> checks.TagTally:
        return checks.TagTally(position=self.position, header=self.header, tags=self.tags, expected=0)


def accepted(position: Position, header: Header, accept: Accept) -> bool:
    """Whether a participant of the round signed that it was verified, and the tip that follows."""
    if accept.name not in header.names:
        return False
    member, tip = position.session.registry.by_name[accept.name], position.after(header.digest, header.next_model).tip
    return member.signed(accept.signature, b"accept/v1", accept.name.encode(), header.digest, tip)


def endorse(position: Position, receipt: RoundReceipt, accepts: Iterable[Accept]) -> RoundReceipt:
    """The receipt with every further ACCEPT that holds; ``position`` is where its round began.

    ACCEPTs of a round arrive with the next round's updates, when its receipt is already made.
    """
    words = {word.name: word for word in accepts if accepted(position, receipt.header, word)}
    words |= {word.name: word for word in receipt.accepts}
    return replace(receipt, accepts=tuple(words[name] for name in sorted(words)))


def _quorum(claim: Claim) -> bool:
    words, needed = claim.receipt.accepts, claim.position.session.parameters.quorum(len(claim.header.roster))
    distinct = len({word.name for word in words}) == len(words)
    return len(words) >= needed and distinct and all(accepted(claim.position, claim.header, word) for word in words)


RECEIPT: tuple[Check[Claim], ...] = (
    Check(Verdict.STALE_CONTEXT, checks.in_session),
    Check(Verdict.CHAIN_BREAK, checks.continues_history),
    Check(Verdict.MODEL_MISMATCH, checks.starts_from_model),
    Check(Verdict.ROSTER_MALFORMED, checks.roster_sorted),
    Check(Verdict.ROSTER_TOO_SMALL, checks.roster_large),
    Check(Verdict.ROSTER_UNKNOWN, checks.roster_known),
    Check(Verdict.PEER_UPDATE_SIG, checks.peers_signed),
    Check(Verdict.SERVER_SIG, checks.server_signed_header),
    Check(Verdict.TAGS_INCOMPLETE, lambda claim: checks.one_tag_each(claim.tally)),
    Check(Verdict.TAG_SIG, lambda claim: checks.tags_signed(claim.tally)),
    Check(Verdict.QUORUM_MISSING, _quorum),
)


def follow(position: Position, receipt: RoundReceipt) -> Position:
    """The position after a round one did not take part in.

    Guarantees: if fewer than a quorum of the roster lie, an honest participant verified the round, so its claim holds.
    """
    require(RECEIPT, Claim(position=position, receipt=receipt))
    return position.after(receipt.header.digest, receipt.header.next_model)
