"""What one opened update shows an auditor, and which cases are no evidence. Who is named for it: test_depositions."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from integrity.parties import Stage, federation, identity, play_out, secret, stage, verdict_of
from lrdp.errors import InvalidInput
from lrdp.integrity import client, depositions
from lrdp.integrity.blame import Case, Finding, accuse, bare_tag, examined
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.depositions import FailedRound, depose, judged
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.messages import CommittedUpdate, Publish, Tag, Tags
from lrdp.integrity.schemes import transcript_challenge
from lrdp.integrity.verdicts import Verdict


def bare(name: str, header, value: int) -> Tag:
    claim = (name.encode(), header.digest, value.to_bytes(16, "little"))
    return Tag(name=name, value=value, signature=identity(name).sign(b"bare-tag/v1", *claim))


def case_of(scene: Stage, publish: Publish, tags: list[Tag]) -> Case:
    return Case(
        position=scene.federation.idle.position,
        header=publish.header,
        signature=publish.signature,
        aggregate=publish.aggregate,
        bare=tuple(tags),
    )


def published(scene: Stage, publish: Publish):
    return replace(scene.published, header=publish.header, aggregate=publish.aggregate)


def lie(tagged: client.Tagged, tag: Tag) -> Tag:
    return client.sign_tag(tagged.ready.identity, tagged.header, tag.value ^ 1)


def test_a_client_that_frames_the_server_is_convicted():
    scene = stage(federation(4))
    played = play_out(scene, lies={"c002": lie})
    assert set(played.verdicts.values()) == {Verdict.SUM_MISMATCH}
    honest = {name: bare_tag(tagged) for name, tagged in played.tagged.items()}
    tags = [*(tag for name, tag in honest.items() if name != "c002"), bare("c002", scene.publish.header, 5)]
    accused = accuse(scene.published, tags)
    assert accused is not None
    assert accused.pledge.name == "c002"
    assert examined(case_of(scene, scene.publish, tags), accused) is Finding.CLIENT


def test_a_client_that_lied_once_and_then_tells_the_truth_is_not_accused():
    scene = stage(federation(4))
    tags = [bare_tag(tagged) for tagged in play_out(scene, lies={"c002": lie}).tagged.values()]
    assert accuse(scene.published, tags) is None


def cheated(scene: Stage) -> Publish:
    aggregate = scene.publish.aggregate.copy()
    aggregate[3] += 50
    return scene.resign(aggregate)


def test_the_update_of_an_honest_client_shows_nothing_against_it_whatever_was_published():
    scene = stage(federation(4))
    publish = cheated(scene)
    tags = [bare_tag(tagged) for tagged in play_out(scene, publish).tagged.values()]
    assert accuse(published(scene, publish), tags) is None
    found = {examined(case_of(scene, publish, tags), update) for update in scene.published.updates}
    assert found == {Finding.SOUND}


def test_a_server_that_opens_another_update_is_convicted():
    scene = stage(federation(4))
    publish = cheated(scene)
    tags = [bare_tag(tagged) for tagged in play_out(scene, publish).tagged.values()]
    genuine = scene.published.updates[1]
    other = genuine.values.copy()
    other[3] += 50
    for forged in (
        replace(genuine, values=other),
        replace(genuine, values=other[:-1].copy()),
        replace(genuine, pledge=replace(genuine.pledge, commitment=secret("another"))),
    ):
        assert examined(case_of(scene, publish, tags), forged) is Finding.SERVER


def test_a_server_that_opens_an_update_which_the_roster_does_not_hold_is_convicted():
    """A client that began the round twice signed two updates: the one that was not used proves nothing against it."""
    scene = stage(federation(4))
    publish = cheated(scene)
    tags = [bare_tag(tagged) for tagged in play_out(scene, publish).tagged.values()]
    unused = client.commit(scene.committed["c001"].begun, scene.federation.update(), secret("another nonce"), update=2)
    _, update = client.reveal(unused)
    assert examined(case_of(scene, publish, tags), update) is Finding.SERVER


def test_an_update_whose_owner_signed_no_bare_tag_shows_nothing_against_it():
    scene = stage(federation(4))
    assert examined(case_of(scene, scene.publish, []), scene.published.updates[0]) is Finding.SERVER


def test_a_server_and_a_client_that_collude_are_verified_and_nobody_is_heard():
    """By design: what the two published *is* the client's input, and where tags add up nobody deposes."""
    scene = stage(federation(4))
    publish = cheated(scene)
    added = np.zeros(37, "<i4")
    added[3] = 50
    missing = transcript_challenge(publish.header, 37).tag(added)
    move = lambda tagged, tag: client.sign_tag(  # noqa: E731
        tagged.ready.identity, tagged.header, (tag.value + missing) % MERSENNE_127.prime
    )
    played = play_out(scene, publish, lies={"c003": move})
    assert played.worst is Verdict.VERIFIED
    with pytest.raises(InvalidInput, match="nobody deposes"):
        depose(played.tagged["c000"], Tags(tags=tuple(played.tags)))


