"""After tags that did not add up: everybody's word on its own tag, and what an auditor concludes from all of them.

A tag is ⟨r, u⟩ plus a mask for each peer. A deposition is these parts one by one, signed: the tag without masks, and
each mask. The masks were drawn for this attempt alone, so they tell nothing about any other; the bare tag is one number
about a noised update (post-processing: ε is unchanged). Nobody deposes where the tags do add up.

Guarantees: where everybody deposes, ``judged`` names somebody, and an honest client only in a pair with a liar. Let
τ_j = b_j + Σ ±z_jl hold for every j (else j contradicts itself) and z_jl = z_lj for every pair (else one of the two
lies). Then the masks cancel, Σ b_j = Σ τ_j ≠ tag(A), and either a b_j is not its update's, which the server shows by
opening that one update, or A is not their sum, which is the server's own doing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from lrdp.codec import Format, many, packed
from lrdp.errors import InvalidInput
from lrdp.integrity import checks
from lrdp.integrity.blame import CASE, Case, Finding, bare_signed, bare_tag, examined, require_sketch
from lrdp.integrity.client import Tagged
from lrdp.integrity.encoding import SIGNATURE, SIGNATURE_SIZE, Encoded, part_of, sized
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.masks import mask_of
from lrdp.integrity.messages import TAG_SIZE, TAG_VALUE, CommittedUpdate, Header, Tag, Tags
from lrdp.integrity.schemes import SketchClient, transcript_challenge
from lrdp.integrity.verdicts import Check, Verdict, require


@dataclass(frozen=True, kw_only=True)
class Deposition(Encoded):
    """A participant's tag without its masks, and the mask of each peer in the roster's order."""

    bare: Tag
    masks: tuple[int, ...]
    signature: bytes

    FORMAT: ClassVar[Format[bytes]] = packed(
        b"DEPOSITION/v1", bare=part_of(Tag), masks=many(TAG_VALUE), signature=SIGNATURE
    )

    def __post_init__(self) -> None:
        sized(self.signature, SIGNATURE_SIZE)

    @property
    def name(self) -> str:
        return self.bare.name


def depose(tagged: Tagged, tags: Tags) -> Deposition:
    """One's own deposition, if these are all tags of the attempt and they do not add up; raises otherwise."""
    scheme, header = tagged.ready.scheme, tagged.header
    if not isinstance(scheme, SketchClient):
        raise InvalidInput("in exact rounds tags are mere signatures: there is nothing to depose.")
    tally = checks.TagTally(position=tagged.ready.position, header=header, tags=tags.tags, expected=tagged.expected)
    require(_COMPLETE, tally)
    if checks.tags_add_up(tally):
        raise InvalidInput("the tags add up: the round is verified, and nobody deposes.")
    name = tagged.ready.identity.name
    masks = tuple(mask_of(scheme.pairwise, peer, header.digest, MERSENNE_127) for peer in _peers(header, name))
    claim = _claim(header, name, masks)
    return Deposition(bare=bare_tag(tagged), masks=masks, signature=tagged.ready.identity.sign(*claim))


_COMPLETE: Final = tuple(check for check in checks.TAGS if check.verdict is not Verdict.SUM_MISMATCH)


def _peers(header: Header, name: str) -> tuple[str, ...]:
    return tuple(peer for peer in header.names if peer != name)


def _claim(header: Header, name: str, masks: Iterable[int]) -> tuple[bytes, ...]:
    said = b"".join(value.to_bytes(TAG_SIZE, "little") for value in masks)
    return b"deposition/v1", name.encode(), header.digest, said


