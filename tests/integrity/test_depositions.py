"""Tags that do not add up: whoever lied is named by what was signed, and an honest client only beside a liar."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from integrity.parties import Played, Stage, federation, identity, play_out, secret, stage, verdict_of
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client
from lrdp.integrity.blame import Case, accuse
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.depositions import Deposition, FailedRound, Judgement, depose, judged
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.messages import CommittedUpdate, Publish, Tag, Tags
from lrdp.integrity.papers import Papers, decode_failed, encode_failed, failed_vectors
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict
from oracles import integrity_reference as reference

P = MERSENNE_127.prime
LIAR, OTHER = "c002", "c001"


def shifted(tagged: client.Tagged, tag: Tag, by: int = 77) -> Tag:
    return client.sign_tag(tagged.ready.identity, tagged.header, (tag.value + by) % P)


def deposed(name: str, header: Any, bare: int, masks: list[int]) -> Deposition:
    """Signed by its owner, whatever it says; written here without the code that writes honest ones."""
    word = lambda value: value.to_bytes(16, "little")  # noqa: E731
    claim = (name.encode(), header.digest)
    tag = Tag(name=name, value=bare, signature=identity(name).sign(b"bare-tag/v1", *claim, word(bare)))
    signature = identity(name).sign(b"deposition/v1", *claim, b"".join(map(word, masks)))
    return Deposition(bare=tag, masks=tuple(masks), signature=signature)


@dataclass
class Scene:
    """A round that failed, with everybody's true word on it."""

    stage: Stage
    played: Played
    publish: Publish

    def honest(self) -> dict[str, Deposition]:
        tags = Tags(tags=tuple(self.played.tags))
        return {name: depose(tagged, tags) for name, tagged in self.played.tagged.items()}

    def case(self, words: dict[str, Deposition], **changes: Any) -> FailedRound:
        published = replace(self.stage.published, header=self.publish.header, aggregate=self.publish.aggregate)
        bare = {name: word.bare for name, word in words.items()}
        here = replace(published, updates=tuple(each for each in published.updates if each.pledge.name in bare))
        made = FailedRound(
            case=Case(
                position=self.stage.federation.idle.position,
                header=self.publish.header,
                signature=self.publish.signature,
                aggregate=self.publish.aggregate,
                bare=tuple(bare.values()),
            ),
            tags=tuple(self.played.tags),
            depositions=tuple(words.values()),
            opened=accuse(here, bare.values()),
        )
        return replace(made, **changes)

    def judge(self, words: dict[str, Deposition], **changes: Any) -> Judgement:
        return judged(self.case(words, **changes))


def framed(lie: Callable[[client.Tagged, Tag], Tag] = shifted) -> Scene:
    made = stage(federation(4))
    return Scene(made, play_out(made, lies={LIAR: lie}), made.publish)


def cheated() -> Scene:
    """The server adds fifty quanta to a coordinate; every hash and signature is right."""
    made = stage(federation(4))
    aggregate = made.publish.aggregate.copy()
    aggregate[3] += 50
    publish = made.resign(aggregate)
    return Scene(made, play_out(made, publish), publish)


def test_the_parts_of_a_deposition_add_up_to_the_tag_and_each_mask_is_what_both_derive() -> None:
    scene = framed()
    words, tags = scene.honest(), {tag.name: tag.value for tag in scene.played.tags}
    names, session = scene.publish.header.names, scene.stage.federation.session
    for name in names:
        peers = [peer for peer in names if peer != name]
        for peer, mask in zip(peers, words[name].masks, strict=True):
            keys = identity(name).agreement_secret, identity(peer).member.agreement_key
            low, high = sorted((name, peer))
            pair = reference.pair_key(*keys, session.digest, "tagmask/v1", (low, high))
            assert mask == reference.mask("", {peer: pair}, scene.publish.header.digest)
        signs = [1 if name < peer else -1 for peer in peers]
        total = words[name].bare.value + sum(s * z for s, z in zip(signs, words[name].masks, strict=True))
        assert (total - tags[name]) % P == (77 * -(name == LIAR)) % P