@pytest.mark.parametrize(
    "values",
    [
        np.full(37, 2**23, "<i4"),
        np.full(37, -(2**23), "<i4"),
        np.zeros(38, "<i4"),
        np.zeros(36, "<i4"),
        np.zeros(37, "<i8"),
        np.zeros(37, "<f4"),
        np.full(37, np.nan, "<f4"),
        np.zeros((37, 1), "<i4"),
    ],
)
def test_an_opened_update_that_is_none_convicts_both_its_owner_and_the_server(values):
    """The colluder pledges what no honest client can, and signs the tag of it; an honest server would not admit it."""
    scene = stage(federation(4))
    position, owner = scene.federation.idle.position, identity("c003")
    own = pledge(position, owner, commitment(position, "c003", bytes(32), values))
    publish = scene.resign(roster=(*scene.publish.header.roster[:3], own))
    tags = [bare(name, publish.header, 1) for name in scene.names]
    case, opened = case_of(scene, publish, tags), CommittedUpdate(pledge=own, nonce=bytes(32), values=values)
    assert examined(case, opened) is Finding.BOTH


def test_control_an_update_at_the_edge_of_the_range_is_one():
    scene = stage(federation(4))
    edge = np.full(37, 2**23 - 1, "<i4")
    scene = stage(federation(4), updates=dict.fromkeys(scene.names, edge))
    case = case_of(scene, scene.publish, [bare_tag(tagged) for tagged in play_out(scene).tagged.values()])
    assert {examined(case, update) for update in scene.published.updates} == {Finding.SOUND}


def _beyond(scene: Stage) -> np.ndarray:
    aggregate = scene.publish.aggregate.copy()
    aggregate[4] = len(scene.names) * scene.point.most + 1
    return aggregate


def spoilt() -> dict[str, tuple[FailedRound, Verdict]]:
    """Cases of a round in which nobody deposed, each with one thing wrong."""
    scene = stage(federation(4))
    tags = tuple(play_out(scene, lies={"c002": lie}).tags)
    made = FailedRound(case=case_of(scene, scene.publish, []), tags=tags, depositions=())
    good = made.case

    def of(case: Case) -> FailedRound:
        return replace(made, case=case)

    def shown(**changes: Any) -> FailedRound:
        return of(case_of(scene, scene.resign(**changes), []))

    roster = scene.publish.header.roster
    return {
        "another round": (shown(round=3), Verdict.STALE_CONTEXT),
        "another history": (shown(previous=secret("x")), Verdict.CHAIN_BREAK),
        "unsorted": (shown(roster=roster[::-1]), Verdict.ROSTER_MALFORMED),
        "a stranger": (shown(roster=(*roster, replace(roster[0], name="sybil"))), Verdict.ROSTER_UNKNOWN),
        "a forged pledge": (
            shown(roster=(replace(roster[0], commitment=secret("x")), *roster[1:])),
            Verdict.PEER_UPDATE_SIG,
        ),
        "another server": (
            of(replace(good, signature=identity("x").sign(b"server/v1", good.header.digest))),
            Verdict.SERVER_SIG,
        ),
        "another aggregate": (of(replace(good, aggregate=good.aggregate * 2)), Verdict.SHAPE),
        "beyond the range": (shown(aggregate=_beyond(scene)), Verdict.RANGE),
        "a tag short": (replace(made, tags=tags[1:]), Verdict.TAGS_INCOMPLETE),
        "a forged tag": (replace(made, tags=(replace(tags[0], value=9), *tags[1:])), Verdict.TAG_SIG),
    }


@pytest.mark.parametrize(("index", "name"), list(enumerate(spoilt())))
def test_an_auditor_is_not_shown_a_spoilt_case(index, name, monkeypatch):
    failed, verdict = spoilt()[name]
    assert depositions.FAILED[index].verdict is verdict
    assert verdict_of(lambda: judged(failed)) is verdict
    monkeypatch.setattr(depositions, "FAILED", (*depositions.FAILED[:index], *depositions.FAILED[index + 1 :]))
    with contextlib.suppress(KeyError):  # a later check may rest on the one removed
        assert verdict_of(lambda: judged(failed)) is not verdict
