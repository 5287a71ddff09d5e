"""A server that sends other bytes: at Flower's border, in place of any field, far too many, or at random.

Whatever comes, the answer is one of the listed frames; nothing is loaded that could run, and nothing is charged.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some

from lrdp.codec import pack
from lrdp.federation.client import participant as client
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import MOST_PREFIX_BYTES, Frame
from lrdp.federation.wire.questions import (
    LABEL,
    Answer,
    CatchUp,
    Closing,
    Contributed,
    Decline,
    Here,
    Question,
    read_message,
    to_frame,
)

from .hostile import VICTIM, Stage, answer_in, change_policy, pickled, shown, stage

FORMAT = "lrdp/v1"


# ---------------------------------------- Flower's border
def _array(data: bytes, dtype: str = "uint8", shape: tuple[int, ...] | None = None, stype: str = FORMAT) -> Array:
    return Array(dtype=dtype, shape=(len(data),) if shape is None else shape, stype=stype, data=data)


def _records(**arrays: Array) -> RecordDict:
    return RecordDict({"lrdp": ArrayRecord({key.replace("_", "-"): array for key, array in arrays.items()})})


def _npy(values: np.ndarray[Any, Any], allow_pickle: bool = False) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values, allow_pickle=allow_pickle)
    return stream.getvalue()


def _beside(record: Any) -> Callable[[bytes], RecordDict]:
    return lambda prefix: RecordDict({**to_records(Frame(prefix)), "more": record})


BORDER: Mapping[str, Callable[[bytes], RecordDict]] = {
    "float32": lambda prefix: _records(prefix=_array(prefix, dtype="float32")),
    "object": lambda prefix: _records(prefix=_array(prefix, dtype="object")),
    "numpy's format": lambda prefix: _records(prefix=_array(prefix, stype="numpy.ndarray")),
    "torch's format": lambda prefix: _records(prefix=_array(prefix, stype="torch.Tensor")),
    "an .npy file": lambda prefix: _records(prefix=_array(_npy(np.zeros(3)), stype="numpy.ndarray")),
    "a shape too long": lambda prefix: _records(prefix=_array(prefix, shape=(len(prefix) + 1,))),
    "a shape of 2^31": lambda prefix: _records(prefix=_array(prefix, shape=(2**31 - 1,))),
    "a negative shape": lambda prefix: _records(prefix=_array(prefix, shape=(-len(prefix),))),
    "two dimensions": lambda prefix: _records(prefix=_array(prefix, shape=(len(prefix), 1))),
    "no prefix": lambda prefix: _records(body_0=_array(prefix)),
    "a body left out": lambda prefix: _records(prefix=_array(prefix), body_1=_array(b"")),
    "bodies before the prefix": lambda prefix: _records(body_0=_array(b""), prefix=_array(prefix)),
    "too many bodies": lambda prefix: _records(prefix=_array(prefix), **{f"body_{n}": _array(b"") for n in range(5)}),
    "an array more": lambda prefix: _records(prefix=_array(prefix), weights=_array(b"")),
    "a path for a name": lambda prefix: RecordDict({"lrdp": ArrayRecord({"../../prefix": _array(prefix)})}),
    "no arrays": lambda prefix: RecordDict({"lrdp": ArrayRecord({})}),
    "another record": lambda prefix: RecordDict({"arrays": ArrayRecord({"prefix": _array(prefix)})}),
    "no record": lambda prefix: RecordDict({}),
    "a config in its place": lambda prefix: RecordDict({"lrdp": ConfigRecord({"prefix": prefix})}),
    "metrics in its place": lambda prefix: RecordDict({"lrdp": MetricRecord({"prefix": 1.0})}),
    "a config beside it": _beside(ConfigRecord({"min-noise-multiplier": 0.0, "policy": "/tmp/policy.toml"})),
    "metrics beside it": _beside(MetricRecord({"num-examples": 1})),
    "arrays beside it": _beside(ArrayRecord({"weight": _array(b"")})),
    "an empty prefix": lambda _: _records(prefix=_array(b"")),
}


@pytest.mark.parametrize("make", BORDER.values(), ids=BORDER.keys())
def test_a_message_of_another_form_is_declined_though_its_content_is_right(
    settled: Stage, make: Callable[[bytes], RecordDict]
) -> None:
    prefix = to_frame(settled.invitation()).prefix
    before = settled.account()
    assert answer_in(settled.post(make(prefix))) == Decline(code="invalid")
    assert settled.account() == before


@pytest.mark.parametrize("kind", ["evaluate", "query.verify", "train.secret", "evaluate.accuracy", "query"])
def test_a_message_of_any_type_is_answered_with_a_frame(settled: Stage, kind: str) -> None:
    """Flower itself would answer an unknown type with an exception's text."""
    answer = answer_in(settled.post(to_records(Frame(pack(LABEL, b"measure", b"accuracy"))), kind=kind))
    assert answer == Decline(code="invalid")
    assert isinstance(answer_in(settled.post(to_records(to_frame(settled.coordinator.hello)), kind=kind)), Here)


