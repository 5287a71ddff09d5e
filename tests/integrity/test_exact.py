"""`exact`: the sum is the sum, the server sees noise, and no mask is used twice."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from integrity.parties import federation, identity, play_out, secret, stage
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client, exact, server
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.messages import CommittedUpdate
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict
from oracles import explicit_shares


@pytest.mark.parametrize(("count", "bits", "width"), [(3, 24, 32), (7, 24, 32), (3, 32, 64)])
def test_masked_updates_sum_to_what_explicit_shares_sum_to(count, bits, width):
    world = federation(count, size=11, method=ProofMethod.EXACT, update_bits=bits)
    updates = {name: world.update(2**bits) for name in world.clients}
    scene = stage(world, updates=updates)
    expected = explicit_shares.aggregate([update.tolist() for update in updates.values()], width, random.Random(1))
    assert (
        scene.publish.aggregate.tolist() == expected == np.sum(list(updates.values()), axis=0, dtype=np.int64).tolist()
    )
    assert scene.publish.aggregate.dtype.itemsize * 8 == width
    assert play_out(scene).worst is Verdict.VERIFIED


def test_what_the_server_sees_is_uniform_whatever_the_update():
    """The update is all zeros; the mean of uniform words is within six deviations of the middle."""
    size = 20_000
    world = federation(3, size=size, method=ProofMethod.EXACT)
    scene = stage(world, updates=dict.fromkeys(world.clients, np.zeros(size, "<i4")))
    for update in scene.published.updates:
        words = update.values.view("<u4") / 2**32
        assert abs(words.mean() - 0.5) < 6 / np.sqrt(12 * size)
        assert abs((update.values & 1).mean() - 0.5) < 3 / np.sqrt(size)
    assert not scene.publish.aggregate.any()


def test_masks_differ_between_rounds_and_attempts():
    world = federation(3, size=9, method=ProofMethod.EXACT)
    zero = dict.fromkeys(world.clients, np.zeros(9, "<i4"))
    first = stage(world, updates=zero)
    played = play_out(first, tamper=lambda tags: tags[1:])
    world.clients = {name: client.roll_back(tagged) for name, tagged in played.tagged.items()}
    world.idle = server.retry(first.published.idle)
    second = stage(world, updates=zero)
    assert play_out(second).worst is Verdict.VERIFIED
    sent = {scene.committed["c000"].sent.tobytes() for scene in (first, second)}
    assert len(sent) == 2


def test_a_mask_is_not_used_twice():
    world = federation(3, size=9, method=ProofMethod.EXACT)
    _, train = server.open_round(world.idle, tuple(world.clients))
    begun = client.begin(world.clients["c000"], train)
    client.commit(begun, world.update(), bytes(32), update=1)
    with pytest.raises(InvalidInput, match="used up"):
        client.commit(begun, world.update(), bytes(32), update=1)


def test_one_who_drops_out_ends_the_attempt():
    with pytest.raises(NotVerified, match="ROSTER_MALFORMED"):
        stage(federation(4, method=ProofMethod.EXACT), dropped=["c003"])


def test_a_roster_without_one_of_the_masked_is_refused():
    scene = stage(federation(4, method=ProofMethod.EXACT))
    rest = scene.publish.relayed[:3]
    total = np.sum([update.values for update in rest], axis=0, dtype="<i4")
    short = scene.resign(total, roster=scene.publish.header.roster[:3], relayed=rest)
    present = replace(scene, committed={name: scene.committed[name] for name in ("c000", "c001", "c002")})
    assert play_out(present, short).worst in {Verdict.RANGE, Verdict.SHARE_ALTERED}


def test_keys_for_the_session_must_be_signed_by_their_owners():
    session = federation(3, method=ProofMethod.EXACT).session
    good = [exact.session_key(identity(f"c{index:03d}"), session, secret(index)) for index in range(3)]
    join = lambda hellos: exact.exact_client(identity("c000"), session, secret(0), hellos)  # noqa: E731
    assert set(join(good).pairwise.peers) == {"c000", "c001", "c002"}
    elsewhere = federation(3, method=ProofMethod.EXACT, session="second").session
    for bad in (
        [replace(good[1], name="c002")],
        [replace(good[1], agreement_key=good[2].agreement_key)],
        [exact.session_key(identity("c001"), elsewhere, secret(1))],
        [exact.session_key(identity("sybil"), session, secret(1))],
        [good[1], good[1]],
    ):
        with pytest.raises(NotVerified, match="not its own"):
            join(bad)


def test_whoever_announced_no_key_cannot_be_masked_for():
    world = federation(4, method=ProofMethod.EXACT)
    hellos = [exact.session_key(identity(f"c{index:03d}"), world.session, secret(index)) for index in range(3)]
    alone = exact.exact_client(identity("c000"), world.session, secret(0), hellos)
    _, train = server.open_round(world.idle, tuple(world.clients))
    begun = client.begin(replace(world.clients["c000"], scheme=alone), train)
    with pytest.raises(NotVerified, match="announced no key"):
        client.commit(begun, world.update(), bytes(32), update=1)


@pytest.mark.parametrize("spoil", [lambda values: values[:-1].copy(), lambda values: values.astype("<i8")])
def test_the_server_admits_no_vector_of_another_shape(spoil):
    world = federation(3, size=9, method=ProofMethod.EXACT)
    gathering, _ = server.open_round(world.idle, tuple(world.clients))
    position = world.idle.position
    values = spoil(np.zeros(9, "<i4"))
    own = pledge(position, identity("c000"), commitment(position, "c000", bytes(32), values))
    enlisted = server.enlist(gathering, own)
    with pytest.raises(NotVerified, match="RANGE"):
        server.admit(enlisted, CommittedUpdate(pledge=own, nonce=bytes(32), values=values))
