"""A round that is tried again shows nobody a difference of two sums: neither peers nor, in exact rounds, the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from integrity.parties import Federation, Stage, conclude, federation, identity, play_out, stage, verdict_of
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client, server, states
from lrdp.integrity.messages import CommittedUpdate
from lrdp.integrity.repeats import NOTHING_SHOWN, Repeats, Shown, Stands, nothing_before, same_roster, smaller_roster
from lrdp.integrity.session import ProofMethod
from lrdp.integrity.verdicts import Verdict

ALL = ("c000", "c001", "c002", "c003", "c004")
FEWER = ALL[:4]


def failed(world: Federation, scene: Stage) -> None:
    """Everybody answered, a tag never came, and all go back."""
    played = play_out(scene, tamper=lambda tags: tags[:-1])
    assert set(played.verdicts.values()) == {Verdict.TAGS_INCOMPLETE}
    world.clients.update({name: client.roll_back(tagged) for name, tagged in played.tagged.items()})
    world.idle = server.retry(scene.published.idle)


def values_of(scene: Stage) -> dict[str, np.ndarray]:
    return {name: bound.values for name, bound in scene.committed.items()}


# ---------------------------------------- what a sketch shows peers
def published_again(repeats: Repeats) -> tuple[Stage, Stage, set[Verdict]]:
    """All go back and hand in the same updates, and the server leaves the silent one out of the second sum."""
    world = federation(5)
    scene = stage(world)
    failed(world, scene)
    again = stage(world, updates=values_of(scene), dropped=["c004"])
    return scene, again, set(play_out(again, repeats=repeats).verdicts.values())


def test_nobody_answers_a_sum_of_the_same_updates_without_the_silent():
    _, _, verdicts = published_again(same_roster)
    assert verdicts == {Verdict.UPDATE_SPENT}


def test_control_whoever_chose_smaller_rosters_answers_and_the_difference_is_the_update_left_out():
    scene, again, verdicts = published_again(smaller_roster)
    assert verdicts == {Verdict.VERIFIED}
    revealed = scene.publish.aggregate - again.publish.aggregate
    assert revealed.tolist() == scene.committed["c004"].values.tolist()


@pytest.mark.parametrize("method", list(ProofMethod))
def test_the_same_roster_is_tried_again_with_the_same_updates_and_has_the_same_sum(method):
    world = federation(5, method=method)
    scene = stage(world)
    failed(world, scene)
    again = stage(world, updates=values_of(scene))
    assert again.publish.aggregate.tolist() == scene.publish.aggregate.tolist()
    assert play_out(again).worst is Verdict.VERIFIED


@pytest.mark.parametrize("method", list(ProofMethod))
def test_another_roster_is_shown_other_updates_and_none_of_the_first(method):
    world = federation(5, method=method)
    failed(world, stage(world))
    with pytest.raises(NotVerified, match=r"UPDATE_SPENT.*was shown in another roster"):
        stage(world, FEWER)
    world.number += 1
    world.idle = replace(world.idle, attempt=2)
    assert play_out(stage(world, FEWER)).worst is Verdict.VERIFIED


@pytest.mark.parametrize("method", list(ProofMethod))
def test_the_same_roster_is_not_shown_another_update(method):
    """Else the difference of the two sums is that of two updates of one client, if the others repeat theirs."""
    world = federation(5, method=method)
    scene = stage(world)
    failed(world, scene)
    world.number += 1
    with pytest.raises(NotVerified, match=r"UPDATE_SPENT.*this roster was shown an update other"):
        stage(world)  # before the other update leaves: what is in a sum that others saw may be in no second one


def test_a_roster_that_became_the_same_is_not_shown_another_update_either():
    stands = NOTHING_SHOWN.show(1, FEWER, same_roster).reveal(2, ALL, same_roster)
    with pytest.raises(NotVerified, match=r"UPDATE_SPENT.*this roster was shown an update other"):
        stands.show(2, FEWER, same_roster)


def test_a_larger_roster_with_the_same_update_is_never_answered():
    for repeats in (same_roster, smaller_roster):
        stands = NOTHING_SHOWN.show(1, FEWER, same_roster)
        with pytest.raises(NotVerified, match="UPDATE_SPENT"):
            stands.show(1, ALL, repeats)


def test_the_same_roster_counts_as_one_that_is_no_larger():
    stands = NOTHING_SHOWN.show(1, ALL, smaller_roster)
    assert stands.show(1, ALL, smaller_roster) == stands
    assert stands.show(1, FEWER, smaller_roster).shown == (
        Shown(update=1, roster=ALL),
        Shown(update=1, roster=FEWER),
    )


def test_an_update_that_is_shown_again_is_remembered_once():
    stands = NOTHING_SHOWN.show(1, ALL, same_roster)
    assert stands.show(1, ALL, same_roster) == stands == Stands(revealed=1, shown=(Shown(update=1, roster=ALL),))


# ---------------------------------------- what an exact round shows the server
def masked(
    world: Federation, names: tuple[str, ...], updates: dict[str, np.ndarray], repeats: Repeats
) -> list[CommittedUpdate]:
    """What reaches the server of an attempt that it never publishes."""
    gathering, train = server.open_round(world.idle, names)
    committed = {
        name: client.commit(client.begin(world.clients[name], train), updates[name], world.rng.bytes(32), update=1)
        for name in train.invited
    }
    for name in train.invited:
        gathering = server.enlist(gathering, committed[name].pledge)
    sent = []
    for name in train.invited:
        committed[name], update = client.reveal(committed[name], gathering.pledges, repeats)
        world.clients[name] = client.abandon(committed[name])
        sent.append(update)
    return sent


def total(sent: Iterable[CommittedUpdate]) -> np.ndarray:
    return np.sum([update.values for update in sent], axis=0, dtype="<i4")


def test_the_server_of_an_exact_round_gets_no_second_sum_of_the_same_updates():
    world = federation(5, method=ProofMethod.EXACT)
    updates = {name: world.update() for name in ALL}
    first = total(masked(world, ALL, updates, same_roster))
    world.idle = replace(world.idle, attempt=1)
    assert verdict_of(lambda: masked(world, FEWER, updates, same_roster)) is Verdict.UPDATE_SPENT
    world.idle = replace(world.idle, attempt=2)
    # The control: with smaller rosters it subtracts what it can sum, and has the update of the one left out.
    second = total(masked(world, FEWER, updates, smaller_roster))
    assert (first - second).tolist() == updates["c004"].tolist()


def test_an_exact_update_that_was_only_pledged_may_be_shown_elsewhere():
    """A commitment hides; nothing of the update left."""
    world = federation(5, method=ProofMethod.EXACT)
    _, train = server.open_round(world.idle, ALL)
    bound = client.commit(client.begin(world.clients["c000"], train), world.update(), bytes(32), update=1)
    assert client.abandon(bound).stands == NOTHING_SHOWN


# ---------------------------------------- what is remembered
def test_an_update_is_spent_with_its_round_also_if_it_was_left_out_of_it():
    world = federation(5)
    scene = stage(world)
    failed(world, scene)
    late = world.clients.pop("c004")
    world.number += 1
    again = stage(world)
    receipt = conclude(again, play_out(again))
    late = client.catch_up(late, [receipt], world.idle.model)
    assert late.stands == Stands(spent=1, revealed=1)
    world.clients["c004"] = late
    world.number = 1
    with pytest.raises(NotVerified, match=r"UPDATE_SPENT.*from an earlier round"):
        stage(world)


def test_what_was_shown_survives_the_disk():
    world = federation(5)
    scene = stage(world)
    tagged = play_out(scene).tagged["c001"]
    for state in (scene.committed["c001"], tagged, client.roll_back(tagged)):
        back = states.decode_client(states.encode_client(state), identity("c001"), states.client_vectors(state))
        assert states.encode_client(back) == states.encode_client(state)
    assert client.roll_back(tagged).stands == Stands(revealed=1, shown=(Shown(update=1, roster=ALL),))


def test_rotation_and_catching_up_with_nothing_keep_what_was_shown():
    world = federation(4)
    ready = client.roll_back(play_out(stage(world)).tagged["c003"])
    assert client.catch_up(ready, [], world.idle.model).stands == ready.stands != NOTHING_SHOWN


def test_whoever_does_not_know_what_it_showed_shows_nothing_again():
    stands = nothing_before(17)
    with pytest.raises(NotVerified, match="UPDATE_SPENT"):
        stands.reveal(17, ALL, smaller_roster)
    assert stands.reveal(18, ALL, same_roster).revealed == 18


def test_numbers_that_contradict_each_other_are_refused():
    with pytest.raises(InvalidInput, match="updates up to 3 are spent"):
        Stands(spent=3, revealed=2)


# ---------------------------------------- the rule itself, exhaustively
ROSTERS = (("a", "b", "c"), ("a", "b", "c", "d"), ("a", "b", "d"))
WISHES = tuple(product((1, 2, 3), ROSTERS))


def granted(wishes: Iterable[tuple[int, tuple[str, ...]]], repeats: Repeats) -> list[tuple[int, tuple[str, ...]]]:
    stands, pairs = NOTHING_SHOWN, []
    for update, roster in wishes:
        try:
            stands = stands.show(update, roster, repeats)
        except NotVerified:
            continue
        pairs.append((update, roster))
    return pairs


def overlapping(one: list[tuple[int, tuple[str, ...]]]) -> bool:
    """Whether two different sums share an update of this client, or one roster two of them."""
    return any((u == v) != (r == s) for u, r in one for v, s in one)


def test_whatever_is_asked_in_whatever_order_no_two_sums_share_an_update():
    asked = list(product(WISHES, repeat=4))
    assert not any(overlapping(granted(wishes, same_roster)) for wishes in asked)
    assert any(overlapping(granted(wishes, smaller_roster)) for wishes in asked)  # the control
