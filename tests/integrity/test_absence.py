"""Clients that go, come and wait: nobody trains on what is not verified, and nobody is lost for good."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from integrity.parties import conclude, federation, honest_round, identity, play_out, stage, verdict_of
from integrity.test_registry import rotated_world
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client, server
from lrdp.integrity.history import follow_all
from lrdp.integrity.messages import Accept, Tags
from lrdp.integrity.receipts import follow
from lrdp.integrity.schemes import sketch_client
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict


def test_a_client_that_drops_out_before_publish_is_not_in_the_roster():
    world = federation(5)
    scene = stage(world, dropped=["c001"])
    assert "c001" not in scene.publish.header.names
    assert play_out(scene).worst is Verdict.VERIFIED


def test_a_stranger_is_not_enlisted_even_if_it_was_invited():
    world = federation(3)
    gathering, _ = server.open_round(world.idle, [*world.clients, "stranger"])
    pledge = replace(stage(world).committed["c000"].pledge, name="stranger")
    assert verdict_of(lambda: server.enlist(gathering, pledge)) is Verdict.ROSTER_UNKNOWN


def test_too_few_updates_are_not_published():
    with pytest.raises(NotVerified, match="ROSTER_TOO_SMALL"):
        stage(federation(4), dropped=["c000", "c001"])


def test_a_tag_that_comes_late_still_verifies_the_round():
    scene = stage(federation(4))
    played = play_out(scene, tamper=lambda tags: tags[:-1])
    assert played.worst is Verdict.TAGS_INCOMPLETE
    ready, _ = client.settle(played.tagged["c000"], Tags(tags=tuple(played.tags)))
    assert ready.position.round == 1


def test_whoever_misses_a_tag_goes_back_to_the_same_model_and_the_next_attempt():
    scene = stage(federation(4))
    tagged = play_out(scene, tamper=lambda tags: tags[:-1]).tagged["c000"]
    before = scene.federation.clients["c000"]
    back = client.roll_back(tagged)
    assert back.model is before.model
    assert back.position == before.position
    assert back.attempt == 1


def test_the_round_is_played_again_from_the_last_verified_model():
    world = federation(4)
    scene = stage(world)
    played = play_out(scene, tamper=lambda tags: tags[:-1])
    world.clients = {name: client.roll_back(tagged) for name, tagged in played.tagged.items()}
    world.idle = server.retry(scene.published.idle)
    again = stage(world, updates={name: bound.values for name, bound in scene.committed.items()})
    assert again.publish.header.attempt == 1
    assert play_out(again).worst is Verdict.VERIFIED


def test_a_tag_lost_on_the_way_is_given_again_and_no_other():
    scene = stage(federation(4))
    tagged, tag = client.answer(scene.committed["c000"], scene.publish)
    assert client.answer_again(tagged, scene.publish) == tag
    altered = scene.publish.aggregate.copy()
    altered[0] += 1
    other = scene.resign(altered)
    assert verdict_of(lambda: client.answer(scene.committed["c000"], other)) is Verdict.VERIFIED
    assert verdict_of(lambda: client.answer_again(tagged, other)) is Verdict.STALE_CONTEXT


def test_a_client_that_never_saw_publish_goes_back():
    scene = stage(federation(4))
    back = client.abandon(scene.committed["c000"])
    before = scene.federation.clients["c000"]
    assert (back.position, back.attempt) == (before.position, before.attempt)
    assert back.model is before.model


@pytest.mark.parametrize("method", list(ProofMethod))
def test_an_absent_client_joins_with_receipts_and_is_verified_with_the_others(method):
    world = federation(5, method=method)
    absent = world.clients["c004"]
    receipts = [honest_round(world, ["c000", "c001", "c002", "c003"]) for _ in range(3)]
    world.clients["c004"] = client.catch_up(absent, receipts, world.idle.model)
    assert world.clients["c004"].position == world.idle.position
    honest_round(world)


def test_a_client_absent_over_a_rotation_resumes_with_receipts_and_registry():
    world, old, receipts, following = rotated_world()
    receipts.append(honest_round(world, ["c000", "c001", "c002"]))
    start = federation(4)
    position = follow_all(start.clients["c003"].position, receipts[:2]).rotated(following)
    me = old["c003"].identity
    resumed = client.resume(me, sketch_client(me, world.session), follow(position, receipts[2]), world.idle.model)
    world.clients["c003"] = resumed
    honest_round(world)
    with pytest.raises(NotVerified, match="MODEL_MISMATCH"):
        client.resume(me, resumed.scheme, resumed.position, start.idle.model)


def test_an_absent_client_refuses_gaps_and_another_model():
    world = federation(5)
    absent = world.clients["c004"]
    receipts = [honest_round(world, ["c000", "c001", "c002", "c003"]) for _ in range(3)]
    join = lambda given, model: verdict_of(lambda: client.catch_up(absent, given, model))  # noqa: E731
    assert join(receipts[1:], world.idle.model) is Verdict.STALE_CONTEXT
    assert join(receipts[::-1], world.idle.model) is Verdict.STALE_CONTEXT
    assert join(receipts[:2], world.idle.model) is Verdict.MODEL_MISMATCH
    assert join([], world.idle.model) is Verdict.MODEL_MISMATCH
    other = world.idle.model.copy()
    other[0] = np.nextafter(other[0], np.float32(9))
    assert join(receipts, other) is Verdict.MODEL_MISMATCH


def test_a_client_that_rolled_back_while_the_others_verified_follows_with_the_receipt():
    world = federation(4)
    scene = stage(world)
    played = play_out(scene)
    receipt = conclude(scene, played)
    behind = client.roll_back(played.tagged["c003"])
    world.clients["c003"] = client.catch_up(behind, [receipt], world.idle.model)
    honest_round(world)


def test_catching_up_with_nothing_does_not_bring_back_an_attempt_given_up():
    world = federation(4)
    behind = client.roll_back(play_out(stage(world)).tagged["c003"])
    assert client.catch_up(behind, [], world.idle.model).attempt == 1


def test_the_word_of_a_member_who_took_no_part_does_not_count():
    world = federation(5)
    scene = stage(world, ["c000", "c001", "c002", "c003"])
    played = play_out(scene)
    after = next(iter(played.ready.values())).position
    for name in ("c004", "stranger"):
        claim = (name.encode(), scene.publish.header.digest, after.tip)
        word = Accept(name=name, signature=identity(name).sign(b"accept/v1", *claim))
        assert [one.name for one in server.conclude(scene.published, [word, played.accepts[1]])[1].accepts] == ["c001"]


def test_half_of_the_roster_is_no_quorum():
    parameters = federation(3).session.parameters
    assert [parameters.quorum(count) for count in (3, 4, 5, 6, 10, 300)] == [3, 3, 3, 4, 6, 151]


def test_the_server_turns_down_what_it_could_not_prove():
    world = federation(4)
    gathering, train = server.open_round(world.idle, ("c000", "c001", "c002"))
    committed = client.commit(client.begin(world.clients["c000"], train), world.update(), bytes(32), update=1)
    _, update = client.reveal(committed)
    enlisted = server.enlist(gathering, committed.pledge)
    large = replace(update, values=np.full(37, 2**23, "<i4"))
    cases = {
        "uninvited": lambda: server.enlist(gathering, replace(committed.pledge, name="c003")),
        "unknown": lambda: server.enlist(gathering, replace(committed.pledge, name="sybil")),
        "twice": lambda: server.enlist(enlisted, committed.pledge),
        "stolen": lambda: server.enlist(gathering, replace(committed.pledge, name="c001")),
        "not pledged": lambda: server.admit(gathering, update),
        "sent twice": lambda: server.admit(server.admit(enlisted, update), update),
        "other values": lambda: server.admit(enlisted, replace(update, values=update.values + np.int32(1))),
        "other nonce": lambda: server.admit(enlisted, replace(update, nonce=bytes([1]) * 32)),
        "too large": lambda: server.admit(enlisted, large),
        "too short": lambda: server.admit(enlisted, replace(update, values=update.values[:-1])),
        "too wide": lambda: server.admit(enlisted, replace(update, values=update.values.astype("<i8"))),
    }
    expected = {
        "uninvited": Verdict.ROSTER_UNKNOWN,
        "unknown": Verdict.ROSTER_UNKNOWN,
        "twice": Verdict.ROSTER_MALFORMED,
        "stolen": Verdict.PEER_UPDATE_SIG,
        "not pledged": Verdict.ROSTER_MALFORMED,
        "sent twice": Verdict.ROSTER_MALFORMED,
        "other values": Verdict.OWN_COMMIT_ALTERED,
        "other nonce": Verdict.OWN_COMMIT_ALTERED,
        "too large": Verdict.RANGE,
        "too short": Verdict.RANGE,
        "too wide": Verdict.RANGE,
    }
    assert {name: verdict_of(step) for name, step in cases.items()} == expected


def test_the_server_collects_each_tag_once_and_only_from_participants():
    scene = stage(federation(4), ["c000", "c001", "c002"])
    tags = play_out(scene).tags
    taken = server.collect(scene.published, tags[0])
    assert verdict_of(lambda: server.collect(taken, tags[0])) is Verdict.TAGS_INCOMPLETE
    assert verdict_of(lambda: server.collect(taken, replace(tags[1], name="c003"))) is Verdict.TAGS_INCOMPLETE
    assert verdict_of(lambda: server.collect(taken, replace(tags[1], value=0))) is Verdict.TAG_SIG


def test_a_client_commits_only_to_updates_of_the_session():
    world = federation(3, size=4)
    _, train = server.open_round(world.idle, tuple(world.clients))
    begun = client.begin(world.clients["c000"], train)
    for wrong in (np.zeros(5, "<i4"), np.full(4, 2**23, "<i4"), np.zeros(4, "<i8"), np.zeros((4, 1), "<i4")):
        with pytest.raises(InvalidInput):
            client.commit(begun, wrong, bytes(32), update=1)


def test_states_of_another_method_or_size_are_refused():
    sketch, exact = federation(3), federation(3, method=ProofMethod.EXACT)
    with pytest.raises(InvalidInput, match="method"):
        replace(sketch.clients["c000"], scheme=exact.clients["c000"].scheme)
    with pytest.raises(InvalidInput, match="method"):
        server.start(sketch.idle.identity, exact.idle.scheme, sketch.session, sketch.idle.model)
    with pytest.raises(InvalidInput, match="37 coordinates"):
        replace(sketch.clients["c000"], model=np.zeros(3, "<f4"))


@pytest.mark.parametrize("jump", [1000, 2**32, 2**64 - 1])
def test_no_attempt_is_so_far_ahead_that_none_could_follow(jump):
    """Else one signed number would keep a client out until the next session."""
    world = federation(4)
    _, train = server.open_round(replace(world.idle, attempt=jump), tuple(world.clients))
    assert verdict_of(lambda: client.begin(world.clients["c000"], train)) is Verdict.STALE_CONTEXT
    scene = stage(world)
    publish = scene.resign(attempt=jump)
    assert play_out(scene, publish).worst is Verdict.STALE_CONTEXT
    assert play_out(scene).worst is Verdict.VERIFIED


def test_a_client_that_missed_attempts_takes_part_in_a_later_one():
    world = federation(4)
    world.idle = replace(world.idle, attempt=999)
    scene = stage(world)
    played = play_out(scene, tamper=lambda tags: tags[1:])
    assert {client.roll_back(tagged).attempt for tagged in played.tagged.values()} == {1000}
    assert play_out(scene, scene.resign(attempt=998)).worst is Verdict.STALE_CONTEXT
