"""The attack matrix. Each adversary is competent: it recomputes every hash and signs whatever it has the keys to sign.

An attack returns the verdict that the alarm gives: the first, in the order of checks, of all honest clients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from integrity.parties import (
    SERVER,
    Federation,
    Played,
    Stage,
    Whole,
    conclude,
    federation,
    honest_round,
    identity,
    play_out,
    secret,
    stage,
    verdict_of,
)
from lrdp.integrity import client, server
from lrdp.integrity.commitments import commitment, pledge
from lrdp.integrity.field import MERSENNE_127
from lrdp.integrity.messages import Pledge, Publish, Tag
from lrdp.integrity.receipts import RoundReceipt, follow
from lrdp.integrity.schemes import transcript_challenge
from lrdp.integrity.session import Position, ProofMethod, genesis
from lrdp.integrity.verdicts import Verdict

ATTACKS: dict[str, Attack] = {}
COUNT = 5


@dataclass(frozen=True)
class Attack:
    run: Callable[[], Verdict]
    expected: Verdict


def attack(expected: Verdict) -> Callable[[Callable[[], Verdict]], Callable[[], Verdict]]:
    def register(run: Callable[[], Verdict]) -> Callable[[], Verdict]:
        ATTACKS[run.__name__] = Attack(run, expected)
        return run

    return register


def scene(count: int = COUNT, **options: Any) -> Stage:
    return stage(federation(count, **options))


def shifted(setting: Stage, *changes: tuple[int, int]) -> Whole:
    aggregate = setting.publish.aggregate.copy()
    for index, by in changes:
        aggregate[index] += by
    return aggregate


def cheat(setting: Stage, aggregate: Whole) -> Verdict:
    return play_out(setting, setting.resign(aggregate)).worst


# ------------------------------------------------------------------------------------------------------- the aggregate
@attack(Verdict.SUM_MISMATCH)
def alter_one_coordinate_by_one_quantum() -> Verdict:
    setting = scene()
    return cheat(setting, shifted(setting, (7, 1)))


@attack(Verdict.SUM_MISMATCH)
def balanced_backdoor() -> Verdict:
    setting = scene()
    return cheat(setting, shifted(setting, (3, 1000), (4, -1000)))


@attack(Verdict.SUM_MISMATCH)
def one_minus_two_one() -> Verdict:
    """What e-SeaFL's generators (135351+i)·G let through."""
    setting = scene()
    return cheat(setting, shifted(setting, (10, 5), (11, -10), (12, 5)))


@attack(Verdict.RANGE)
def add_two_to_the_33() -> Verdict:
    setting = scene(update_bits=32)
    assert setting.publish.aggregate.dtype == np.int64
    return cheat(setting, shifted(setting, (0, 3 << 33)))


@attack(Verdict.RANGE)
def add_a_61_bit_prime() -> Verdict:
    setting = scene(update_bits=32)
    return cheat(setting, shifted(setting, (0, (1 << 61) - 1)))


@attack(Verdict.RANGE)
def one_beyond_the_range() -> Verdict:
    setting = scene()
    aggregate = setting.publish.aggregate.copy()
    aggregate[5] = COUNT * setting.point.most + 1
    return cheat(setting, aggregate)


@attack(Verdict.RANGE)
def one_below_the_range() -> Verdict:
    setting = scene()
    aggregate = setting.publish.aggregate.copy()
    aggregate[-1] = -COUNT * setting.point.most - 1
    return cheat(setting, aggregate)


@attack(Verdict.SUM_MISMATCH)
def omit_an_update_but_keep_it_in_the_roster() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate - setting.committed["c002"].values)


@attack(Verdict.SUM_MISMATCH)
def count_an_update_twice() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate + setting.committed["c002"].values)


@attack(Verdict.SUM_MISMATCH)
def inject_a_vector() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate + setting.federation.update())


@attack(Verdict.SUM_MISMATCH)
def permute_the_aggregate() -> Verdict:
    setting = scene()
    return cheat(setting, np.ascontiguousarray(setting.publish.aggregate[::-1]))


@attack(Verdict.SUM_MISMATCH)
def rescale_the_aggregate() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate * np.int32(2))


@attack(Verdict.SHAPE)
def truncate_the_aggregate() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate[:-1].copy())


