"""The vectors, replayed by the library and by a second implementation that shares no code with it."""

from __future__ import annotations

import hashlib
import json
import struct
from typing import Any

import numpy as np
import pytest

from integrity import vectors
from integrity.parties import federation, verdict_of
from lrdp.integrity import client
from lrdp.integrity.wire import Wire
from oracles import integrity_reference as reference

STORED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(vectors.FOLDER.glob("*.json"))}
GOOD = sorted(vectors.GOOD)


def test_the_library_makes_the_stored_vectors():
    assert json.loads(json.dumps(vectors.build())) == STORED


def public(record: dict[str, Any]) -> dict[str, Any]:
    """What the reference derives from the secrets alone."""
    secrets = {
        name: (bytes.fromhex(member["signing_secret"]), bytes.fromhex(member["agreement_secret"]))
        for name, member in sorted(record["members"].items())
    }
    keys = {name: reference.public(*pair) for name, pair in secrets.items()}
    members = [reference.member_bytes(name, *pair) for name, pair in secrets.items()]
    consortium, _ = reference.public(bytes.fromhex(record["consortium_signing_secret"]), bytes(range(32)))
    server, _ = reference.public(bytes.fromhex(record["server_signing_secret"]), bytes(range(32)))
    registry = reference.registry_digest(consortium, members)
    session = reference.session_digest(bytes.fromhex(record["identifier"]), server, record["parameters"], registry)
    raw = bytes.fromhex(record["model"])
    model = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return {
        "secrets": secrets,
        "keys": {name: pair[0] for name, pair in keys.items()},
        "agreement": {name: pair[1] for name, pair in keys.items()},
        "server": server,
        "registry": registry,
        "session": session,
        "model": model,
        "params": record["parameters"],
        "tip": reference.sha("genesis/v1", session, reference.model_hash(model)),
        "round": 0,
    }


@pytest.mark.parametrize("name", GOOD)
def test_the_reference_agrees_on_the_setting(name):
    record = STORED[name]
    found = public(record)
    assert found["registry"].hex() == record["registry_digest"]
    assert found["session"].hex() == record["session_digest"]
    assert reference.model_hash(found["model"]).hex() == record["model_hash"]
    assert found["tip"].hex() == record["tip"]


@pytest.mark.parametrize("name", GOOD)
def test_the_reference_agrees_on_every_pledge(name):
    record = STORED[name]
    found = public(record)
    kind = "<i4" if found["params"]["method"] == "sketch" else reference.kind_of(found["params"], len(found["keys"]))
    for who, part in record["participants"].items():
        bound = reference.commitment(found["session"], 0, who, bytes.fromhex(part["nonce"]), part["sent"], kind)
        claim = reference.update_claim(
            found["session"], 0, who, found["tip"], bytes.fromhex(record["model_hash"]), bound
        )
        assert bound.hex() == part["commitment"]
        assert reference.sign(found["secrets"][who][0], "update/v1", *claim).hex() == part["pledge_signature"]


@pytest.mark.parametrize("name", GOOD)
def test_the_reference_agrees_on_aggregate_model_and_chain(name):
    record = STORED[name]
    found = public(record)
    count = len(record["participants"])
    total = [sum(column) for column in zip(*(part["update"] for part in record["participants"].values()), strict=True)]
    kind = reference.kind_of(found["params"], count)
    after = reference.next_model(found["model"], total, count, found["params"])
    header = bytes.fromhex(record["header"])
    assert reference.ints(total, kind).hex() == record["aggregate"]
    assert reference.aggregate_hash(total, kind).hex() == record["aggregate_hash"]
    assert reference.f32(after).hex() == record["next_model"]
    assert reference.model_hash(after).hex() == record["next_model_hash"]
    dg = reference.digest_of(header)
    assert dg.hex() == record["publish_digest"]
    assert reference.link(found["tip"], dg, reference.model_hash(after)).hex() == record["next_tip"]
    for who, signature in record["accept_signatures"].items():
        claim = (who.encode(), dg, bytes.fromhex(record["next_tip"]))
        assert reference.sign(found["secrets"][who][0], "accept/v1", *claim).hex() == signature