@dataclass(frozen=True, kw_only=True, eq=False)
class FailedRound:
    """What is left of a round whose tags do not add up; with ``opened``, an update, the server accuses its owner.

    ``case.bare`` are the bare tags of ``depositions``.
    """

    case: Case
    tags: tuple[Tag, ...]
    depositions: tuple[Deposition, ...]
    opened: CommittedUpdate | None = None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """Who lied: clients, with what shows it; pairs, of which one did; the server. And who did not depose."""

    clients: dict[str, str]
    pairs: tuple[tuple[str, str], ...]
    silent: tuple[str, ...]
    server: str = ""

    @property
    def named(self) -> set[str]:
        """Every client that is named, for whatever reason."""
        return {*self.clients, *self.silent, *(name for pair in self.pairs for name in pair)}

    @property
    def line(self) -> str:
        """Everybody who is named, in one line."""
        named = [f"{name} lied" for name in self.clients] + [f"{one} or {other} lied" for one, other in self.pairs]
        named += [f"{name} did not depose" for name in self.silent]
        return ", ".join([*named, *(["the server lied"] if self.server else [])])


def judged(failed: FailedRound) -> Judgement:
    """What follows from what was signed, and from the one update that was opened.

    Raises NotVerified where the evidence itself does not hold, and InvalidInput where the tags do add up.
    """
    case = failed.case
    require_sketch(case)
    require(FAILED, failed)
    if checks.tags_add_up(_tally(failed)):
        raise InvalidInput("the tags add up: nobody is to blame.")
    words = {word.name: word for word in failed.depositions if deposed(case, word)}
    clients = {name: _CONTRADICTION for name, word in words.items() if not _consistent(failed, word)}
    pairs = tuple(_disputed(case.header, words))
    silent = tuple(name for name in case.header.names if name not in words)
    server = ""
    if failed.opened is not None:
        found = examined(replace(case, bare=tuple(word.bare for word in words.values())), failed.opened)
        clients |= {failed.opened.pledge.name: str(found)} if found in (Finding.CLIENT, Finding.BOTH) else {}
        server = str(Finding.SERVER) if found in (Finding.SOUND, Finding.SERVER) else ""
        server = _ADMITTED if found is Finding.BOTH else server
    if not (clients or pairs or silent or server):
        server = _UNDEFENDED
    return Judgement(clients=dict(sorted(clients.items())), pairs=pairs, silent=silent, server=server)


_CONTRADICTION: Final = "the tag that it signed is not the bare tag and the masks that it signed later"
_ADMITTED: Final = "the server admitted what is not an update of this session"
_UNDEFENDED: Final = "the aggregate is not the sum of what was deposed, and the server opened nobody's update"


def _tally(failed: FailedRound) -> checks.TagTally:
    case = failed.case
    expected = transcript_challenge(case.header, case.aggregate.size).tag(case.aggregate)
    return checks.TagTally(position=case.position, header=case.header, tags=failed.tags, expected=expected)


def deposed(case: Case, word: Deposition) -> bool:
    """Whether a participant signed this about this attempt; whoever signed anything else counts as silent."""
    member, header = case.position.session.registry.by_name.get(word.name), case.header
    if member is None or word.name not in header.names or len(word.masks) != len(header.names) - 1:
        return False
    fits = all(value < MERSENNE_127.prime for value in word.masks)
    return (
        fits and bare_signed(case, word.bare) and member.signed(word.signature, *_claim(header, word.name, word.masks))
    )


def _consistent(failed: FailedRound, word: Deposition) -> bool:
    (tag,) = (tag for tag in failed.tags if tag.name == word.name)
    peers = _peers(failed.case.header, word.name)
    signed = sum(value if word.name < peer else -value for peer, value in zip(peers, word.masks, strict=True))
    return (word.bare.value + signed - tag.value) % MERSENNE_127.prime == 0


def _disputed(header: Header, words: dict[str, Deposition]) -> Iterable[tuple[str, str]]:
    said = {
        (name, peer): value
        for name, word in words.items()
        for peer, value in zip(_peers(header, name), word.masks, strict=True)
    }
    for (name, peer), value in said.items():
        if name < peer and said.get((peer, name), value) != value:
            yield name, peer


def _of_case(check: Check[Case]) -> Check[FailedRound]:
    return Check(check.verdict, lambda failed: check.holds(failed.case))


FAILED: tuple[Check[FailedRound], ...] = (
    *map(_of_case, CASE),
    Check(Verdict.TAGS_INCOMPLETE, lambda failed: checks.one_tag_each(_tally(failed))),
    Check(Verdict.TAG_SIG, lambda failed: checks.tags_signed(_tally(failed))),
)
