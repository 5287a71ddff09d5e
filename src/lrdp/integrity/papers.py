"""A failed round as bytes: what was published and signed in it, without its vectors, which are kept beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from lrdp.codec import PACKED, RAW, Format, many
from lrdp.integrity.blame import Case
from lrdp.integrity.depositions import Deposition, FailedRound
from lrdp.integrity.encoding import SIGNATURE, Encoded, part_of
from lrdp.integrity.fixed_point import Whole
from lrdp.integrity.messages import CommittedUpdate, Header, Pledge, Tag
from lrdp.integrity.sealing import NamedVectors, handed_back
from lrdp.integrity.session import Position, Session
from lrdp.integrity.verdicts import Verdict, rejection

MOST_PAPER_BYTES: Final = 64 << 20
"""A deposition has 17 bytes for each peer: a round of 1,900 participants fits."""
_OPENED: Final = ("pledge", "nonce")


@dataclass(frozen=True, kw_only=True)
class Papers(Encoded):
    """A case without its vectors; ``opened`` is the pledge and the nonce of the opened update, if there is one."""

    session: Session
    header: Header
    signature: bytes
    tags: tuple[Tag, ...]
    depositions: tuple[Deposition, ...]
    opened: tuple[bytes, ...]

    FORMAT: ClassVar[Format[bytes]] = Format(
        PACKED,
        (b"CASE/v1",),
        {
            "session": part_of(Session),
            "header": part_of(Header),
            "signature": SIGNATURE,
            "tags": many(part_of(Tag)),
            "depositions": many(part_of(Deposition), most_bytes=MOST_PAPER_BYTES),
            "opened": many(RAW, len(_OPENED)),
        },
        MOST_PAPER_BYTES,
    )


def encode_failed(failed: FailedRound) -> bytes:
    """The papers."""
    case, opened = failed.case, failed.opened
    papers = Papers(
        session=case.position.session,
        header=case.header,
        signature=case.signature,
        tags=failed.tags,
        depositions=failed.depositions,
        opened=() if opened is None else (opened.pledge.encode(), opened.nonce),
    )
    return papers.encode()


def failed_vectors(failed: FailedRound) -> dict[str, Whole]:
    """What ``decode_failed`` wants back."""
    opened = {} if failed.opened is None else {"opened": failed.opened.values}
    return {"aggregate": failed.case.aggregate, **opened}


def decode_failed(data: bytes, vectors: NamedVectors) -> FailedRound:
    """What ``encode_failed`` wrote; NotVerified for anything else.

    The place in the history is the one that the header names: its pledges are signed for that place.
    """
    papers = Papers.decode(data)
    header = papers.header
    case = Case(
        position=Position(session=papers.session, round=header.round, tip=header.previous, model=header.model),
        header=header,
        signature=papers.signature,
        aggregate=handed_back(vectors, "aggregate"),
        bare=tuple(word.bare for word in papers.depositions),
    )
    opened = _opened(papers.opened, vectors)
    return FailedRound(case=case, tags=papers.tags, depositions=papers.depositions, opened=opened)


def _opened(said: tuple[bytes, ...], vectors: Mapping[str, Whole]) -> CommittedUpdate | None:
    if not said:
        return None
    values = handed_back(vectors, "opened")
    if len(said) != len(_OPENED) or values.ndim != 1:
        raise rejection(Verdict.MALFORMED, "what is opened is not a pledge, a nonce and a vector")
    pledge, nonce = said
    return CommittedUpdate(pledge=Pledge.decode(pledge), nonce=nonce, values=values)
