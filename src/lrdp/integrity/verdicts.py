"""What a client may conclude about a round: VERIFIED, or the first check that failed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from lrdp.errors import NotVerified


class Verdict(StrEnum):
    """In the order of the checks. Anything but VERIFIED fails closed: the client does not train on the new model."""

    MALFORMED = "malformed"
    STALE_CONTEXT = "stale-context"
    CHAIN_BREAK = "chain-break"
    MODEL_MISMATCH = "model-mismatch"
    ROSTER_MALFORMED = "roster-malformed"
    ROSTER_TOO_SMALL = "roster-too-small"
    ROSTER_UNKNOWN = "roster-unknown"
    EXCLUDED = "excluded"
    OWN_COMMIT_ALTERED = "own-commit-altered"
    PEER_UPDATE_SIG = "peer-update-sig"
    SHAPE = "shape"
    RANGE = "range"
    SERVER_SIG = "server-sig"
    NEXT_MODEL_MISMATCH = "next-model-mismatch"
    UPDATE_SPENT = "update-spent"
    SHARE_ALTERED = "share-altered"
    TAGS_INCOMPLETE = "tags-incomplete"
    TAG_SIG = "tag-sig"
    SUM_MISMATCH = "sum-mismatch"
    QUORUM_MISSING = "quorum-missing"
    REGISTRY_REFUSED = "registry-refused"
    VERIFIED = "verified"


MEANINGS: dict[Verdict, str] = {
    Verdict.MALFORMED: "the bytes are not a message of this protocol",
    Verdict.STALE_CONTEXT: "the message belongs to another session, round or attempt",
    Verdict.CHAIN_BREAK: "the server continues another history than the one verified here",
    Verdict.MODEL_MISMATCH: "the server started the round from another model",
    Verdict.ROSTER_MALFORMED: "the roster is not sorted by name, or names somebody twice",
    Verdict.ROSTER_TOO_SMALL: "so few participants could read each other's updates out of the sum",
    Verdict.ROSTER_UNKNOWN: "the roster names somebody outside the pinned registry",
    Verdict.EXCLUDED: "this client sent an update and is not in the roster",
    Verdict.OWN_COMMIT_ALTERED: "the roster holds another commitment than the one this client signed",
    Verdict.PEER_UPDATE_SIG: "a participant has not signed the commitment shown for it",
    Verdict.SHAPE: "the aggregate has another length or type than the session's",
    Verdict.RANGE: "a coordinate exceeds what this many clipped updates can sum to",
    Verdict.SERVER_SIG: "the server has not signed this roster and aggregate",
    Verdict.NEXT_MODEL_MISMATCH: "the announced next model does not follow from this model and this aggregate",
    Verdict.UPDATE_SPENT: "the update was shown in another sum, and the difference would show somebody's update",
    Verdict.SHARE_ALTERED: "a masked update shown by the server is not the one its owner signed",
    Verdict.TAGS_INCOMPLETE: "there is not exactly one tag from each participant",
    Verdict.TAG_SIG: "a participant has not signed this tag for what this client saw",
    Verdict.SUM_MISMATCH: "the aggregate is not the sum of the participants' updates",
    Verdict.QUORUM_MISSING: "too few participants signed that they accepted the round",
    Verdict.REGISTRY_REFUSED: "the registry is not the pinned one, or its keys or signature do not hold",
    Verdict.VERIFIED: "the model came from the participants' updates alone",
}
"""What each says, in words for people."""

Evidence_contra = TypeVar("Evidence_contra", contravariant=True)


class Condition(Protocol[Evidence_contra]):
    """Whether the evidence is as it must be; it may rely on every check before it."""

    def __call__(self, evidence: Evidence_contra, /) -> bool: ...


@dataclass(frozen=True)
class Check(Generic[Evidence_contra]):
    """One condition, and the verdict where it fails."""

    verdict: Verdict
    holds: Condition[Evidence_contra]


def rejection(verdict: Verdict, detail: str = "") -> NotVerified:
    """The error to raise for ``verdict``.

    >>> rejection(Verdict.REGISTRY_REFUSED, "its hash is another").verdict.name
    'REGISTRY_REFUSED'
    """
    name = verdict.name + (f" ({detail})" if detail else "")
    return NotVerified(f"{name}: {MEANINGS[verdict]}.", verdict)


def require(checks: Iterable[Check[Evidence_contra]], evidence: Evidence_contra) -> None:
    """Raise NotVerified with the verdict of the first check that fails."""
    for check in checks:
        if not check.holds(evidence):
            raise rejection(check.verdict)
