"""The vectors, replayed by the library and by a second implementation that shares no code with it."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from integrity import vectors
from integrity.parties import federation, verdict_of
from lrdp.errors import InvalidInput, NotVerified
from lrdp.integrity import client
from lrdp.integrity.depositions import Deposition, Judgement, judged
from lrdp.integrity.papers import decode_failed
from lrdp.integrity.registry import verify_registry
from lrdp.integrity.wire import Wire
from oracles import integrity_reference as reference

STORED = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(vectors.FOLDER.glob("*.json"))}
GOOD = sorted(vectors.GOOD)
PLEDGED = [*GOOD, "disputed"]


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
    kept = reference.registry_bytes(bytes.fromhex(record["consortium_signing_secret"]), members)
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
        "session_bytes": reference.session_bytes(
            bytes.fromhex(record["identifier"]), server, record["parameters"], kept
        ),
        "model": model,
        "params": record["parameters"],
        "tip": reference.sha("genesis/v1", session, reference.model_hash(model)),
        "round": 0,
    }


@pytest.mark.parametrize("name", PLEDGED)
def test_the_reference_agrees_on_the_setting(name):
    record = STORED[name]
    found = public(record)
    assert found["registry"].hex() == record["registry_digest"]
    assert found["session"].hex() == record["session_digest"]
    assert reference.model_hash(found["model"]).hex() == record["model_hash"]
    assert found["tip"].hex() == record["tip"]


@pytest.mark.parametrize("name", PLEDGED)
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


DISPUTED = STORED.get("disputed", {"cases": {}})


def published(record: dict[str, Any], found: dict[str, Any]) -> list[bytes]:
    """Session, header and the server's signature, by the reference alone."""
    parts, params = record["participants"], found["params"]
    total = [sum(column) for column in zip(*(part["update"] for part in parts.values()), strict=True)]
    after = reference.next_model(found["model"], total, len(parts), params)
    hashes = [found["tip"], reference.model_hash(found["model"]), reference.model_hash(after)]
    hashes.append(reference.aggregate_hash(total, reference.kind_of(params, len(parts))))
    roster = [
        (who, bytes.fromhex(parts[who]["commitment"]), bytes.fromhex(parts[who]["pledge_signature"]))
        for who in sorted(parts)
    ]
    header = reference.header_bytes((found["session"], 0, 0), hashes, roster)
    server = bytes.fromhex(record["server_signing_secret"])
    return [found["session_bytes"], header, reference.sign(server, "server/v1", reference.digest_of(header))]


def made_again(record: dict[str, Any], what: str) -> dict[str, Any]:
    """A round with a liar and its case, by the reference alone, from secrets, commitments and updates."""
    found, parts, liar = public(record), record["participants"], record["liar"]
    before = published(record, found)
    dg, tags, said = reference.digest_of(before[1]), dict[str, bytes](), dict[str, dict[str, Any]]()
    for who in sorted(parts):
        signing, agreement = found["secrets"][who]
        keys = {
            peer: reference.pair_key(agreement, key, found["session"], "tagmask/v1", (who, peer))
            for peer, key in sorted(found["agreement"].items())
            if peer != who
        }
        masks = [reference.mask("", {peer: key}, dg) for peer, key in keys.items()]
        bare, lie = reference.sketch(reference.challenge_seed(dg), parts[who]["update"]), vectors.LIE * (who == liar)
        tag = (bare + lie + reference.mask(who, keys, dg)) % reference.P
        tags[who] = reference.tag_bytes(signing, "tag/v1", who, dg, tag)
        bare = (bare + lie * (what == "the_same_lie")) % reference.P
        if (who, what) != (liar, "nothing"):
            said[who] = {
                "bare_tag": f"{bare:032x}",
                "masks": [f"{mask:032x}" for mask in masks],
                "deposition": reference.deposition_bytes(signing, who, dg, bare, masks).hex(),
            }
    bound, signature, nonce = (bytes.fromhex(parts[liar][key]) for key in ("commitment", "pledge_signature", "nonce"))
    opened = [reference.lp(b"P", liar.encode(), bound, signature), nonce] if what == "the_same_lie" else []
    words = [bytes.fromhex(word["deposition"]) for word in said.values()]
    return {
        "header": before[1].hex(),
        "server_signature": before[2].hex(),
        "tags": {who: tag.hex() for who, tag in tags.items()},
        "said": said,
        "case": reference.case_bytes(before, list(tags.values()), words, opened).hex(),
    }


@pytest.mark.parametrize("what", DISPUTED["cases"])
def test_the_reference_agrees_on_every_deposition_and_on_the_case(what):
    whole = {**DISPUTED, **DISPUTED["cases"][what]}
    again = made_again(DISPUTED, what)
    assert again == {key: whole[key] for key in again}


@pytest.mark.parametrize("what", DISPUTED["cases"])
def test_control_with_one_byte_of_what_it_is_made_of_changed_the_reference_makes_another_case(what):
    def turned(text: str) -> str:
        return bytes([bytes.fromhex(text)[0] ^ 8]).hex() + text[2:]

    liar, changed = DISPUTED["liar"], []
    for key in ("identifier", "server_signing_secret", "consortium_signing_secret", "model"):
        changed.append({**DISPUTED, key: turned(DISPUTED[key])})
    for group, keys in (
        ("members", ("signing_secret", "agreement_secret")),
        ("participants", ("commitment", "pledge_signature", *["nonce"] * (what == "the_same_lie"))),
    ):
        for key in keys:
            one = {**DISPUTED[group][liar], key: turned(DISPUTED[group][liar][key])}
            changed.append({**DISPUTED, group: {**DISPUTED[group], liar: one}})
    cases = {made_again(record, what)["case"] for record in changed}
    assert len(cases) == len(changed)
    assert DISPUTED["cases"][what]["case"] not in cases


def concluded(papers: bytes, opened: str | None) -> Judgement:
    """What an auditor concludes who pinned the registry."""
    values = {"aggregate": np.frombuffer(bytes.fromhex(DISPUTED["aggregate"]), "<i4")}
    if opened is not None:
        values["opened"] = np.array(DISPUTED["participants"][opened]["update"], "<i4")
    failed = decode_failed(papers, values)
    verify_registry(failed.case.position.session.registry, bytes.fromhex(DISPUTED["registry_digest"]))
    return judged(failed)


def flipped(stored: bytes, step: int) -> Iterator[bytes]:
    """The same with one bit turned, in every ``step``-th byte."""
    for place in range(0, len(stored), step):
        yield stored[:place] + bytes([stored[place] ^ 1 << place % 8]) + stored[place + 1 :]


@pytest.mark.parametrize("what", DISPUTED["cases"])
def test_a_changed_byte_of_a_stored_case_is_noticed(what):
    """It is no case any more, or its evidence does not hold, or somebody's word counts as none."""
    shown = DISPUTED["cases"][what]
    papers = bytes.fromhex(shown["case"])
    true = concluded(papers, shown["opened"])
    assert true.line == shown["judgement"]
    for changed in flipped(papers, 17):
        try:
            found = concluded(changed, shown["opened"])
        except (NotVerified, InvalidInput):
            continue
        assert found != true


def test_a_changed_byte_of_a_stored_deposition_makes_it_malformed_or_another():
    for each in DISPUTED["cases"]["the_truth"]["said"].values():
        stored = bytes.fromhex(each["deposition"])
        word = Deposition.decode(stored)
        assert word.encode() == stored
        for changed in flipped(stored, 1):
            try:
                other = Deposition.decode(changed)
            except NotVerified:
                continue
            assert other != word
            assert other.encode() == changed
