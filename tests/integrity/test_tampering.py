"""Whatever bit of whatever message is changed on the way, nobody who receives it goes on."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest

from integrity.parties import (
    CONSORTIUM,
    Stage,
    federation,
    honest_round,
    identity,
    play_out,
    registry_of,
    secret,
    stage,
    verdict_of,
)
from lrdp.errors import LrdpError
from lrdp.integrity import client, exact, registry, server
from lrdp.integrity.messages import Tags
from lrdp.integrity.receipts import RoundReceipt, follow
from lrdp.integrity.session import ProofMethod, genesis
from lrdp.integrity.verdicts import Verdict
from lrdp.integrity.wire import Wire


@cache
def _stage(method: ProofMethod) -> Stage:
    return stage(federation(3, size=9, method=method))


Case = tuple[list[bytes], Callable[[list[bytes]], object]]


def _train() -> Case:
    world = federation(3, size=9)
    _, train = server.open_round(world.idle, tuple(world.clients))
    wire = Wire(world.idle.position)
    return [wire.train(train)], lambda parts: client.begin(world.clients["c001"], wire.read_train(parts[0]))


def _update() -> Case:
    setting = _stage(ProofMethod.SKETCH)
    _, update = client.reveal(setting.committed["c001"])
    empty = server.Gathering(idle=setting.gathering.idle, train=setting.gathering.train)

    def receive(parts: list[bytes]) -> object:
        got = setting.wire.read_update(*parts)
        return server.admit(server.enlist(empty, got.pledge), got)

    return [setting.wire.update(update), update.values.tobytes()], receive


def _publish(method: ProofMethod) -> Case:
    setting = _stage(method)
    bodies = [setting.publish.aggregate.tobytes(), *(update.values.tobytes() for update in setting.publish.relayed)]
    receive = lambda parts: client.answer(setting.committed["c001"], setting.wire.read_publish(*parts))  # noqa: E731
    return [setting.wire.publish(setting.publish), *bodies], receive


def _tag() -> Case:
    setting = _stage(ProofMethod.SKETCH)
    _, tag = client.answer(setting.committed["c001"], setting.publish)
    return [setting.wire.tag(tag)], lambda parts: server.collect(setting.published, setting.wire.read_tag(parts[0]))


def _tags() -> Case:
    setting = _stage(ProofMethod.SKETCH)
    played = play_out(setting)
    tags = Tags(tags=tuple(played.tags))
    header = setting.publish.header
    receive = lambda parts: client.settle(played.tagged["c001"], setting.wire.read_tags(parts[0], header))  # noqa: E731
    return [setting.wire.tags(tags, header)], receive


def _receipt() -> Case:
    world = federation(3, size=9)
    start = genesis(world.session, world.idle.position.model)
    return [honest_round(world).encode()], lambda parts: follow(start, RoundReceipt.decode(parts[0]))


def _registry() -> Case:
    good = registry_of([identity("c000"), identity("c001"), identity("c002")])
    return [good.encode()], lambda parts: registry.verify_registry(registry.Registry.decode(parts[0]), good.digest)


def _hello() -> Case:
    session = _stage(ProofMethod.EXACT).federation.session
    said = exact.session_key(identity("c001"), session, secret("ephemeral"))

    def receive(parts):
        return exact.exact_client(identity("c000"), session, bytes(32), [exact.SessionKey.decode(parts[0])])

    return [said.encode()], receive


CASES = {
    "train": _train,
    "update": _update,
    "publish": lambda: _publish(ProofMethod.SKETCH),
    "publish in exact rounds": lambda: _publish(ProofMethod.EXACT),
    "tag": _tag,
    "tags": _tags,
    "receipt": _receipt,
    "registry": _registry,
    "hello": _hello,
}


def _flipped(parts: list[bytes], bit: int) -> list[bytes]:
    parts = list(parts)
    for index, part in enumerate(parts):
        if bit < 8 * len(part):
            altered = bytearray(part)
            altered[bit // 8] ^= 1 << bit % 8
            parts[index] = bytes(altered)
            return parts
        bit -= 8 * len(part)
    raise IndexError(bit)


@pytest.mark.parametrize("name", CASES)
def test_no_flipped_bit_is_believed(name):
    parts, receive = CASES[name]()
    receive(parts)
    bits = 8 * sum(map(len, parts))
    chosen = np.random.default_rng(len(name)).permutation(bits)[:600]
    assert all(verdict_of(partial(receive, _flipped(parts, bit))) is not Verdict.VERIFIED for bit in chosen)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_no_single_bit_of_any_field_is_believed(name):
    parts, receive = CASES[name]()
    for bit in range(8 * sum(map(len, parts))):
        assert verdict_of(partial(lambda bit: receive(_flipped(parts, bit)), bit)) is not Verdict.VERIFIED


@pytest.mark.parametrize("name", CASES)
def test_cut_padded_and_shuffled_messages_are_not_believed(name):
    parts, receive = CASES[name]()
    rng = np.random.default_rng(7)
    tried = 0
    for _ in range(150):
        altered = list(parts)
        which = int(rng.integers(len(parts)))
        cut = int(rng.integers(len(parts[which])))
        altered[which] = [
            parts[which][:cut],
            parts[which] + rng.bytes(1 + cut % 5),
            parts[which][:cut] + rng.bytes(3) + parts[which][cut + 3 :],
            parts[which][cut:] + parts[which][:cut],
        ][int(rng.integers(4))]
        if altered != parts:
            tried += 1
            assert verdict_of(partial(receive, altered)) is not Verdict.VERIFIED
    assert tried > 100


def test_an_accept_is_not_believed_with_a_flipped_bit():
    world = federation(3, size=9)
    setting = stage(world)
    accept = play_out(setting).accepts[0]
    data = setting.wire.accept(accept)
    for bit in range(8 * len(data)):
        try:
            got = setting.wire.read_accept(_flipped([data], bit)[0])
        except LrdpError:
            continue
        _, receipt = server.conclude(setting.published, [got])
        assert receipt.accepts == ()


def test_the_consortium_key_is_not_a_member():
    assert CONSORTIUM.name not in federation(3).session.registry.by_name
