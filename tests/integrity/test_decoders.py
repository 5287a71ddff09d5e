"""Decoders are strict: any bytes give one message with one encoding, or a typed error."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from integrity.parties import federation, honest_round, play_out, stage, verdict_of
from lrdp.errors import NotVerified
from lrdp.integrity import client, exact, server
from lrdp.integrity.encoding import pack, unpack
from lrdp.integrity.messages import Accept, Header, Pledge, Publish, Tag, Tags, Train, Update
from lrdp.integrity.receipts import Receipt
from lrdp.integrity.registry import Registry
from lrdp.integrity.session import Parameters
from lrdp.integrity.verdicts import Verdict

VECTOR = b"\x01\x02\x03\x04" * 5


def _update(data: bytes) -> bytes:
    return Update.decode(data, VECTOR).encode()


def _publish(data: bytes) -> bytes:
    return Publish.decode(data, VECTOR).encode()


DECODERS = {
    "accept": lambda data: Accept.decode(data).encode(),
    "header": lambda data: Header.decode(data).encode(),
    "hello": lambda data: exact.Hello.decode(data).encode(),
    "parameters": lambda data: Parameters.decode(data).encode(),
    "pledge": lambda data: Pledge.decode(data).encode(),
    "publish": _publish,
    "receipt": lambda data: Receipt.decode(data).encode(),
    "registry": lambda data: Registry.decode(data).encode(),
    "tag": lambda data: Tag.decode(data).encode(),
    "tags": lambda data: Tags.decode(data).encode(),
    "train": lambda data: Train.decode(data).encode(),
    "update": _update,
}


def _samples() -> dict[str, bytes]:
    world = federation(3, size=5)
    _, train = server.open_round(world.idle, tuple(world.clients))
    setting = stage(world)
    played = play_out(setting)
    return {
        "accept": played.accepts[0].encode(),
        "header": setting.publish.header.encode(),
        "hello": exact.hello(setting.committed["c000"].begun.ready.identity, world.session, bytes(32)).encode(),
        "parameters": world.session.parameters.encode(),
        "pledge": setting.committed["c000"].pledge.encode(),
        "publish": setting.publish.encode(),
        "receipt": honest_round(federation(3, size=5)).encode(),
        "registry": world.session.registry.encode(),
        "tag": played.tags[0].encode(),
        "tags": Tags(tags=tuple(played.tags)).encode(),
        "train": train.encode(),
        "update": client.reveal(setting.committed["c000"])[1].encode(),
    }


SAMPLES = _samples()


def fuzz(name: str, data: bytes) -> None:
    said: list[bytes] = []
    verdict = verdict_of(lambda: said.append(DECODERS[name](data)))
    assert (verdict, said) in ((Verdict.MALFORMED, []), (Verdict.VERIFIED, [data]))


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


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", DECODERS)
@settings(max_examples=9000)
@given(data=st.data())
def test_a_hundred_thousand_messages_give_a_message_or_a_typed_error(name, data):
    fuzz(name, data.draw(st.one_of(st.binary(max_size=400), nearly(name), structured(name))))


@given(st.lists(st.binary(max_size=40)))
def test_packing_is_injective(some):
    assert unpack(pack(*some)) == tuple(some)


@given(st.binary(max_size=200))
@example(b"\xff\xff\xff\xff")
@example(b"\x00\x00\x00")
def test_whatever_unpacks_packs_to_the_same_bytes(data):
    try:
        found = unpack(data)
    except NotVerified:
        return
    assert pack(*found) == data


@pytest.mark.parametrize("body", [b"", b"\x01", VECTOR + b"\x00"])
def test_vectors_of_any_length_give_a_message_or_a_typed_error(body):
    expected = Verdict.MALFORMED if len(body) % 4 else Verdict.VERIFIED
    assert verdict_of(lambda: Update.decode(SAMPLES["update"], body)) is expected
    assert verdict_of(lambda: Publish.decode(SAMPLES["publish"], body)) is expected


def test_a_publish_with_too_many_or_too_few_vectors_is_malformed():
    for bodies in ((), (VECTOR, VECTOR)):
        with pytest.raises(NotVerified, match="MALFORMED"):
            Publish.decode(SAMPLES["publish"], *bodies)