@attack(Verdict.SHAPE)
def widen_the_aggregate() -> Verdict:
    setting = scene()
    return cheat(setting, setting.publish.aggregate.astype("<i8"))


@attack(Verdict.SERVER_SIG)
def alter_the_aggregate_and_not_the_header() -> Verdict:
    setting = scene()
    return play_out(setting, replace(setting.publish, aggregate=shifted(setting, (7, 1)))).worst


@attack(Verdict.SERVER_SIG)
def sign_with_another_server_key() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(by=identity("mallory"))).worst


@attack(Verdict.NEXT_MODEL_MISMATCH)
def announce_another_next_model() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(next_model=secret("backdoored"))).worst


# ---------------------------------------------------------------------------------------------------------- the roster
def without(setting: Stage, name: str) -> Publish:
    roster = tuple(entry for entry in setting.publish.header.roster if entry.name != name)
    return setting.resign(setting.publish.aggregate - setting.committed[name].values, roster=roster)


@attack(Verdict.EXCLUDED)
def omit_an_update_and_claim_a_dropout() -> Verdict:
    setting = scene()
    played = play_out(setting, without(setting, "c003"))
    assert played.verdicts["c003"] is Verdict.EXCLUDED
    return played.worst


@attack(Verdict.ROSTER_MALFORMED)
def name_somebody_twice() -> Verdict:
    setting = scene()
    roster = setting.publish.header.roster
    twice = setting.publish.aggregate + setting.committed["c001"].values
    return play_out(setting, setting.resign(twice, roster=(*roster[:2], roster[1], *roster[2:]))).worst


@attack(Verdict.ROSTER_MALFORMED)
def unsorted_roster() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(roster=setting.publish.header.roster[::-1])).worst


@attack(Verdict.ROSTER_TOO_SMALL)
def below_the_quorum() -> Verdict:
    setting = scene(3)
    return play_out(setting, without(setting, "c002")).worst


def stranger(setting: Stage, name: str, generation: int, position: Position | None = None) -> tuple[Pledge, Whole]:
    values = setting.federation.update()
    where = position or setting.federation.idle.position
    bound = commitment(where, name, bytes(32), values)
    return pledge(where, identity(name, generation), bound), values


def joined_by(setting: Stage, entry: Pledge, values: Whole) -> Publish:
    kept = (known for known in setting.publish.header.roster if known.name != entry.name)
    roster = tuple(sorted((*kept, entry), key=lambda known: known.name))
    return setting.resign(setting.publish.aggregate + values, roster=roster)


@attack(Verdict.ROSTER_UNKNOWN)
def sybil() -> Verdict:
    setting = scene()
    return play_out(setting, joined_by(setting, *stranger(setting, "sybil", 0))).worst


@attack(Verdict.ROSTER_UNKNOWN)
def sybil_with_update_and_tag() -> Verdict:
    setting = scene()
    publish = joined_by(setting, *stranger(setting, "sybil", 0))
    add_tag = lambda tags: [*tags, client.sign_tag(identity("sybil"), publish.header, 0)]  # noqa: E731
    return play_out(setting, publish, tamper=add_tag).worst


@attack(Verdict.PEER_UPDATE_SIG)
def forge_an_absent_client() -> Verdict:
    setting = stage(federation(COUNT), [f"c{index:03d}" for index in range(COUNT - 1)])
    return play_out(setting, joined_by(setting, *stranger(setting, "c004", generation=9))).worst


@attack(Verdict.OWN_COMMIT_ALTERED)
def swap_a_commitment() -> Verdict:
    setting = scene()
    entry, values = stranger(setting, "c002", generation=9)
    swapped = joined_by(setting, entry, values - setting.committed["c002"].values)
    played = play_out(setting, swapped)
    assert played.verdicts["c001"] is Verdict.PEER_UPDATE_SIG
    assert played.verdicts["c002"] is Verdict.OWN_COMMIT_ALTERED
    return played.worst


@attack(Verdict.OWN_COMMIT_ALTERED)
def use_another_update_that_the_client_signed_in_this_round() -> Verdict:
    """It was signed in an attempt that failed: every signature holds, only its owner can tell."""
    setting = scene()
    entry, values = stranger(setting, "c002", generation=0)
    return play_out(setting, joined_by(setting, entry, values - setting.committed["c002"].values)).worst


