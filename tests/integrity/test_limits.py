"""Limits: each at its edge, and pins compared before anything is decoded or kept."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

import pytest

from integrity.parties import federation, honest_round, registry_of, stage, verdict_of
from lrdp.codec import MOST_BYTES, MOST_PARTS, NAME, pack, unpack
from lrdp.errors import Malformed, NotVerified
from lrdp.integrity import history, registry, sealing, session, states
from lrdp.integrity.cards import MOST_CARD_CHARACTERS, json_object
from lrdp.integrity.registry import Registry, read_title
from lrdp.integrity.session import Session, registry_title
from lrdp.integrity.verdicts import Verdict
from lrdp.integrity.wire import Wire

WORLD = federation(3, size=5)


def test_parts_are_counted_while_they_are_taken():
    assert len(unpack(bytes(MOST_PARTS))) == MOST_PARTS
    assert unpack(b"\x01a" * 3, 3) == [b"a"] * 3
    for data, most in ((bytes(MOST_PARTS + 1), MOST_PARTS), (b"\x01a" * 4, 3)):
        with pytest.raises(Malformed, match=f"more than {most} parts"):
            unpack(data, most)


def test_bytes_are_counted_before_they_are_looked_at():
    whole = pack(bytes(MOST_BYTES - 4))
    assert len(whole) == MOST_BYTES
    assert unpack(whole) == [bytes(MOST_BYTES - 4)]
    with pytest.raises(Malformed, match="at most"):
        unpack(pack(bytes(MOST_BYTES - 3)))


def test_a_name_of_any_length_is_refused_by_its_beginning():
    assert NAME.read(b"a" * 63) == "a" * 63
    for name in (b"a" * 64, b"a" * 10_000, b"A" * 63):
        with pytest.raises(Malformed) as caught:
            NAME.read(name)
        assert len(str(caught.value)) < 300


def test_a_line_of_a_history_has_a_limit():
    longest = "0" * history.LONGEST_LINE
    assert verdict_of(lambda: history.read_session(longest, None)) is Verdict.MALFORMED
    with pytest.raises(NotVerified, match="bytes, at most"):
        history.read_session(longest, None)  # decoded from hexadecimal, and too long to be unpacked
    with pytest.raises(NotVerified, match="a line of"):
        history.read_session(longest + "0", None)


def test_a_state_has_a_limit_of_its_own():
    def sealed(size: int) -> bytes:
        body = pack(b"STATE/v1", b"Idle")
        body += pack(bytes(size - len(body) - 4 - 32))
        return body + hashlib.sha256(body).digest()

    most = sealing.MOST_STATE_BYTES
    assert len(sealing.unseal(sealed(most))) == most - 32
    with pytest.raises(NotVerified, match=f"at most {most} are read"):
        sealing.unseal(sealed(most + 1))
    with pytest.raises(NotVerified, match="6 parts"):
        states.decode_server(sealed(200), WORLD.idle.identity, WORLD.idle.model)


def test_a_message_names_no_more_than_the_registry_holds():
    scene = stage(WORLD)
    wire, train, publish = Wire(WORLD.idle.position), scene.gathering.train, scene.publish
    everybody = wire.train(train)
    assert len(wire.read_train(everybody).invited) == 3
    assert verdict_of(lambda: wire.read_train(everybody + b"\0\0")) is Verdict.ROSTER_MALFORMED
    assert len(wire.read_publish(wire.publish(publish), bytes(20)).header.roster) == 3
    more = replace(publish, header=replace(publish.header, roster=(*publish.header.roster, publish.header.roster[0])))
    assert verdict_of(lambda: wire.read_publish(wire.publish(more), bytes(20))) is Verdict.ROSTER_MALFORMED


# ---------------------------------------- pins
def test_the_digest_of_encoded_bytes_is_that_of_what_they_decode_to():
    for one in (WORLD.session.registry, registry_of([])):
        assert read_title(one.encode()).digest == Registry.decode(one.encode()).digest == one.digest
    assert registry_title(WORLD.session.encode()).digest == WORLD.session.registry.digest
    label, *rest = unpack(WORLD.session.registry.encode())
    for damaged in (pack(label, *rest[:-1], rest[-1][:-1]), pack(b"registry/v2", *rest), pack(label, *rest, b"")):
        assert verdict_of(partial(read_title, damaged)) is Verdict.MALFORMED


def test_of_a_registry_that_is_not_the_pinned_one_nothing_is_decoded_or_kept():
    session._known_registry.cache_clear()
    looked = session._known_registry.cache_info
    line, pin = history.session_line(WORLD.session), WORLD.session.registry.digest
    with pytest.raises(NotVerified, match=f"pinned is {bytes(32).hex()}"):
        history.read_session(line, bytes(32))
    assert looked().misses == looked().hits == 0
    assert history.read_session(line, pin) == history.read_session(line, None) == WORLD.session
    assert (looked().misses, looked().hits) == (1, 1), "control"


def test_the_pin_of_a_history_is_the_first_registry_s():
    world = federation(3, size=5)
    lines = [history.session_line(world.session), history.step_line(honest_round(world).encode())]
    for pin in (world.session.registry.digest, None):
        assert len(list(history.walk_history(lines, pin))) == 1
    failure = history.audit_history(lines, bytes(32)).failure
    assert failure is not None
    assert failure.verdict is Verdict.REGISTRY_REFUSED


# ---------------------------------------- JSON
def test_json_is_of_names_and_keys_or_refused_before_it_is_parsed():
    assert json_object('{"name": "a"}') == {"name": "a"}
    assert len(json_object('{"name": "' + "a" * (MOST_CARD_CHARACTERS - 12) + '"}')) == 1
    assert len(json_object("{" + ",".join(f'"{n}": 1' for n in range(16)) + "}")) == 16
    dense = "[" + "[]," * 100 + "[]]"
    for text in (dense, '{"name": "' + "a" * (MOST_CARD_CHARACTERS - 11) + '"}', '{"name": "ä"}', "[" * 100):
        assert verdict_of(partial(json_object, text)) is Verdict.MALFORMED


def test_a_registry_as_large_as_its_limit_is_read_as_json_and_as_bytes():
    member = WORLD.session.registry.members[0]
    many = tuple(replace(member, name=f"a-hospital-with-a-long-name-{number:05d}") for number in range(5000))
    large = replace(WORLD.session.registry, members=many)
    assert Registry.decode(large.encode()) == large
    assert registry.read_title(large.encode()).digest == large.digest
    assert Session.decode(replace(WORLD.session, registry=large).encode()).registry == large


def test_a_state_names_no_more_than_its_kind_has():
    ready = WORLD.clients["c000"]
    body = sealing.unseal(states.encode_client(ready))

    def read(more: bytes) -> Verdict:
        data = sealing.seal(body + more)
        return verdict_of(lambda: states.decode_client(data, ready.identity, states.client_vectors(ready)))

    assert read(b"") is Verdict.VERIFIED
    assert read(pack(b"")) is read(pack(*[b""] * 100)) is Verdict.MALFORMED
