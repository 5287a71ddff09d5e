"""What a client checks, in order; each check has a verdict of its own and may rely on those before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from lrdp.integrity.commitments import pledged
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.fixed_point import Model, Step, inspect
from lrdp.integrity.keys import verifies
from lrdp.integrity.messages import TAG_VALUE, Header, Pledge, Publish, Tag, Train
from lrdp.integrity.session import Position
from lrdp.integrity.verdicts import Check, Verdict

MOST_MISSED = 1000
"""A client may have missed fewer attempts of a round: after a jump to the largest number, none could follow."""


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """TRAIN as one client sees it."""

    name: str
    position: Position
    attempt: int
    train: Train


@dataclass(frozen=True, kw_only=True, eq=False)
class Seen:
    """PUBLISH as one client sees it."""

    position: Position
    attempt: int
    model: Model
    own: Pledge
    publish: Publish
    pledges: tuple[Pledge, ...] = ()

    @property
    def header(self) -> Header:
        return self.publish.header

    @property
    def signature(self) -> bytes:
        return self.publish.signature

    @cached_property
    def step(self) -> Step:
        """One pass over the aggregate, once its shape is known to be right."""
        return inspect(
            self.model, self.publish.aggregate, len(self.header.roster), self.position.session.parameters.point
        )


class Announced(Protocol):
    """A header with the server's signature, wherever it came from."""

    @property
    def position(self) -> Position: ...
    @property
    def header(self) -> Header: ...
    @property
    def signature(self) -> bytes: ...


@dataclass(frozen=True, kw_only=True)
class TagTally:
    """All tags, with the header they must be for and the sum they must have."""

    position: Position
    header: Header
    tags: tuple[Tag, ...]
    expected: int


def in_session(seen: Announced) -> bool:
    """A message of another session or round is refused, however well signed."""
    return (seen.header.session, seen.header.round) == (seen.position.session.digest, seen.position.round)


def in_context(seen: Seen) -> bool:
    """A message of another attempt than the one this client committed to is refused as well."""
    return in_session(seen) and seen.header.attempt == seen.attempt


def continues_history(seen: Announced) -> bool:
    """The server may not fork: the tip is the hash of everything verified before."""
    return seen.header.previous == seen.position.tip


def starts_from_model(seen: Announced) -> bool:
    """The server may not show others a different θ_t."""
    return seen.header.model == seen.position.model


def roster_sorted(seen: Announced) -> bool:
    """A name that stands there twice would count an update twice."""
    return sorted_and_distinct(seen.header.names)


def sorted_and_distinct(names: tuple[str, ...]) -> bool:
    """Whether the names are in order, each once."""
    return list(names) == sorted(set(names))


def roster_large(seen: Announced) -> bool:
    """The sum of two updates shows each participant the other's."""
    return len(seen.header.roster) >= seen.position.session.parameters.min_roster


def roster_known(seen: Announced) -> bool:
    """Nobody outside the pinned registry contributes."""
    return all(name in seen.position.session.registry.by_name for name in seen.header.names)


def included(seen: Seen) -> bool:
    """The server may not use an update and call its owner a dropout, or drop it unnoticed."""
    return seen.own.name in seen.header.names


def own_commitment_kept(seen: Seen) -> bool:
    """The server may not replace this client's update."""
    return all(entry.commitment == seen.own.commitment for entry in seen.header.roster if entry.name == seen.own.name)


def peers_signed(seen: Announced) -> bool:
    """Nor may it replace anybody else's: each pledge is signed for this history and model."""
    return all(pledged(seen.position, entry) for entry in seen.header.roster)


def shaped(seen: Seen) -> bool:
    """Length and type are fixed by the session and the roster's size."""
    point, aggregate = seen.position.session.parameters.point, seen.publish.aggregate
    return aggregate.shape == (point.size,) and aggregate.dtype == point.sum_type(len(seen.header.roster))


def in_range(seen: Seen) -> bool:
    """What no clipped updates can sum to is refused, and no sum wraps around."""
    return seen.step.in_range