@attack(Verdict.PEER_UPDATE_SIG)
def replay_an_old_update() -> Verdict:
    world = federation(COUNT)
    old = stage(world)
    conclude(old, play_out(old))
    setting = stage(world, [f"c{index:03d}" for index in range(COUNT - 1)])
    entry = next(entry for entry in old.publish.header.roster if entry.name == "c004")
    return play_out(setting, joined_by(setting, entry, old.committed["c004"].values)).worst


@attack(Verdict.PEER_UPDATE_SIG)
def bring_an_update_from_another_session() -> Verdict:
    elsewhere = scene(session="second")
    setting = stage(federation(COUNT), [f"c{index:03d}" for index in range(COUNT - 1)])
    entry = next(entry for entry in elsewhere.publish.header.roster if entry.name == "c004")
    return play_out(setting, joined_by(setting, entry, elsewhere.committed["c004"].values)).worst


# ---------------------------------------------------------------------------------------------------- context, history
@attack(Verdict.STALE_CONTEXT)
def replay_publish_in_the_next_round() -> Verdict:
    world = federation(COUNT)
    old = stage(world)
    conclude(old, play_out(old))
    return play_out(stage(world), old.publish).worst


@attack(Verdict.STALE_CONTEXT)
def publish_for_another_session() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(session=secret("elsewhere"))).worst


@attack(Verdict.STALE_CONTEXT)
def replay_the_publish_of_an_attempt_that_was_given_up() -> Verdict:
    setting = scene()
    played = play_out(setting, tamper=lambda tags: tags[:-1])
    return play_out(tried_again(setting, played), setting.publish).worst


def tried_again(setting: Stage, played: Played) -> Stage:
    """The next attempt of the round, in which everybody stands by the same update."""
    world = setting.federation
    world.clients.update({name: client.roll_back(tagged) for name, tagged in played.tagged.items()})
    world.idle = server.retry(world.idle)
    return stage(world, updates={name: bound.values for name, bound in setting.committed.items()})


@attack(Verdict.CHAIN_BREAK)
def fork_the_history() -> Verdict:
    """Two halves are led through different rounds, and then are to meet."""
    world = federation(8)
    left, right = [f"c{i:03d}" for i in range(4)], [f"c{i:03d}" for i in range(4, 8)]
    before = world.idle
    honest_round(world, left)
    continued, world.idle = world.idle, before
    honest_round(world, right)
    ours = stage(replace_idle(world, continued), left)
    mixed = {**ours.committed, "c004": replace(ours.committed["c000"], begun=_begun(world, "c004", ours))}
    return play_out(replace(ours, committed=mixed)).worst


def replace_idle(world: Federation, idle: server.Idle) -> Federation:
    return replace(world, idle=idle)


def _begun(world: object, name: str, ours: Stage) -> client.Begun:
    return client.Begun(ready=world.clients[name], train=ours.gathering.train)  # type: ignore[attr-defined]


@attack(Verdict.CHAIN_BREAK)
def roll_the_history_back() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(previous=secret("older tip"))).worst


@attack(Verdict.MODEL_MISMATCH)
def start_from_another_model() -> Verdict:
    setting = scene()
    return play_out(setting, setting.resign(model=secret("other model"))).worst


@attack(Verdict.MODEL_MISMATCH)
def equivocate_the_first_model() -> Verdict:
    """One client was started from another θ_0: the server tells each its own."""
    world = federation(COUNT)
    victim = world.clients["c000"]
    other = (victim.model + 1).astype("<f4")
    apart = client.start(victim.identity, victim.scheme, world.session, other)
    apart = replace(apart, position=replace(apart.position, tip=victim.position.tip))
    setting = stage(world)
    begun = client.Begun(ready=apart, train=setting.gathering.train)
    misled = client.commit(begun, setting.committed["c000"].values, bytes(32), update=1)
    return play_out(replace(setting, committed={**setting.committed, "c000": misled})).worst


# ------------------------------------------------------------------------------------------------------------ the tags
@attack(Verdict.TAG_SIG)
def equivocate_the_aggregate() -> Verdict:
    """The victim is shown another aggregate; its own checks all hold."""
    setting = scene()
    other = setting.resign(shifted(setting, (0, 1)))
    return play_out(setting, {**dict.fromkeys(setting.names, setting.publish), "c001": other}).worst


