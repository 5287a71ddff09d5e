"""Decoders are strict: any bytes give one message with one encoding, or a typed error."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from integrity.parties import federation, honest_round, play_out, stage, verdict_of
from lrdp.codec import pack, unpack
from lrdp.errors import Malformed, NotVerified
from lrdp.integrity import client, exact
from lrdp.integrity.encoding import Reader, varint
from lrdp.integrity.messages import Accept, Header, Pledge, Tag, Tags, Train
from lrdp.integrity.receipts import RoundReceipt
from lrdp.integrity.registry import Registry
from lrdp.integrity.session import Parameters, Session
from lrdp.integrity.verdicts import Verdict
from lrdp.integrity.wire import Wire

VECTOR = b"\x01\x02\x03\x04" * 5


WORLD = federation(3, size=5)
SCENE = stage(WORLD)
HEADER = SCENE.publish.header
WIRE = Wire(WORLD.idle.position)

KEPT = {
    "accept": lambda data: Accept.decode(data).encode(),
    "header": lambda data: Header.decode(data).encode(),
    "hello": lambda data: exact.SessionKey.decode(data).encode(),
    "parameters": lambda data: Parameters.decode(data).encode(),
    "pledge": lambda data: Pledge.decode(data).encode(),
    "receipt": lambda data: RoundReceipt.decode(data).encode(),
    "registry": lambda data: Registry.decode(data).encode(),
    "session": lambda data: Session.decode(data).encode(),
    "tag": lambda data: Tag.decode(data).encode(),
    "train": lambda data: Train.decode(data).encode(),
}
TRAVELS = {
    "ACCEPT": lambda data: WIRE.accept(WIRE.read_accept(data)),
    "PLEDGE": lambda data: WIRE.pledge(WIRE.read_pledge(data)),
    "PUBLISH": lambda data: WIRE.publish(WIRE.read_publish(data, VECTOR)),
    "PUBLISH in exact rounds": lambda data: WIRE.publish(WIRE.read_publish(data, *[VECTOR] * 4)),
    "TAG": lambda data: WIRE.tag(WIRE.read_tag(data)),
    "TAGS": lambda data: WIRE.tags(WIRE.read_tags(data, HEADER), HEADER),
    "TRAIN": lambda data: WIRE.train(WIRE.read_train(data)),
    "UPDATE": lambda data: WIRE.update(WIRE.read_update(data, VECTOR)),
}
DECODERS = KEPT | TRAVELS


def _samples() -> dict[str, bytes]:
    train = SCENE.gathering.train
    played = play_out(SCENE)
    bound = SCENE.committed["c000"]
    relayed = tuple(client.reveal(one)[1] for one in SCENE.committed.values())
    return {
        "accept": played.accepts[0].encode(),
        "header": HEADER.encode(),
        "hello": exact.session_key(bound.begun.ready.identity, WORLD.session, bytes(32)).encode(),
        "parameters": WORLD.session.parameters.encode(),
        "pledge": bound.pledge.encode(),
        "receipt": honest_round(federation(3, size=5)).encode(),
        "registry": WORLD.session.registry.encode(),
        "session": WORLD.session.encode(),
        "tag": played.tags[0].encode(),
        "train": train.encode(),
        "ACCEPT": WIRE.accept(played.accepts[0]),
        "PLEDGE": WIRE.pledge(bound.pledge),
        "PUBLISH": WIRE.publish(SCENE.publish),
        "PUBLISH in exact rounds": WIRE.publish(replace(SCENE.publish, relayed=relayed)),
        "TAG": WIRE.tag(played.tags[0]),
        "TAGS": WIRE.tags(Tags(tags=tuple(played.tags)), HEADER),
        "TRAIN": WIRE.train(train),
        "UPDATE": WIRE.update(relayed[0]),
    }


SAMPLES = _samples()


def fuzz(name: str, data: bytes) -> None:
    said: list[bytes] = []
    verdict = verdict_of(lambda: said.append(DECODERS[name](data)))
    named = [Verdict.ROSTER_UNKNOWN, Verdict.ROSTER_MALFORMED] if name in TRAVELS else []
    refused = [Verdict.MALFORMED, *named]
    assert said == [data] if verdict is Verdict.VERIFIED else verdict in refused


@st.composite
def nearly(draw, name: str) -> bytes:
    """A good message with a few bytes replaced, inserted or removed, often in its lengths."""
    data = bytearray(SAMPLES[name])
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        data[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
    return bytes(data)


parts = st.recursive(st.binary(max_size=70), lambda inner: st.lists(inner, max_size=5).map(lambda some: pack(*some)))


@st.composite
def structured(draw, name: str) -> bytes:
    """The right label and number of fields, with anything inside."""
    if name in TRAVELS:
        return SAMPLES[name][:1] + draw(st.binary(max_size=400))
    label, *rest = unpack(SAMPLES[name])
    return pack(label, *(draw(st.one_of(st.just(part), parts)) for part in rest))


@pytest.mark.parametrize("name", DECODERS)
def test_good_messages_have_one_encoding(name):
    assert DECODERS[name](SAMPLES[name]) == SAMPLES[name]


@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=150)
@given(data=st.data())
def test_any_bytes_give_a_message_or_a_typed_error(name, data):
    fuzz(name, data.draw(st.one_of(st.binary(max_size=400), nearly(name), structured(name))))


def _thousands(name: str) -> None:
    @settings(max_examples=9000)
    @given(st.one_of(st.binary(max_size=400), nearly(name), structured(name)))
    def run(data: bytes) -> None:
        fuzz(name, data)

    run()


# About half a minute of CPU for each decoder: `-m slow -k files` and `-m slow -k wire` run the halves apart.
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", KEPT)
def test_thousands_of_bytes_from_files_give_a_value_or_a_typed_error(name):
    _thousands(name)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", TRAVELS)
def test_thousands_of_bytes_off_the_wire_give_a_message_or_a_typed_error(name):
    _thousands(name)


@given(st.lists(st.binary(max_size=40)))
def test_packing_is_injective(some):
    assert unpack(pack(*some)) == some


@given(st.binary(max_size=200))
@example(b"\xff\xff\xff\xff")
@example(b"\x00\x00\x00")
def test_whatever_unpacks_packs_to_the_same_bytes(data):
    try:
        found = unpack(data)
    except Malformed:
        event("refused")
    else:
        assert pack(*found) == data


@given(st.integers(0, 2**64 - 1))
@example(0)
@example(127)
@example(128)
@example(2**64 - 1)
def test_numbers_travel_in_as_few_bytes_as_they_need(value):
    said = varint(value)
    assert len(said) == max(1, -(-value.bit_length() // 7))
    assert Reader(said).varint() == value


@pytest.mark.parametrize(
    "said", [b"", b"\x80", b"\x80\x00", b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01", b"\x80" * 99]
)
def test_no_other_bytes_are_a_number(said):
    with pytest.raises(NotVerified, match="MALFORMED"):
        Reader(said).varint()


def test_a_number_is_refused_after_ten_bytes_however_many_follow():
    reader = Reader(b"\x80" * 99)
    with pytest.raises(NotVerified, match="a number is too large"):
        reader.varint()
    assert reader.left == 89


@pytest.mark.parametrize("body", [b"", b"\x01", VECTOR + b"\x00"])
def test_vectors_of_any_length_give_a_message_or_a_typed_error(body):
    expected = Verdict.MALFORMED if len(body) % 4 else Verdict.VERIFIED
    assert verdict_of(lambda: WIRE.read_update(SAMPLES["UPDATE"], body)) is expected
    assert verdict_of(lambda: WIRE.read_publish(SAMPLES["PUBLISH"], body)) is expected


def test_a_publish_with_too_many_or_too_few_vectors_is_malformed():
    for bodies in ((), (VECTOR, VECTOR)):
        with pytest.raises(NotVerified, match="MALFORMED"):
            WIRE.read_publish(SAMPLES["PUBLISH"], *bodies)