@pytest.mark.parametrize("name", GOOD)
def test_the_reference_agrees_on_every_message_as_it_travels(name):
    record = STORED[name]
    found = public(record)
    names, participants = sorted(record["participants"]), record["participants"]
    model, next_model = bytes.fromhex(record["model_hash"]), bytes.fromhex(record["next_model_hash"])
    aggregate, dg = bytes.fromhex(record["aggregate_hash"]), bytes.fromhex(record["publish_digest"])
    server = bytes.fromhex(record["server_signing_secret"])
    at = {who: reference.place(found, who) for who in names}
    plain = lambda who, *keys: b"".join(bytes.fromhex(participants[who][key]) for key in keys)  # noqa: E731
    pledges = {who: at[who] + plain(who, "commitment", "pledge_signature") for who in names}
    width = bytes([8 if reference.kind_of(found["params"], len(names)) == "<i8" else 4])
    sent = width if record["parameters"]["method"] == "exact" else b"\x04"

    unsigned = reference.train_bytes(found["session"], 0, 0, found["tip"], names)
    assert unsigned.hex() == record["train_unsigned"]
    invitation = reference.sign(server, "train/v1", unsigned) + b"".join(at.values())
    train = b"\x01" + found["session"][:4] + bytes(2) + found["tip"][:4] + invitation
    assert train.hex() == record["train"]
    for who in names:
        assert (b"\x03" + sent + pledges[who] + plain(who, "nonce")).hex() == participants[who]["update_message"]

    roster = [(who, plain(who, "commitment"), plain(who, "pledge_signature")) for who in names]
    hashes = [found["tip"], model, next_model, aggregate]
    assert reference.header_bytes((found["session"], 0, 0), hashes, roster).hex() == record["header"]
    context = found["session"][:4] + bytes(2) + found["tip"][:4] + model[:4] + next_model + aggregate
    nonces = b"".join(plain(who, "nonce") for who in names if record["parameters"]["method"] == "exact")
    entries = reference.number_bytes(len(names)) + b"".join(pledges.values()) + nonces
    publish = b"\x04" + width + reference.sign(server, "server/v1", dg) + context + entries
    assert publish.hex() == record["publish"]

    tags = b""
    for who in names:
        value = int(record["tag_values"][who], 16).to_bytes(16, "little")
        tag = value + reference.sign(found["secrets"][who][0], "tag/v1", who.encode(), dg, value)
        tags += tag
        assert (b"\x05" + at[who] + tag).hex() == record["tag_messages"][who]
        accept = b"\x07" + at[who] + bytes.fromhex(record["accept_signatures"][who])
        assert accept.hex() == record["accept_messages"][who]
    assert (b"\x06" + bytes([2 ** len(names) - 1]) + tags).hex() == record["tags"]


@pytest.mark.parametrize("name", [name for name in GOOD if name.startswith("sketch")])
def test_the_reference_agrees_on_challenge_masks_and_tags(name):
    record = STORED[name]
    found = public(record)
    dg = bytes.fromhex(record["publish_digest"])
    seed = reference.challenge_seed(dg)
    assert f"{reference.expand(b'alpha', seed, 1)[0]:032x}" == record["challenge"]["alpha_0"]
    assert f"{reference.expand(b'beta', seed, 1024)[1023]:032x}" == record["challenge"]["beta_1023"]
    for who, part in record["participants"].items():
        keys = {
            peer: reference.pair_key(found["secrets"][who][1], key, found["session"], "tagmask/v1", (who, peer))
            for peer, key in found["agreement"].items()
            if peer != who
        }
        bare, hidden = reference.sketch(seed, part["update"]), reference.mask(who, keys, dg)
        assert f"{bare:032x}" == part["bare_tag"]
        assert f"{hidden:032x}" == part["mask"]
        assert f"{(bare + hidden) % reference.P:032x}" == record["tag_values"][who]


def test_the_reference_agrees_on_masked_vectors():
    record = STORED["exact-small"]
    found = public(record)
    train = bytes.fromhex(record["train_unsigned"])
    secrets = {who: ephemeral_secret(who) for who in found["keys"]}
    keys = {who: reference.public(secret, secret)[1] for who, secret in secrets.items()}
    for who, part in record["participants"].items():
        shared = {
            peer: reference.pair_key(secrets[who], key, found["session"], "vectormask/v1", (who, peer))
            for peer, key in keys.items()
            if peer != who
        }
        hidden = reference.vector_mask(who, shared, train, found["params"]["size"], "<i4")
        assert part["sent"] == [reference.wrap(u + z, "<i4") for u, z in zip(part["update"], hidden, strict=True)]


def ephemeral_secret(name: str) -> bytes:
    return hashlib.sha256(f"{name}/ephemeral".encode()).digest()


@pytest.mark.parametrize("case", STORED["bad"]["cases"] if STORED else [])
def test_the_reference_and_the_library_give_a_bad_vector_the_same_verdict(case):
    record = STORED["bad"]
    shown = record["cases"][case]
    body = bytes.fromhex(shown["aggregate"])
    publish, tags = bytes.fromhex(shown["publish"]), bytes.fromhex(shown["tags"])

    me = {**public(record), "name": record["victim"], "commitment": bytes.fromhex(record["commitment"])}
    try:
        reference.on_publish(me, publish, body)
        reference.on_tags(me, tags)
        second = "VERIFIED"
    except reference.Alarm as alarm:
        second = str(alarm)

    world = federation(5, size=7, rng=vectors.Steady(12))
    wire = Wire(world.idle.position)
    begun = client.begin(world.clients[record["victim"]], wire.read_train(bytes.fromhex(record["train"])))
    committed = client.commit(begun, np.array(record["update"], "<i4"), bytes.fromhex(record["nonce"]), update=1)

    def receive() -> object:
        tagged, _ = client.answer(committed, wire.read_publish(publish, body))
        return client.settle(tagged, wire.read_tags(tags, tagged.header))

    assert (verdict_of(receive).name, second) == (shown["verdict"], shown["verdict"])