def test_whoever_signed_another_tag_and_then_says_the_truth_contradicts_itself() -> None:
    scene = framed()
    found = scene.judge(scene.honest())
    assert list(found.clients) == [LIAR]
    assert "is not the bare tag and the masks" in found.clients[LIAR]
    assert (found.pairs, found.silent, found.server) == ((), (), "")


def test_whoever_sticks_to_its_lie_is_convicted_by_its_own_update() -> None:
    scene = framed()
    words = scene.honest()
    true = words[LIAR]
    words[LIAR] = deposed(LIAR, scene.publish.header, (true.bare.value + 77) % P, list(true.masks))
    failed = scene.case(words)
    assert failed.opened is not None
    assert failed.opened.pledge.name == LIAR
    found = judged(failed)
    assert list(found.clients) == [LIAR]
    assert found.server == ""


def test_whoever_lies_about_a_mask_is_one_of_two() -> None:
    scene = framed()
    words = scene.honest()
    true = words[LIAR]
    peers = [name for name in scene.publish.header.names if name != LIAR]
    masks = list(true.masks)
    masks[peers.index(OTHER)] = (masks[peers.index(OTHER)] - 77) % P  # c001 comes before c002, so it is subtracted
    words[LIAR] = deposed(LIAR, scene.publish.header, true.bare.value, masks)
    found = scene.judge(words)
    assert found.pairs == ((OTHER, LIAR),)
    assert (found.clients, found.server) == ({}, "")


def test_whoever_says_nothing_is_named_for_it_and_nobody_else_is() -> None:
    scene = framed()
    words = scene.honest()
    del words[LIAR]
    found = scene.judge(words)
    assert (found.silent, found.clients, found.pairs, found.server) == ((LIAR,), {}, (), "")


SPOILT = (
    *("signature", "bare signature", "masked", "another's", "another round's"),
    *("too few", "the prime", "beyond the prime", "bare prime", "beyond the bare prime"),
)


@pytest.mark.parametrize("spoil", SPOILT)
def test_a_word_that_its_owner_did_not_sign_for_this_round_counts_as_none(spoil: str) -> None:
    scene = framed()
    words = scene.honest()
    true, header = words[LIAR], scene.publish.header
    words[LIAR] = {
        "signature": replace(true, signature=bytes(64)),
        "bare signature": replace(true, bare=replace(true.bare, signature=bytes(64))),
        "masked": replace(true, bare=next(tag for tag in scene.played.tags if tag.name == LIAR)),
        "another's": replace(words[OTHER], bare=true.bare),
        "another round's": deposed(LIAR, replace(header, round=9), true.bare.value, list(true.masks)),
        "too few": deposed(LIAR, header, true.bare.value, list(true.masks[:-1])),
        "the prime": deposed(LIAR, header, true.bare.value, [P, *true.masks[1:]]),
        "beyond the prime": deposed(LIAR, header, true.bare.value, [true.masks[0] + P, *true.masks[1:]]),
        "bare prime": deposed(LIAR, header, P, list(true.masks)),
        "beyond the bare prime": deposed(LIAR, header, true.bare.value + P, list(true.masks)),
    }[spoil]
    assert scene.judge(words).silent == (LIAR,)


@pytest.mark.parametrize("name", ["c004", "a-stranger"])
def test_a_word_of_somebody_outside_the_roster_changes_nothing(name: str) -> None:
    made = stage(federation(5), ("c000", OTHER, LIAR, "c003"))
    scene = Scene(made, play_out(made, lies={LIAR: shifted}), made.publish)
    words = scene.honest()
    outside = deposed(name, scene.publish.header, 1, [2, 3, 4])
    alone, with_it = scene.case(words), scene.case(words)
    with_it = replace(with_it, depositions=(*with_it.depositions, outside))
    assert judged(with_it) == judged(alone)
    assert list(judged(alone).clients) == [LIAR]