def test_an_error_in_place_of_a_message_is_declined(settled: Stage) -> None:
    asked = Message(RecordDict({}), 1, "train")
    asked.metadata.__dict__["_message_id"] = "message-x"
    broken = Message(Error(code=0, reason="../../etc/passwd"), reply_to=asked)
    node = settled.world.node(VICTIM)
    assert answer_in(node.app(broken, settled.world.grid.context_of(1))) == Decline(code="invalid")


# ---------------------------------------- pickles
def _with_payload(question: Question, payload: bytes) -> list[Frame]:
    """The question with the payload in place of each of its fields in turn, and of its bodies."""
    return [to_frame(attack) for attack in _spoilt(question, payload)]


def _spoilt(value: Any, payload: bytes) -> Iterator[Any]:
    for field in fields(value):
        inner = getattr(value, field.name)
        assert inner is not None or field.name in ("model", "aggregate")
        puts = {"tuple[bytes, ...]": (payload,), "tuple[str, ...]": (payload.decode("ascii"),)}
        spoilt = _spoilt(inner, payload) if isinstance(inner, CatchUp) else [puts.get(str(field.type), payload)]
        yield from (replace(value, **{field.name: put}) for put in spoilt)


def _loaded_objects(canary: Path) -> list[RecordDict]:
    """Arrays that Flower or numpy would load with pickle, if they were asked to."""
    payload = pickled(canary)
    objects = np.array([pickle.loads(b"N.")], dtype=object)
    data = _npy(objects, allow_pickle=True).replace(pickle.dumps(objects, protocol=3)[:8], payload[:8])
    return [
        _records(prefix=_array(payload, stype="numpy.ndarray", dtype="object")),
        _records(prefix=_array(data, stype="numpy.ndarray", dtype="object", shape=(1,))),
        _records(prefix=_array(payload)),
        RecordDict({"lrdp": ConfigRecord({"prefix": payload})}),
    ]


