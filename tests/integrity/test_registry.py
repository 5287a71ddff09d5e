"""Keys, registry and rotation: trust comes from the consortium's signature and the pinned hash, not the server."""

from __future__ import annotations

import stat
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from integrity.parties import (
    CONSORTIUM,
    SERVER,
    federation,
    honest_round,
    identity,
    play_out,
    registry_of,
    stage,
    verdict_of,
)
from lrdp.codec import pack, unpack
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client, keys, registry, server
from lrdp.integrity.receipts import follow
from lrdp.integrity.registry import Registry, read_lineage, sign_registry, verify_registry, verify_successor
from lrdp.integrity.schemes import sketch_client
from lrdp.integrity.session import genesis
from lrdp.integrity.verdicts import Verdict


def test_keys_survive_the_disk_and_only_their_owner_reads_them(tmp_path):
    path = tmp_path / "bank.pem"
    made = keys.new_identity("bank-7")
    keys.save_identity(made, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.load_identity(path) == made
    assert made.signing_secret.hex() not in repr(made)


def test_a_key_is_never_overwritten(tmp_path):
    path = tmp_path / "bank.pem"
    keys.save_identity(identity("bank"), path)
    with pytest.raises(InvalidInput, match="exists"):
        keys.save_identity(identity("bank", 1), path)
    assert keys.load_identity(path) == identity("bank")


def test_a_key_that_others_may_read_is_refused(tmp_path):
    path = tmp_path / "bank.pem"
    keys.save_identity(identity("bank"), path)
    path.chmod(0o640)
    with pytest.raises(InvalidInput, match="chmod 600"):
        keys.load_identity(path)


@pytest.mark.parametrize(
    "damage", [lambda t: b"", lambda t: t[:90], lambda t: t[:-40], lambda t: t.replace(b"M", b"N"), lambda t: t[10:]]
)
def test_a_damaged_key_file_is_a_typed_error(tmp_path, damage):
    path = tmp_path / "bank.pem"
    keys.save_identity(identity("bank"), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises((InvalidInput, NotVerified)):
        keys.load_identity(path)


def test_a_file_without_a_name_or_without_two_keys_is_no_key_file(tmp_path):
    path = tmp_path / "bank.pem"
    keys.save_identity(identity("bank"), path)
    text = path.read_bytes()
    blocks = text.partition(b"\n")[2]
    for damaged in (b"Owner: bank\n" + blocks, blocks, text[: text.index(b"-----END")]):
        path.write_bytes(damaged)
        with pytest.raises(InvalidInput, match="is not a key file"):
            keys.load_identity(path)


def test_keys_in_the_wrong_order_are_refused(tmp_path):
    path = tmp_path / "bank.pem"
    keys.save_identity(identity("bank"), path)
    first, _, blocks = path.read_bytes().partition(b"\n")
    end = blocks.index(keys._END) + len(keys._END)
    path.write_bytes(first + b"\n" + blocks[end:] + blocks[:end])
    with pytest.raises(InvalidInput, match="an Ed25519 key, then an X25519 key"):
        keys.load_identity(path)


def test_a_missing_key_file_is_a_typed_error(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        keys.load_identity(tmp_path / "absent.pem")
    with pytest.raises(InvalidInput, match="cannot be written"):
        keys.save_identity(identity("bank"), tmp_path / "absent" / "bank.pem")


@pytest.mark.parametrize("name", ["", "Bank", "a b", "../x", "ä", "a" * 64, "-a", "a\n"])
def test_names_are_plain(name):
    with pytest.raises(InvalidInput, match="is not a name"):
        keys.new_identity(name)


SMALL_ORDER_X = [
    bytes(32),
    (1).to_bytes(32, "little"),
    bytes.fromhex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800"),
]
SMALL_ORDER_ED = [
    (1).to_bytes(32, "little"),
    bytes(32),
    (2**255 - 20).to_bytes(32, "little"),
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
]


@pytest.mark.parametrize("key", SMALL_ORDER_X)
def test_agreement_keys_of_small_order_are_refused(key):
    good = identity("bank")
    proof = good.sign(b"member/v1", b"bank", key)
    assert not replace(good.member, agreement_key=key, proof=proof).holds()
    with pytest.raises(InvalidInput, match="small order"):
        good.agree(key)


@pytest.mark.parametrize("key", SMALL_ORDER_ED)
def test_signing_keys_of_small_order_are_refused(key):
    forged = key[:31] + bytes([key[31] & 0x7F]) + bytes(32)
    assert not replace(identity("bank").member, signing_key=key, proof=forged).holds()


# ---------------------------------------- an oracle for the order of points, in plain arithmetic on the curve itself
PRIME = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, PRIME) % PRIME
Point = tuple[int, int]


def added(one: Point, other: Point) -> Point:
    (x, y), (u, v) = one, other
    cross = D * x * u * y * v
    left, right = (x * v + y * u) * pow(1 + cross, -1, PRIME), (y * v + x * u) * pow(1 - cross, -1, PRIME)
    return left % PRIME, right % PRIME


def times(count: int, point: Point) -> Point:
    result = (0, 1)
    for bit in bin(count)[2:]:
        result = added(result, result)
        result = added(result, point) if bit == "1" else result
    return result


def decoded(key: bytes) -> Point:
    y = int.from_bytes(key, "little") & (2**255 - 1)
    square = (y * y - 1) * pow(D * y * y + 1, -1, PRIME) % PRIME
    x = pow(square, (PRIME + 3) // 8, PRIME)
    x = x if x * x % PRIME == square else x * pow(2, (PRIME - 1) // 4, PRIME) % PRIME
    assert x * x % PRIME == square
    return (x if x & 1 == key[31] >> 7 else PRIME - x), y


def encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")


def montgomery(point: Point) -> bytes:
    return ((1 + point[1]) * pow(1 - point[1], -1, PRIME) % PRIME).to_bytes(32, "little")


EIGHTH = decoded(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"))
TORSION = [times(count, EIGHTH) for count in range(1, 8)]


def test_the_oracle_knows_a_point_of_order_eight_and_the_order_of_a_key():
    assert times(8, EIGHTH) == (0, 1) != times(4, EIGHTH)
    own = decoded(identity("bank").member.signing_key)
    assert times(ORDER, own) == (0, 1)
    assert encoded(own) == identity("bank").member.signing_key
    assert all(times(ORDER, added(own, small)) != (0, 1) for small in TORSION)


@pytest.mark.parametrize("small", range(7))
def test_keys_of_mixed_order_are_refused(small):
    """Such a key agrees as the member's own does, and its signatures hold for some verifiers and not for others."""
    own = decoded(identity("bank").member.signing_key)
    mixed = added(own, TORSION[small])
    assert not keys.signing_key_sound(encoded(mixed))
    assert not keys.agreement_key_sound(montgomery(mixed))
    assert keys.signing_key_sound(encoded(own))
    assert keys.agreement_key_sound(montgomery(own))
    assert identity("x").agree(montgomery(mixed)) == identity("x").agree(montgomery(own))  # so it is a copy


def test_a_copied_agreement_key_in_another_encoding_is_refused():
    good = identity("bank").member.agreement_key
    flipped = good[:31] + bytes([good[31] | 0x80])
    thief = identity("thief")
    assert thief.agree(flipped) == thief.agree(good)
    proof = thief.sign(b"member/v1", b"thief", flipped)
    assert not replace(thief.member, agreement_key=flipped, proof=proof).holds()
    copied = registry_of([identity("bank"), identity("other")])
    members = (*copied.members, replace(thief.member, agreement_key=flipped, proof=proof))
    again = resigned(copied, members=members)
    with pytest.raises(NotVerified, match="REGISTRY_REFUSED"):
        verify_registry(again, again.digest)


@pytest.mark.parametrize("small", range(2, 19))
def test_keys_that_are_not_reduced_are_refused(small):
    raw = (small + PRIME).to_bytes(32, "little")
    assert not keys.agreement_key_sound(raw)
    assert not keys.signing_key_sound(raw)


def test_keys_off_the_curve_are_refused():
    """Half of all numbers are on the curve's twist, where the group is another one."""
    sound = [keys.agreement_key_sound(number.to_bytes(32, "little")) for number in range(2, 200)]
    assert 0 < sum(sound) < 40  # one of sixteen is of the large order
    assert keys.agreement_key_sound((9).to_bytes(32, "little"))


def test_good_members_hold():
    assert all(identity(f"bank-{index}").member.holds() for index in range(20))


def test_a_member_cannot_claim_anothers_keys():
    thief = replace(identity("bank").member, name="thief")
    assert not thief.holds()
    assert not replace(identity("bank").member, agreement_key=identity("thief").member.agreement_key).holds()


# ------------------------------------------------------------------------------------------------------------ registry
MEMBERS = [identity("a"), identity("b"), identity("c")]


def test_the_pinned_registry_is_accepted():
    good = registry_of(MEMBERS)
    assert verify_registry(Registry.decode(good.encode()), good.digest) == good


def resigned(good: Registry, **changes: Any) -> Registry:
    """What whoever holds the consortium's key can make, without the sorting that sign does."""
    unsigned = replace(good, **changes)
    return replace(unsigned, signature=CONSORTIUM.sign(b"registry-signature/v1", unsigned.digest))


def refused() -> dict[str, tuple[Registry, int]]:
    good = registry_of(MEMBERS)
    first, *rest = good.members
    return {
        "unsorted": (resigned(good, members=good.members[::-1]), 0),
        "a name twice": (resigned(good, members=(first, first, *rest)), 0),
        "one key for two names": (resigned(good, members=(first, _alias(first), *rest)), 0),
        "signed by another": (replace(good, signature=SERVER.sign(b"registry-signature/v1", good.digest)), 1),
        "a key that is not the member's": (resigned(good, members=(replace(first, proof=bytes(64)), *rest)), 2),
    }


def _alias(member: keys.Member) -> keys.Member:
    thief = identity("a")
    return replace(member, name="aa", proof=thief.sign(b"member/v1", b"aa", member.agreement_key))


@pytest.mark.parametrize("name", refused())
def test_a_registry_that_is_not_sound_is_refused_even_if_pinned(name, monkeypatch):
    bad, check = refused()[name]
    with pytest.raises(NotVerified, match="REGISTRY_REFUSED"):
        verify_registry(bad, bad.digest)
    monkeypatch.setattr(registry, "CHECKS", (*registry.CHECKS[:check], *registry.CHECKS[check + 1 :]))
    assert verify_registry(bad, bad.digest) is bad  # this check alone stood in its way


def test_a_registry_of_more_than_can_be_summed_is_refused(monkeypatch):
    good = registry_of(MEMBERS)
    monkeypatch.setattr(registry, "MOST_MEMBERS", 2)
    with pytest.raises(NotVerified, match="REGISTRY_REFUSED"):
        verify_registry(good, good.digest)


def test_a_registry_of_exactly_as_many_as_can_be_summed_is_accepted(monkeypatch):
    monkeypatch.setattr(registry, "MOST_MEMBERS", 3)
    full = registry_of([identity("a"), identity("b"), identity("c")])
    assert verify_registry(full, full.digest) == full


@pytest.mark.parametrize("count", [3, 5])
def test_a_member_of_another_number_of_fields_is_malformed(count):
    good = registry_of([identity("a")])
    _, version, first, previous, consortium, _, signature = unpack(good.encode())
    member = good.members[0]
    parts = (member.name.encode(), member.signing_key, member.agreement_key, member.proof, b"")[:count]
    altered = pack(b"registry/v1", version, first, previous, consortium, pack(pack(*parts)), signature)
    assert verdict_of(lambda: Registry.decode(altered)) is Verdict.MALFORMED


def test_another_registry_than_the_pinned_one_is_refused():
    other = registry_of(MEMBERS[:2])
    with pytest.raises(NotVerified, match="pinned is"):
        verify_registry(other, registry_of(MEMBERS).digest)


# ------------------------------------------------------------------------------------------------------------ rotation
def successor(good: Registry, members: list[keys.Identity], **changes: Any) -> Registry:
    following = {"version": good.version + 1, "first_round": 2, "previous": good.digest, **changes}
    return sign_registry(replace(good, members=tuple(one.member for one in members), **following), CONSORTIUM)


def rotated_world():
    world = federation(4)
    receipts = [honest_round(world), honest_round(world)]
    fresh = {f"c{index:03d}": identity(f"c{index:03d}", generation=int(index == 2)) for index in range(4)}
    following = successor(world.session.registry, list(fresh.values()))
    old = dict(world.clients)
    world.idle = server.rotate(world.idle, following)
    for name, ready in old.items():
        world.clients[name] = client.catch_up(replace(ready, identity=fresh[name]), [following], ready.model)
    return world, old, receipts, following


def test_a_member_changes_its_keys_at_a_round_boundary():
    world, _, receipts, following = rotated_world()
    start = world.clients["c000"].position
    receipts.append(honest_round(world))
    assert follow(start, receipts[2]) == world.idle.position
    first = federation(4)
    position = genesis(first.session, first.idle.position.model)
    for receipt in receipts[:2]:
        position = follow(position, receipt)
    assert follow(position.rotated(following), receipts[2]) == world.idle.position
    assert verdict_of(lambda: follow(position, receipts[2])) is Verdict.STALE_CONTEXT


def test_the_old_key_is_worth_nothing_after_rotation():
    world, old, _, _ = rotated_world()
    gathering, train = server.open_round(world.idle, tuple(world.clients))
    stolen = replace(world.clients["c002"], identity=old["c002"].identity)
    begun = client.begin(stolen, train)
    committed = client.commit(begun, world.update(), bytes(32), update=9)
    assert verdict_of(lambda: server.enlist(gathering, committed.pledge)) is Verdict.PEER_UPDATE_SIG


def test_a_client_that_did_not_rotate_cannot_be_led_on():
    world, old, _, _ = rotated_world()
    _, train = server.open_round(world.idle, tuple(world.clients))
    assert verdict_of(lambda: client.begin(old["c001"], train)) is Verdict.STALE_CONTEXT


def test_keys_do_not_rotate_in_the_middle_of_a_round():
    """Only Ready rotates; a server that rotated alone is stale to those who committed before."""
    world = federation(4)
    honest_round(world)
    honest_round(world)
    scene = stage(world)
    following = successor(world.session.registry, [identity(f"c{index:03d}") for index in range(4)])
    after = server.rotate(world.idle, following)
    publish = scene.resign(session=after.position.session.digest, previous=after.position.tip)
    assert play_out(scene, publish).worst is Verdict.STALE_CONTEXT


@pytest.mark.parametrize(
    "changes",
    [{"version": 3}, {"version": 1}, {"previous": bytes(32)}],
)
def test_a_registry_that_does_not_follow_is_refused(changes):
    good = registry_of(MEMBERS)
    with pytest.raises(NotVerified, match="does not follow"):
        verify_successor(good, successor(good, MEMBERS, **changes))


def test_a_successor_by_another_consortium_is_refused():
    good = registry_of(MEMBERS)
    coup = sign_registry(successor(good, MEMBERS), SERVER)
    with pytest.raises(NotVerified, match="does not follow"):
        verify_successor(good, coup)
    unsigned = replace(successor(good, MEMBERS), signature=bytes(64))
    with pytest.raises(NotVerified, match="REGISTRY_REFUSED"):
        verify_successor(good, unsigned)


def test_rotation_waits_for_its_first_round_and_may_come_later():
    world = federation(4)
    members = [identity(f"c{index:03d}") for index in range(4)]
    following = successor(world.session.registry, members)
    for _ in range(2):
        with pytest.raises(NotVerified, match=f"due at round 2, this is {world.idle.position.round}"):
            world.idle.position.rotated(following)
        honest_round(world)
    assert world.idle.position.rotated(following).session.registry == following
    honest_round(world)
    assert world.idle.position.rotated(following).round == 3


def test_no_registry_is_replaced_before_the_first_round():
    """A session is begun under the newest: else who joins could not tell from which model it began."""
    world = federation(4)
    at_once = successor(world.session.registry, [identity(f"c{index:03d}") for index in range(4)], first_round=0)
    with pytest.raises(NotVerified, match="due at round 1, this is 0"):
        world.idle.position.rotated(at_once)
    honest_round(world)
    assert world.idle.position.rotated(at_once).round == 1


def test_a_registry_with_fewer_members_than_make_a_round_is_refused():
    world = federation(4)
    honest_round(world)
    honest_round(world)
    two = successor(world.session.registry, [identity("c000"), identity("c001")])
    assert verdict_of(lambda: world.idle.position.rotated(two)) is Verdict.ROSTER_TOO_SMALL


def test_who_signed_a_tag_in_a_round_follows_no_other_registry_before_it_ends():
    """Others may have verified the round with that tag. The control has committed to an update, and signed nothing."""
    world = federation(4)
    honest_round(world)
    honest_round(world)
    members = [identity(f"c{index:03d}") for index in range(4)]
    following = successor(world.session.registry, members)
    scene = stage(world)
    scheme = sketch_client(members[1], world.idle.position.rotated(following).session)
    tagged = play_out(scene).tagged["c001"]
    ready = client.roll_back(tagged)
    assert verdict_of(partial(client.catch_up, ready, [following], ready.model)) is Verdict.STALE_CONTEXT
    free = client.abandon(scene.committed["c001"])
    there = client.catch_up(free, [following], free.model)
    assert there.position == free.position.rotated(following)
    assert there.scheme is scheme
    assert there.stands == free.stands


# ---------------------------------------- the chain of registries
def chain(length: int) -> list[Registry]:
    registries = [registry_of(MEMBERS)]
    for _ in range(length - 1):
        registries.append(successor(registries[-1], MEMBERS))
    return registries


def as_bytes(registries: list[Registry]) -> list[bytes]:
    return [each.encode() for each in registries]


@pytest.mark.parametrize("pinned", [0, 1, 2])
def test_any_registry_of_a_chain_vouches_for_all_of_it(pinned):
    made = chain(3)
    assert read_lineage(as_bytes(made), made[pinned].digest) == tuple(made)


def coup(made: list[Registry]) -> list[Registry]:
    """The last one, by another consortium."""
    return [*made[:-1], sign_registry(made[-1], SERVER)]


BROKEN_CHAINS = {
    "not the pinned one": lambda made: [registry_of(MEMBERS[:3])],
    "a gap": lambda made: [made[0], made[2]],
    "backwards": lambda made: made[::-1],
    "one twice": lambda made: [made[0], made[0], made[1]],
    "signed by the server": coup,
    "not signed": lambda made: [made[0], replace(made[1], signature=bytes(64))],
    "an ancestor made up": lambda made: [replace(made[0], members=made[0].members[1:]), *made[1:]],
    "a member's key is another's": lambda made: [made[0], successor(made[0], [MEMBERS[0], MEMBERS[0]])],
}


@pytest.mark.parametrize("broken", BROKEN_CHAINS.values(), ids=BROKEN_CHAINS.keys())
def test_a_chain_that_does_not_hold_is_refused_whole(broken):
    made = chain(3)
    assert verdict_of(lambda: read_lineage(as_bytes(broken(made)), made[1].digest)) is Verdict.REGISTRY_REFUSED