@attack(Verdict.TAGS_INCOMPLETE)
def drop_a_tag() -> Verdict:
    return play_out(scene(), tamper=lambda tags: tags[1:]).worst


@attack(Verdict.TAGS_INCOMPLETE)
def drop_a_tag_and_repeat_another() -> Verdict:
    return play_out(scene(), tamper=lambda tags: [*tags[1:], tags[1]]).worst


@attack(Verdict.TAGS_INCOMPLETE)
def one_tag_too_many() -> Verdict:
    return play_out(scene(), tamper=lambda tags: [*tags, tags[0]]).worst


@attack(Verdict.TAG_SIG)
def alter_a_tag() -> Verdict:
    return play_out(scene(), tamper=lambda tags: [replace(tags[0], value=tags[0].value ^ 1), *tags[1:]]).worst


@attack(Verdict.TAG_SIG)
def shift_a_tag_by_what_was_added() -> Verdict:
    """The server knows the challenge by now, and that ⟨r, e⟩ is missing from the sum."""
    setting = scene()
    publish = setting.resign(shifted(setting, (2, 77)))
    missing = _inner(publish, setting, (2, 77))
    move = lambda tags: [replace(tags[0], value=(tags[0].value + missing) % MERSENNE_127.prime), *tags[1:]]  # noqa: E731
    return play_out(setting, publish, tamper=move).worst


def _inner(publish: Publish, setting: Stage, change: tuple[int, int]) -> int:
    added = np.zeros(setting.point.size, "<i4")
    added[change[0]] = change[1]
    return transcript_challenge(publish.header, added.size).tag(added)


@attack(Verdict.TAG_SIG)
def sign_a_shifted_tag_with_the_servers_key() -> Verdict:
    setting = scene()
    publish = setting.resign(shifted(setting, (2, 77)))

    def move(tags: list[Tag]) -> list[Tag]:
        value = (tags[0].value + _inner(publish, setting, (2, 77))) % MERSENNE_127.prime
        return [replace(client.sign_tag(SERVER, publish.header, value), name=tags[0].name), *tags[1:]]

    return play_out(setting, publish, tamper=move).worst


@attack(Verdict.TAG_SIG)
def swap_two_tags() -> Verdict:
    swap = lambda tags: [replace(tags[0], name=tags[1].name), replace(tags[1], name=tags[0].name), *tags[2:]]  # noqa: E731
    return play_out(scene(), tamper=swap).worst


@attack(Verdict.TAG_SIG)
def a_tag_that_is_no_element_of_the_field() -> Verdict:
    """The same residue in a second encoding would make two receipts of one round."""
    beyond = lambda tagged, tag: client.sign_tag(  # noqa: E731
        tagged.ready.identity, tagged.header, tag.value % 2 + 1 + MERSENNE_127.prime
    )
    return play_out(scene(), lies={"c000": beyond}).worst


@attack(Verdict.TAG_SIG)
def zero_written_as_the_prime() -> Verdict:
    prime = lambda tagged, _: client.sign_tag(tagged.ready.identity, tagged.header, MERSENNE_127.prime)  # noqa: E731
    return play_out(scene(), lies={"c000": prime}).worst


@attack(Verdict.TAG_SIG)
def toss_the_coin_again() -> Verdict:
    """The server dislikes a challenge, publishes another sum, and shows the tags of the first attempt."""
    setting = scene()
    first = play_out(setting, setting.resign(shifted(setting, (0, 1))), tamper=lambda tags: tags[:-1])
    again = tried_again(setting, first)
    return play_out(again, again.resign(shifted(again, (0, 2))), tamper=lambda _: first.tags).worst


@attack(Verdict.VERIFIED)
def reorder_the_tags() -> Verdict:
    return play_out(scene(), tamper=lambda tags: tags[::-1]).worst


@attack(Verdict.SUM_MISMATCH)
def a_client_frames_the_server() -> Verdict:
    frame = lambda tagged, tag: client.sign_tag(tagged.ready.identity, tagged.header, tag.value ^ 1)  # noqa: E731
    return play_out(scene(), lies={"c002": frame}).worst