def server_signed_header(seen: Announced) -> bool:
    """The server stands by the header, so that it can be held to it."""
    return verifies(seen.position.session.server_key, seen.signature, b"server/v1", seen.header.digest)


def server_signed(seen: Seen) -> bool:
    """The header names exactly the aggregate that came with it, and the server signed it."""
    return seen.step.aggregate_hash == seen.header.aggregate and server_signed_header(seen)


def next_model_follows(seen: Seen) -> bool:
    """The next model is recomputed, never believed."""
    return seen.step.next_model_hash == seen.header.next_model


PUBLISH: tuple[Check[Seen], ...] = (
    Check(Verdict.STALE_CONTEXT, in_context),
    Check(Verdict.CHAIN_BREAK, continues_history),
    Check(Verdict.MODEL_MISMATCH, starts_from_model),
    Check(Verdict.ROSTER_MALFORMED, roster_sorted),
    Check(Verdict.ROSTER_TOO_SMALL, roster_large),
    Check(Verdict.ROSTER_UNKNOWN, roster_known),
    Check(Verdict.EXCLUDED, included),
    Check(Verdict.OWN_COMMIT_ALTERED, own_commitment_kept),
    Check(Verdict.PEER_UPDATE_SIG, peers_signed),
    Check(Verdict.SHAPE, shaped),
    Check(Verdict.RANGE, in_range),
    Check(Verdict.SERVER_SIG, server_signed),
    Check(Verdict.NEXT_MODEL_MISMATCH, next_model_follows),
)


def one_tag_each(tally: TagTally) -> bool:
    """A missing tag leaves the sum without meaning."""
    return sorted(tag.name for tag in tally.tags) == list(tally.header.names)


def tag_signed(position: Position, header: Header, tag: Tag) -> bool:
    """Whether the participant signed this tag for exactly this header."""
    member = position.session.registry.by_name[tag.name]
    claim = (tag.name.encode(), header.digest, TAG_VALUE.write(tag.value))
    return tag.value < MERSENNE_127.prime and member.signed(tag.signature, b"tag/v1", *claim)


def tags_signed(tally: TagTally) -> bool:
    """Tags are for what *this* client saw: the echo that shows equivocation."""
    return all(tag_signed(tally.position, tally.header, tag) for tag in tally.tags)


def tags_add_up(tally: TagTally) -> bool:
    """Σ τ = tag(A): the aggregate is the sum of the updates."""
    return (sum(tag.value for tag in tally.tags) - tally.expected) % MERSENNE_127.prime == 0


TAGS: tuple[Check[TagTally], ...] = (
    Check(Verdict.TAGS_INCOMPLETE, one_tag_each),
    Check(Verdict.TAG_SIG, tags_signed),
    Check(Verdict.SUM_MISMATCH, tags_add_up),
)


def _invited_here(invitation: Invitation) -> bool:
    train, position = invitation.train, invitation.position
    here = (train.session, train.round) == (position.session.digest, position.round)
    return here and 0 <= train.attempt - invitation.attempt < MOST_MISSED


def _invited_known(invitation: Invitation) -> bool:
    return all(name in invitation.position.session.registry.by_name for name in invitation.train.invited)


def _invited_by_server(invitation: Invitation) -> bool:
    train = invitation.train
    return verifies(invitation.position.session.server_key, train.signature, b"train/v1", train.unsigned)


TRAIN: tuple[Check[Invitation], ...] = (
    Check(Verdict.STALE_CONTEXT, _invited_here),
    Check(Verdict.CHAIN_BREAK, lambda invitation: invitation.train.tip == invitation.position.tip),
    Check(Verdict.ROSTER_MALFORMED, lambda invitation: sorted_and_distinct(invitation.train.invited)),
    Check(
        Verdict.ROSTER_TOO_SMALL,
        lambda invitation: len(invitation.train.invited) >= invitation.position.session.parameters.min_roster,
    ),
    Check(Verdict.ROSTER_UNKNOWN, _invited_known),
    Check(Verdict.EXCLUDED, lambda invitation: invitation.name in invitation.train.invited),
    Check(Verdict.SERVER_SIG, _invited_by_server),
)