def test_everybody_who_is_named_is_in_the_line_for_people() -> None:
    found = Judgement(clients={"a": "why"}, pairs=(("b", "c"),), silent=("d",))
    assert found.line == "a lied, b or c lied, d did not depose"
    assert replace(found, server="why").line == f"{found.line}, the server lied"
    assert found.named == {"a", "b", "c", "d"}


def test_a_client_that_pledged_what_is_not_an_update_is_named_with_the_server_that_admitted_it() -> None:
    made = stage(federation(4))
    position, values = made.federation.idle.position, np.full(37, 2**23, "<i4")
    own = pledge(position, identity("c003"), commitment(position, "c003", bytes(32), values))
    publish = made.resign(roster=(*made.publish.header.roster[:3], own))
    owner = replace(made.committed["c003"], pledge=own, nonce=bytes(32), values=values, sent=values)
    made = replace(made, committed={**made.committed, "c003": owner}, publish=publish)
    scene = Scene(made, play_out(made), publish)
    opened = CommittedUpdate(pledge=own, nonce=bytes(32), values=values)
    found = scene.judge(scene.honest(), opened=opened)
    assert list(found.clients) == ["c003"]
    assert "the server admitted it" in found.clients["c003"]
    assert found.server == "the server admitted what is not an update of this session"


def test_a_server_that_altered_the_sum_convicts_itself_whomever_it_accuses() -> None:
    scene = cheated()
    words = scene.honest()
    alone = scene.judge(words, opened=None)
    assert "opened nobody" in alone.server
    assert (alone.clients, alone.pairs, alone.silent) == ({}, (), ())
    for update in scene.stage.published.updates:
        found = scene.judge(words, opened=update)
        assert found.clients == {}
        assert "accused an honest client" in found.server
    forged = scene.stage.published.updates[0]
    other = forged.values.copy()
    other[3] += 50
    assert scene.judge(words, opened=replace(forged, values=other)).server
    unused = client.commit(scene.stage.committed[LIAR].begun, other, secret("another nonce"), update=2)
    _, update = client.reveal(unused)
    assert scene.judge(words, opened=update).server


def test_a_server_cannot_leave_out_an_honest_word_and_call_another_a_liar() -> None:
    """Whoever is left out is silent, and the rest is no worse for it."""
    scene = cheated()
    words = scene.honest()
    del words["c000"]
    found = scene.judge(words, opened=None)
    assert (found.silent, found.clients, found.pairs) == (("c000",), {}, ())


def test_no_coalition_of_liars_gets_an_honest_client_named_alone() -> None:
    """Every set of one or two liars, each with random shifts of tag, bare tag and masks."""
    source = np.random.default_rng(5)
    for liars in [(name,) for name in ("c000", LIAR)] + list(combinations(("c000", OTHER, LIAR), 2)):
        made = stage(federation(4))
        played = play_out(made, lies=dict.fromkeys(liars, shifted))
        scene = Scene(made, played, made.publish)
        for _ in range(5):
            words = scene.honest()
            for name in liars:
                moves = source.integers(0, 2, 4) * source.integers(1, 200, 4)
                true = words[name]
                masks = [(mask + int(move)) % P for mask, move in zip(true.masks, moves[1:], strict=True)]
                words[name] = deposed(name, scene.publish.header, (true.bare.value + int(moves[0])) % P, masks)
            found = scene.judge(words)
            assert set(found.clients) <= set(liars)
            assert all(set(pair) & set(liars) for pair in found.pairs)
            assert found.server == ""
            assert found.clients or found.pairs, "somebody is always named"


def test_nobody_deposes_where_the_tags_add_up_or_one_is_missing_or_forged() -> None:
    made = stage(federation(4))
    played = play_out(made)
    tagged, tags = played.tagged["c000"], played.tags
    with pytest.raises(InvalidInput, match="the round is verified"):
        depose(tagged, Tags(tags=tuple(tags)))
    assert verdict_of(lambda: depose(tagged, Tags(tags=tuple(tags[1:])))) is Verdict.TAGS_INCOMPLETE
    forged = (*tags[:3], replace(tags[3], value=tags[3].value ^ 1))
    assert verdict_of(lambda: depose(tagged, Tags(tags=forged))) is Verdict.TAG_SIG
    with pytest.raises(InvalidInput, match="nobody is to blame"):
        Scene(made, played, made.publish).judge({})