@attack(Verdict.VERIFIED)
def the_server_and_a_client_collude() -> Verdict:
    """By design: what they add counts as that client's input. test_blame.py shows what an audit can find."""
    setting = scene()
    publish = setting.resign(shifted(setting, (2, 77)))
    missing = _inner(publish, setting, (2, 77))
    lie = lambda tagged, tag: client.sign_tag(  # noqa: E731
        tagged.ready.identity, tagged.header, (tag.value + missing) % MERSENNE_127.prime
    )
    return play_out(setting, publish, lies={"c004": lie}).worst


@attack(Verdict.TAGS_INCOMPLETE)
def withhold_publish_from_one() -> Verdict:
    setting = scene()
    present = {name: state for name, state in setting.committed.items() if name != "c003"}
    return play_out(replace(setting, committed=present)).worst


# --------------------------------------------------------------------------------------------------------------- TRAIN
def invite(**changes: Any) -> Verdict:
    world = federation(COUNT)
    _, train = server.open_round(world.idle, tuple(world.clients))
    forged = replace(train, **changes)
    forged = replace(forged, signature=SERVER.sign(b"train/v1", forged.unsigned))
    return verdict_of(lambda: client.begin(world.clients["c000"], forged))


@attack(Verdict.STALE_CONTEXT)
def invite_to_another_round() -> Verdict:
    return invite(round=1)


@attack(Verdict.STALE_CONTEXT)
def invite_to_another_session() -> Verdict:
    return invite(session=secret("elsewhere"))


@attack(Verdict.STALE_CONTEXT)
def invite_to_an_attempt_that_was_given_up() -> Verdict:
    world = federation(COUNT)
    _, train = server.open_round(world.idle, tuple(world.clients))
    return verdict_of(lambda: client.begin(replace(world.clients["c000"], attempt=1), train))


@attack(Verdict.CHAIN_BREAK)
def invite_to_another_history() -> Verdict:
    return invite(tip=secret("other history"))


@attack(Verdict.ROSTER_MALFORMED)
def invite_somebody_twice() -> Verdict:
    return invite(invited=("c000", "c000", "c001", "c002"))


@attack(Verdict.ROSTER_TOO_SMALL)
def invite_too_few() -> Verdict:
    return invite(invited=("c000", "c001"))


@attack(Verdict.ROSTER_UNKNOWN)
def invite_a_stranger() -> Verdict:
    return invite(invited=("c000", "c001", "c002", "sybil"))


@attack(Verdict.EXCLUDED)
def show_an_invitation_of_others() -> Verdict:
    return invite(invited=("c001", "c002", "c003"))


@attack(Verdict.SERVER_SIG)
def invite_in_the_servers_name() -> Verdict:
    world = federation(COUNT)
    _, train = server.open_round(world.idle, tuple(world.clients))
    forged = replace(train, signature=identity("mallory").sign(b"train/v1", train.unsigned))
    return verdict_of(lambda: client.begin(world.clients["c000"], forged))


# ------------------------------------------------------------------------------------------------------------ receipts
def receipt_of_a_round() -> tuple[Position, RoundReceipt]:
    world = federation(COUNT)
    start = genesis(world.session, world.idle.position.model)
    return start, honest_round(world)


def show(receipt: RoundReceipt, start: Position, **changes: Any) -> Verdict:
    """A receipt whose header a cheating server changed and signed, with every tag and ACCEPT that it can get."""
    header = replace(receipt.header, **changes)
    signed = [client.sign_tag(identity(name), header, 0) for name in header.names]
    tip = start.after(header.digest, header.next_model).tip
    words = [
        replace(word, signature=identity(word.name).sign(b"accept/v1", word.name.encode(), header.digest, tip))
        for word in receipt.accepts
    ]
    forged = replace(
        receipt,
        header=header,
        signature=SERVER.sign(b"server/v1", header.digest),
        tags=tuple(signed),
        accepts=tuple(words),
    )
    return verdict_of(lambda: follow(start, forged))


@attack(Verdict.STALE_CONTEXT)
def receipt_of_another_round() -> Verdict:
    start, receipt = receipt_of_a_round()
    return show(receipt, start, round=1)


@attack(Verdict.CHAIN_BREAK)
def receipt_of_another_history() -> Verdict:
    start, receipt = receipt_of_a_round()
    return show(receipt, start, previous=secret("other history"))


@attack(Verdict.MODEL_MISMATCH)
def receipt_from_another_model() -> Verdict:
    start, receipt = receipt_of_a_round()
    return show(receipt, start, model=secret("other model"))