def test_a_pickle_in_any_field_is_never_loaded(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    made = stage(tmp_path / "stage")
    made.honest_round()
    made.gather()
    announcement, _ = made.coordinator.announce()
    hello, before = made.coordinator.hello, made.account()
    closing = Closing(tags=made.coordinator.history[-1].tags)
    payload = pickled(canary)
    for question in (hello, made.invitation(), announcement, closing):
        for attack in _with_payload(question, payload):
            answer = made.send(attack)
            assert isinstance(answer, Decline | Contributed)  # of a head that is no head nothing follows
    for content in _loaded_objects(canary):
        answer = answer_in(made.post(content))  # which of the two depends on the bytes of the path in the pickle
        assert answer in (Decline(code="invalid"), Decline(code="malformed"))
    assert made.account() == before
    assert not canary.exists()
    made.fresh().honest_round()
    pickle.loads(payload)  # control: whoever loads it makes the file
    assert canary.exists()


# ---------------------------------------- far too many
def test_a_message_larger_than_the_cap_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = stage(tmp_path)
    made.greet()
    change_policy(made.world, VICTIM, max_bytes="40")
    most = 2 * 40  # a sum has twice the bytes of a model
    work = made.invitation()
    read: list[Frame] = []
    monkeypatch.setattr(client, "read_message", lambda given: read.append(given) or read_message(given))
    assert _answered(made, to_frame(shown(work, model=bytes(most + 1)))) == Decline(code="invalid")
    assert _answered(made, Frame(bytes(MOST_PREFIX_BYTES + 1))) == Decline(code="invalid")
    assert not read, "not decoded"
    assert _answered(made, to_frame(shown(work, model=bytes(most)))) == Decline(code="invalid")
    assert read, "control: a byte less is decoded, and refused for its length"
    assert made.account() == (0, 0, 0.0)
    assert isinstance(made.ask(work), Contributed)


# ---------------------------------------- at random
@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> tuple[Stage, list[Frame]]:
    """A client in the middle of a round, and what it would accept now."""
    made = stage(tmp_path_factory.mktemp("target"), max_bytes="4096")
    made.honest_round()
    made.gather()
    announcement, _ = made.coordinator.announce()
    tags = Closing(tags=made.coordinator.history[-1].tags)
    questions: list[Question] = [made.coordinator.hello, made.invitation(), announcement, tags]
    return made, list(map(to_frame, questions))


def _answered(made: Stage, asked: Frame) -> Answer:
    """Through the app, without Flower's serialisation; an exception of it would fail the test."""
    node = made.world.node(VICTIM)
    message = Message(to_records(asked), 1, "train")
    message.metadata.__dict__["_message_id"] = "message-x"
    reply = node.app(message, made.world.grid.context_of(1))
    assert sum(from_message(reply).sizes) < 4096
    return answer_in(reply)


def _within_policy(made: Stage) -> bool:
    books = made.books()
    policy = made.world.consortium.client(VICTIM).policy()
    rule: Any = policy.mechanism
    per_round = [books.charges.charges_in(made.session.digest.hex(), number) for number in range(3)]
    kept = all(
        mechanism.noise_multiplier >= rule.costliest.noise_multiplier
        and mechanism.batch_size <= rule.costliest.batch_size
        for mechanism in cast("dict[Any, int]", books.charges.history)
    )
    return kept and max(per_round) <= 2 and made.world.spent(VICTIM) <= policy.budget.total.epsilon


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(prefix=b"", bodies=[])
@example(prefix=b"\x80\x00\x00\x00", bodies=[b""] * 4)
@given(prefix=some.binary(max_size=300), bodies=some.lists(some.binary(max_size=60), max_size=4))
def test_random_bytes_are_declined_and_free(
    target: tuple[Stage, list[Frame]], prefix: bytes, bodies: list[bytes]
) -> None:
    made, _ = target
    before = made.account()
    assert isinstance(_answered(made, Frame(prefix, tuple(bodies))), Decline)
    assert made.account() == before


def _mutated(data: bytes, place: int, change: int, new: bytes) -> bytes:
    """A bit turned, a piece cut out, put in, or written over."""
    place %= max(len(data), 1)
    if change == 0 and data:
        return data[:place] + bytes([data[place] ^ (new or b"\1")[0]]) + data[place + 1 :]
    if change == 1:
        return data[:place] + data[place + len(new) :]
    return data[:place] + new + data[place + (len(new) if change == 2 else 0) :]


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    which=some.integers(0, 3),
    part=some.integers(0, 1),
    places=some.lists(
        some.tuples(some.integers(0, 4000), some.integers(0, 3), some.binary(max_size=9)), min_size=1, max_size=3
    ),
)
def test_damaged_messages_of_the_round_are_answered_by_a_frame_and_never_charged_off_policy(
    target: tuple[Stage, list[Frame]], which: int, part: int, places: list[tuple[int, int, bytes]]
) -> None:
    made, frames = target
    parts = [bytes(piece) for piece in (frames[which].prefix, *frames[which].bodies)]
    part %= len(parts)
    for place, change, new in places:
        parts[part] = _mutated(parts[part], place, change, new)
    before = made.account()
    answer = _answered(made, Frame(parts[0], tuple(parts[1:])))
    if isinstance(answer, Decline):
        assert made.account() == before
    # A damaged order may be another order that the policy allows: then it is paid for like any other.
    assert _within_policy(made)


def test_after_all_that_the_client_takes_part_in_a_round(target: tuple[Stage, list[Frame]]) -> None:
    made, _ = target
    made.fresh().honest_round()