def test_nobody_deposes_in_exact_rounds() -> None:
    made = stage(federation(4, method=ProofMethod.EXACT))
    played = play_out(made)
    with pytest.raises(InvalidInput, match="mere signatures"):
        depose(played.tagged["c000"], Tags(tags=tuple(played.tags)))
    with pytest.raises(InvalidInput, match="blame is for `sketch`"):
        Scene(made, played, made.publish).judge({})


def test_the_evidence_itself_must_hold() -> None:
    scene = framed()
    good = scene.case(scene.honest())
    other = good.case.aggregate.copy()
    other[0] += 1
    for bad, verdict in (
        (replace(good, tags=good.tags[1:]), Verdict.TAGS_INCOMPLETE),
        (replace(good, tags=(replace(good.tags[0], value=5), *good.tags[1:])), Verdict.TAG_SIG),
        (replace(good, case=replace(good.case, signature=bytes(64))), Verdict.SERVER_SIG),
        (replace(good, case=replace(good.case, aggregate=other)), Verdict.SHAPE),
    ):
        assert verdict_of(lambda bad=bad: judged(bad)) is verdict  # type: ignore[misc]


def test_a_case_is_the_same_after_bytes_and_no_turned_bit_of_its_papers_names_another() -> None:
    scene = framed()
    failed = scene.case(scene.honest())
    papers, vectors = encode_failed(failed), failed_vectors(failed)
    assert judged(decode_failed(papers, vectors)) == judged(failed)
    assert encode_failed(decode_failed(papers, vectors)) == papers
    for place in range(0, len(papers), 41):
        turned = bytearray(papers)
        turned[place] ^= 1 << place % 8
        try:
            found = judged(decode_failed(bytes(turned), vectors))
        except (NotVerified, InvalidInput):
            continue
        assert set(found.clients) <= {LIAR}
        assert not found.pairs


def test_a_case_that_opens_an_update_is_the_same_after_bytes_and_nothing_else_can_be_opened() -> None:
    scene = cheated()
    failed = scene.case(scene.honest(), opened=scene.stage.published.updates[0])
    papers, vectors = encode_failed(failed), failed_vectors(failed)
    assert judged(decode_failed(papers, vectors)) == judged(failed)
    assert encode_failed(decode_failed(papers, vectors)) == papers
    with pytest.raises(InvalidInput, match="'opened' must be handed back"):
        decode_failed(papers, {"aggregate": vectors["aggregate"]})
    square = {**vectors, "opened": vectors["opened"].reshape(1, -1)}
    assert verdict_of(lambda: decode_failed(papers, square)) is Verdict.MALFORMED
    alone = replace(Papers.decode(papers), opened=Papers.decode(papers).opened[:1]).encode()
    assert verdict_of(lambda: decode_failed(alone, vectors)) is Verdict.MALFORMED


def test_the_second_implementation_makes_the_same_bytes_and_believes_the_same_signatures() -> None:
    scene = framed()
    dg = scene.publish.header.digest
    for name, word in scene.honest().items():
        sixteen = lambda value: value.to_bytes(16, "little")  # noqa: E731
        values = scene.stage.committed[name].values.tolist()
        bare, masks = reference.sketch(reference.challenge_seed(dg), values), [sixteen(mask) for mask in word.masks]
        assert word.bare.value == bare
        tag = reference.lp(b"T", name.encode(), sixteen(bare), word.bare.signature)
        assert word.encode() == reference.lp(b"DEPOSITION/v1", tag, reference.lp(*masks), word.signature)
        key, claim = identity(name).member.signing_key, (name.encode(), dg)
        assert reference.signed(key, word.bare.signature, "bare-tag/v1", *claim, sixteen(bare))
        assert reference.signed(key, word.signature, "deposition/v1", *claim, b"".join(masks))