@attack(Verdict.ROSTER_MALFORMED)
def receipt_that_names_somebody_twice() -> Verdict:
    start, receipt = receipt_of_a_round()
    return show(receipt, start, roster=(receipt.header.roster[0], *receipt.header.roster))


@attack(Verdict.ROSTER_TOO_SMALL)
def receipt_of_two() -> Verdict:
    start, receipt = receipt_of_a_round()
    return show(receipt, start, roster=receipt.header.roster[:2])


@attack(Verdict.ROSTER_UNKNOWN)
def receipt_with_a_stranger() -> Verdict:
    start, receipt = receipt_of_a_round()
    stranger_entry = pledge(start, identity("sybil"), secret("anything"))
    return show(receipt, start, roster=(*receipt.header.roster, stranger_entry))


@attack(Verdict.PEER_UPDATE_SIG)
def receipt_with_a_forged_pledge() -> Verdict:
    start, receipt = receipt_of_a_round()
    first, *rest = receipt.header.roster
    return show(receipt, start, roster=(replace(first, commitment=secret("other update")), *rest))


@attack(Verdict.SERVER_SIG)
def receipt_that_the_server_did_not_sign() -> Verdict:
    start, receipt = receipt_of_a_round()
    forged = replace(receipt, signature=identity("mallory").sign(b"server/v1", receipt.header.digest))
    return verdict_of(lambda: follow(start, forged))


@attack(Verdict.TAGS_INCOMPLETE)
def receipt_without_a_tag() -> Verdict:
    start, receipt = receipt_of_a_round()
    return verdict_of(lambda: follow(start, replace(receipt, tags=receipt.tags[1:])))


@attack(Verdict.TAG_SIG)
def receipt_with_a_forged_tag() -> Verdict:
    start, receipt = receipt_of_a_round()
    tags = (replace(receipt.tags[0], value=1), *receipt.tags[1:])
    return verdict_of(lambda: follow(start, replace(receipt, tags=tags)))


@attack(Verdict.QUORUM_MISSING)
def receipt_that_too_few_accepted() -> Verdict:
    start, receipt = receipt_of_a_round()
    return verdict_of(lambda: follow(start, replace(receipt, accepts=receipt.accepts[:2])))


@attack(Verdict.QUORUM_MISSING)
def receipt_that_one_accepted_many_times() -> Verdict:
    start, receipt = receipt_of_a_round()
    return verdict_of(lambda: follow(start, replace(receipt, accepts=receipt.accepts[:1] * COUNT)))


@attack(Verdict.QUORUM_MISSING)
def receipt_with_accepts_for_another_end() -> Verdict:
    start, receipt = receipt_of_a_round()
    words = [
        replace(
            word, signature=identity(word.name).sign(b"accept/v1", word.name.encode(), receipt.header.digest, bytes(32))
        )
        for word in receipt.accepts
    ]
    return verdict_of(lambda: follow(start, replace(receipt, accepts=tuple(words))))


# ---------------------------------------------------------------------------------------------------------------- exact
def exact_scene() -> Stage:
    return scene(method=ProofMethod.EXACT)


def unshown(committed: client.Committed) -> client.Committed:
    """Before its masked update left: whoever has shown it holds everybody to the pledges of then."""
    return replace(committed, pledges=())


def relay(setting: Stage, index: int, **changes: Any) -> Publish:
    altered = replace(setting.publish.relayed[index], **changes)
    relayed = (*setting.publish.relayed[:index], altered, *setting.publish.relayed[index + 1 :])
    total = sum(update.values for update in relayed if update.values.size == setting.point.size)
    return setting.resign(np.asarray(total, "<i4"), relayed=relayed)


@attack(Verdict.SUM_MISMATCH)
def exact_alter_one_coordinate_by_one_quantum() -> Verdict:
    setting = exact_scene()
    return cheat(setting, shifted(setting, (7, 1)))


@attack(Verdict.SHARE_ALTERED)
def exact_alter_a_share() -> Verdict:
    setting = exact_scene()
    values = setting.publish.relayed[2].values.copy()
    values[0] += 1
    return play_out(setting, relay(setting, 2, values=values)).worst


