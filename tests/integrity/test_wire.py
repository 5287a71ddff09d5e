"""What travels is small, and leaving out what the receiver knows opens no door."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from integrity.parties import SERVER, Stage, federation, honest_round, play_out, stage, verdict_of
from lrdp.errors import InvalidInput
from lrdp.integrity import client, server
from lrdp.integrity.encoding import varint
from lrdp.integrity.messages import Publish, Tags, Train
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict
from lrdp.integrity.wire import Wire


def sizes(scene: Stage) -> dict[str, int]:
    """Bytes of everything that one participant sends and receives in a round, beside the vectors."""
    wire, played = scene.wire, play_out(scene)
    _, update = client.reveal(scene.committed[scene.names[0]], scene.gathering.pledges)
    return {
        "TRAIN": len(wire.train(scene.gathering.train)),
        "UPDATE": len(wire.update(update)),
        "PUBLISH": len(wire.publish(scene.publish)),
        "TAG": len(wire.tag(played.tags[0])),
        "TAGS": len(wire.tags(Tags(tags=tuple(played.tags)), scene.publish.header)),
        "ACCEPT": len(wire.accept(played.accepts[0])),
    }


@pytest.mark.parametrize("count", [3, 10, 40])
@pytest.mark.parametrize("letters", [4, 13, 32, 63])
def test_a_round_costs_as_many_bytes_as_the_specification_says_whatever_the_names(count, letters):
    found = sizes(stage(federation(count, size=3, name_letters=letters)))
    bits = -(-count // 8)
    assert found == {
        "TRAIN": 75 + 2 * count,
        "UPDATE": 132,
        "PUBLISH": 145 + 98 * count,
        "TAG": 83,
        "TAGS": 1 + bits + 80 * count,
        "ACCEPT": 67,
    }
    assert sum(found.values()) == 503 + bits + 180 * count
    assert (sum(found.values()) <= 300 * count) == (count > 3)


def test_a_late_round_costs_two_bytes_more():
    world = federation(3)
    world.idle = replace(world.idle, position=replace(world.idle.position, round=2**14, tip=bytes(32)))
    _, train = server.open_round(world.idle, list(world.clients))
    assert len(Wire(world.idle.position).train(train)) == 75 + 2 * 3 + 2


@pytest.mark.parametrize("method", list(ProofMethod))
def test_every_message_comes_back_as_it_was_sent(method):
    scene = stage(federation(4, method=method))
    wire, played = scene.wire, play_out(scene)
    tags = Tags(tags=tuple(played.tags))
    assert wire.read_train(wire.train(scene.gathering.train)) == scene.gathering.train
    assert wire.read_tags(wire.tags(tags, scene.publish.header), scene.publish.header) == tags
    bodies = [one.tobytes() for one in (scene.publish.aggregate, *(update.values for update in scene.publish.relayed))]
    back = wire.read_publish(wire.publish(scene.publish), *bodies)
    assert (back.header, back.signature) == (scene.publish.header, scene.publish.signature)
    assert [one.pledge for one in back.relayed] == [one.pledge for one in scene.publish.relayed]
    assert [one.nonce for one in back.relayed] == [one.nonce for one in scene.publish.relayed]
    for tag, accept in zip(played.tags, played.accepts, strict=True):
        assert wire.read_tag(wire.tag(tag)) == tag
        assert wire.read_accept(wire.accept(accept)) == accept


@pytest.mark.parametrize("present", [(), (0,), (2,), (0, 3)])
def test_incomplete_tags_say_whose_are_there(present):
    scene = stage(federation(4))
    some = Tags(tags=tuple(play_out(scene).tags[at] for at in present))
    assert scene.wire.read_tags(scene.wire.tags(some, scene.publish.header), scene.publish.header) == some


def received(scene: Stage, publish: Publish, who: str = "c000") -> Verdict:
    """The verdict on a PUBLISH that travelled."""
    sent = scene.wire.publish(publish)
    own = Wire(scene.committed[who].begun.ready.position)
    return verdict_of(lambda: client.answer(scene.committed[who], own.read_publish(sent, publish.aggregate.tobytes())))


def _near(own: bytes) -> bytes:
    """Another hash with the same first four bytes, as a patient cheat would find."""
    return own[:4] + bytes(28)


@pytest.mark.parametrize(
    ("field", "verdict"),
    [
        ("session", Verdict.STALE_CONTEXT),
        ("previous", Verdict.CHAIN_BREAK),
        ("model", Verdict.MODEL_MISMATCH),
    ],
)
def test_another_context_is_named_by_its_first_bytes_and_refuted_by_the_signature(field, verdict):
    scene = stage(federation(4))
    own = getattr(scene.publish.header, field)
    assert received(scene, scene.publish) is Verdict.VERIFIED
    far: dict[str, Any] = {field: bytes(32)}
    near: dict[str, Any] = {field: _near(own)}
    assert received(scene, scene.resign(**far)) is verdict
    assert received(scene, scene.resign(**near)) is Verdict.SERVER_SIG


@pytest.mark.parametrize(("field", "verdict"), [("session", Verdict.STALE_CONTEXT), ("tip", Verdict.CHAIN_BREAK)])
def test_an_invitation_to_another_context_is_refused(field, verdict):
    world = federation(4)
    _, train = server.open_round(world.idle, list(world.clients))
    wire = Wire(world.idle.position)

    def invited(altered: Train) -> Verdict:
        signed = replace(altered, signature=SERVER.sign(b"train/v1", altered.unsigned))
        return verdict_of(lambda: client.begin(world.clients["c000"], wire.read_train(wire.train(signed))))

    assert invited(train) is Verdict.VERIFIED
    far: dict[str, Any] = {field: bytes(32)}
    near: dict[str, Any] = {field: _near(getattr(train, field))}
    assert invited(replace(train, **far)) is verdict
    assert invited(replace(train, **near)) is Verdict.SERVER_SIG


def test_a_publish_of_the_round_before_is_stale():
    world = federation(3)
    old = stage(world)
    honest_round(world)
    scene = stage(world)
    sent = old.wire.publish(old.publish)
    step = lambda: client.answer(  # noqa: E731
        scene.committed["c000"], scene.wire.read_publish(sent, old.publish.aggregate.tobytes())
    )
    assert verdict_of(step) is Verdict.STALE_CONTEXT


def test_a_place_beyond_the_registry_is_nobody():
    scene = stage(federation(3))
    tag = play_out(scene).tags[0]
    sent = bytearray(scene.wire.tag(tag))
    assert verdict_of(lambda: scene.wire.read_tag(bytes(sent))) is Verdict.VERIFIED
    sent[1] = 3
    assert verdict_of(lambda: scene.wire.read_tag(bytes(sent))) is Verdict.ROSTER_UNKNOWN


def test_what_has_no_place_is_not_sent():
    scene = stage(federation(3, method=ProofMethod.EXACT))
    tag = play_out(scene).tags[0]
    with pytest.raises(InvalidInput, match="not in the registry"):
        scene.wire.tag(replace(tag, name="stranger"))
    for tags in ((tag, tag), (replace(tag, name="stranger"),)):
        with pytest.raises(InvalidInput, match="at most once"):
            scene.wire.tags(Tags(tags=tags), scene.publish.header)
    for relayed in (scene.publish.relayed[:2], scene.publish.relayed[::-1]):
        with pytest.raises(InvalidInput, match="in its order"):
            scene.wire.publish(replace(scene.publish, relayed=relayed))


def test_tags_beyond_the_roster_are_malformed():
    scene = stage(federation(3))
    sent = bytearray(scene.wire.tags(Tags(tags=()), scene.publish.header))
    sent[1] |= 8
    assert verdict_of(lambda: scene.wire.read_tags(bytes(sent), scene.publish.header)) is Verdict.MALFORMED


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 2**35 - 1, 2**63, 2**64 - 1])
def test_a_roster_of_another_length_than_the_message_says_is_malformed(count):
    scene = stage(federation(3))
    sent = scene.wire.publish(scene.publish)
    at = len(sent) - 98 * 3 - 1
    assert sent[at] == 3
    altered = sent[:at] + varint(count) + sent[at + 1 :]
    assert verdict_of(lambda: scene.wire.read_publish(altered, b"")) is Verdict.MALFORMED