@attack(Verdict.SHARE_ALTERED)
def exact_alter_a_share_of_an_owner_who_helps() -> Verdict:
    """The colluder pledges anew, after it saw the others' vectors."""
    setting = exact_scene()
    position = setting.federation.idle.position
    values = setting.publish.relayed[2].values.copy()
    values[0] += 1
    again = pledge(position, identity("c002"), commitment(position, "c002", bytes(32), values))
    publish = relay(setting, 2, values=values, nonce=bytes(32), pledge=again)
    roster = tuple(update.pledge for update in publish.relayed)
    publish = setting.resign(publish.aggregate, relayed=publish.relayed, roster=roster)
    honest = replace(setting, committed={n: s for n, s in setting.committed.items() if n != "c002"})
    return play_out(honest, publish).worst


@attack(Verdict.SHARE_ALTERED)
def exact_truncate_a_share() -> Verdict:
    setting = exact_scene()
    relayed = relay(setting, 2, values=setting.publish.relayed[2].values[:-1].copy()).relayed
    return play_out(setting, setting.resign(relayed=relayed)).worst


def pledged_from_the_start(setting: Stage, values: Whole) -> Verdict:
    """The colluder c002 was bound to these values before anybody showed any, so they open."""
    position = setting.federation.idle.position
    own = pledge(position, identity("c002"), commitment(position, "c002", bytes(32), values))
    pledges = tuple(own if known.name == "c002" else known for known in setting.gathering.pledges)
    bound = {
        name: client.reveal(unshown(state), pledges)[0] for name, state in setting.committed.items() if name != "c002"
    }
    altered = replace(setting.publish.relayed[2], values=values, nonce=bytes(32), pledge=own)
    relayed = (*setting.publish.relayed[:2], altered, *setting.publish.relayed[3:])
    return play_out(replace(setting, committed=bound), setting.resign(relayed=relayed, roster=pledges)).worst


@attack(Verdict.SHARE_ALTERED)
def exact_pledge_a_short_vector() -> Verdict:
    setting = exact_scene()
    return pledged_from_the_start(setting, setting.publish.relayed[2].values[:-1].copy())


@attack(Verdict.SHARE_ALTERED)
def exact_pledge_a_wide_vector() -> Verdict:
    setting = exact_scene()
    return pledged_from_the_start(setting, setting.publish.relayed[2].values.astype("<i8"))


@attack(Verdict.SHARE_ALTERED)
def exact_relay_nothing() -> Verdict:
    setting = exact_scene()
    return play_out(setting, setting.resign(relayed=())).worst


@attack(Verdict.TAG_SIG)
def exact_equivocate() -> Verdict:
    """A colluder pledges two vectors, and two groups are shown one each."""
    setting = exact_scene()
    position = setting.federation.idle.position
    values = setting.publish.relayed[2].values.copy()
    values[0] += 1
    again = pledge(position, identity("c002"), commitment(position, "c002", bytes(32), values))
    pledges = tuple(again if known.name == "c002" else known for known in setting.gathering.pledges)
    victim, _ = client.reveal(unshown(setting.committed["c000"]), pledges)
    altered = relay(setting, 2, values=values, nonce=bytes(32), pledge=again)
    other = setting.resign(altered.aggregate, relayed=altered.relayed, roster=pledges)
    misled = replace(setting, committed={**setting.committed, "c000": victim})
    return play_out(misled, {**dict.fromkeys(setting.names, setting.publish), "c000": other}).worst


@attack(Verdict.ROSTER_MALFORMED)
def exact_ask_for_vectors_before_all_are_bound() -> Verdict:
    setting = exact_scene()
    return verdict_of(lambda: client.reveal(unshown(setting.committed["c000"]), setting.gathering.pledges[:-1]))


@attack(Verdict.PEER_UPDATE_SIG)
def exact_ask_for_vectors_with_a_forged_pledge() -> Verdict:
    setting = exact_scene()
    *most, last = setting.gathering.pledges
    forged = replace(last, commitment=secret("not yet known"))
    return verdict_of(lambda: client.reveal(unshown(setting.committed["c000"]), [*most, forged]))


@attack(Verdict.QUORUM_MISSING)
def receipt_with_one_forged_accept_among_enough() -> Verdict:
    """Nothing in a receipt may be false, even what is not needed: a receipt has no second form."""
    start, receipt = receipt_of_a_round()
    forged = replace(receipt.accepts[0], signature=bytes(64))
    return verdict_of(lambda: follow(start, replace(receipt, accepts=(forged, *receipt.accepts[1:]))))
