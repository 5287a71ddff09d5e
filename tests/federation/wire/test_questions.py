"""Every message has one encoding, and any other bytes are refused by name, never by accident."""

import math
import struct
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import event, given
from hypothesis import strategies as some

from lrdp.codec import pack
from lrdp.errors import InvalidInput, NotVerified
from lrdp.federation import Order
from lrdp.federation.wire.disputing import Deposed, Dispute
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout, as_model, pack_values, unpack_values
from lrdp.federation.wire.masked import AbleToMask, MaskedAnnouncement, Pledged, Pledging, Reveal, Revealed
from lrdp.federation.wire.questions import (
    Accepted,
    Announcement,
    CatchUp,
    Closing,
    Contribute,
    Contributed,
    Count,
    Counted,
    Decline,
    HandIn,
    Hello,
    Here,
    OwnTag,
    TrainAhead,
    TrainedAhead,
    read_message,
    to_frame,
)
from lrdp.integrity import FixedPoint

EXAMPLES: list[Any] = [
    Hello(session=b"s" * 300, nonce=b"n" * 32, layout=b"[]", signature=b"z" * 64),
    Here(name="hospital-1", round=3, tip=b"h" * 32),
    Contribute(
        order=b"{}",
        signature=b"z" * 64,
        invitation=b"t",
        since=CatchUp(tags=b"", receipts=(b"r1", b"r2" * 99), heads=("a b c",), model=b"m" * 40),
    ),
    TrainAhead(order=b"{}", signature=b"z" * 64),
    HandIn(invitation=b"t", since=CatchUp(tags=b"ttt")),
    Count(order=b"{}", signature=b""),
    Contributed(trained_from=7, head="head", accept=b"a", update=b"u", values=b"v" * 9),
    Contributed(trained_from=0, head="", update=b"", values=None),
    TrainedAhead(trained_from=2, head="head"),
    Counted(share=b"s" * 8, head="head", accept=b"a"),
    Announcement(publish=b"p", aggregate=b"a" * 8),
    OwnTag(tag=b"t"),
    Closing(tags=b"t" * 200),
    Accepted(accept=b""),
    Decline(code="budget"),
    AbleToMask(key=b"k" * 70, accept=b"a"),
    Pledging(order=b"{}", signature=b"z" * 64, invitation=b"t", keys=(b"k1", b"k2"), since=CatchUp(tags=b"ttt")),
    Pledged(trained_from=7, head="head", accept=b"a", pledge=b"p"),
    Reveal(pledges=(b"p1", b"p2" * 40)),
    Revealed(update=b"u", values=b"v" * 12),
    MaskedAnnouncement(publish=b"p", aggregate=b"a" * 8, relayed=b"y" * 24),
    Dispute(tags=b"t" * 200),
    Deposed(word=b"w" * 90),
]


def shown(message: Any) -> dict[str, object]:
    values = {name: value for name, value in vars(message).items() if not name.startswith("_")}
    return {name: shown(value) if isinstance(value, CatchUp) else value for name, value in values.items()}


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_what_is_written_is_read(message: Any) -> None:
    read = read_message(to_frame(message))
    assert type(read) is type(message)
    assert shown(read) == shown(message)


@given(data=some.data(), message=some.sampled_from(EXAMPLES))
def test_damaged_bytes_are_refused_or_are_another_message_of_the_same_form(data: some.DataObject, message: Any) -> None:
    good = to_frame(message)
    prefix = bytearray(good.prefix)
    place = data.draw(some.integers(0, len(prefix) - 1))
    prefix[place] ^= data.draw(some.integers(1, 255))
    try:
        read = read_message(Frame(bytes(prefix), good.bodies))
    except (InvalidInput, NotVerified):
        event("refused")
    else:
        assert shown(read) != shown(message)


@given(prefix=some.binary(max_size=200), bodies=some.lists(some.binary(max_size=20), max_size=6))
def test_any_bytes_are_a_message_or_an_error_on_purpose(prefix: bytes, bodies: list[bytes]) -> None:
    with pytest.raises((InvalidInput, NotVerified)):
        read_message(Frame(prefix, tuple(bodies)))


def frame(word: bytes, parts: tuple[bytes, ...], bodies: tuple[bytes, ...] = ()) -> Frame:
    return Frame(pack(b"lrdp-federation/v2", word, *parts), bodies)


def test_control_parts_of_the_right_kind_are_a_message() -> None:
    assert read_message(frame(b"tagged", (b"t",))) == OwnTag(tag=b"t")


@pytest.mark.parametrize(
    "given_frame",
    [
        frame(b"pickle", (b"",)),
        frame(b"hello", (b"one", b"two")),
        frame(b"tagged", (b"t",), (b"body",)),
        frame(b"here", ("é".encode(), b"\0" * 8, b"h")),
        frame(b"done", (b"\0" * 7, b"", b"", b"")),
    ],
)
def test_a_wrong_kind_count_or_type_is_refused(given_frame: Frame) -> None:
    with pytest.raises((InvalidInput, NotVerified)):
        read_message(given_frame)


# ------------------------------------------------------------------------------------------------------ Flower's border
def message(content: RecordDict) -> Message:
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1
    return Message(content, 2, "train")


def test_a_frame_survives_flower() -> None:
    original = to_frame(EXAMPLES[2])
    assert from_message(message(to_records(original))) == original


def raw(data: bytes, **changes: Any) -> Array:
    fields: dict[str, Any] = {"dtype": "uint8", "shape": (len(data),), "stype": "lrdp/v1", "data": data}
    return Array(**{**fields, **changes})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        RecordDict({"lrdp": ConfigRecord({"prefix": b"x"})}),
        RecordDict({"other": ArrayRecord({"prefix": raw(b"x")})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": raw(b"x")}), "metrics": MetricRecord({"loss": 0.1})}),
        RecordDict({"lrdp": ArrayRecord()}),
        RecordDict({"lrdp": ArrayRecord({"body-0": raw(b"x")})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": raw(b"x"), "../../etc/passwd": raw(b"x")})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": raw(b"x", dtype="object")})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": raw(b"x", stype="numpy.ndarray")})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": raw(b"x", shape=(2,))})}),
        RecordDict({"lrdp": ArrayRecord({"prefix": Array(np.zeros(3))})}),
    ],
)
def test_any_other_record_is_refused_before_it_is_decoded(content: RecordDict) -> None:
    with pytest.raises(InvalidInput):
        from_message(message(content))


# ------------------------------------------------------------------------------------------------------------- vectors
@given(bits=some.integers(2, 32), size=some.integers(1, 7), data=some.data())
def test_whole_numbers_come_back_from_as_few_bytes_as_they_need(bits: int, size: int, data: some.DataObject) -> None:
    point = FixedPoint(size=size, update_bits=bits)
    whole = some.integers(-point.most, point.most)
    values = np.array(data.draw(some.lists(whole, min_size=size, max_size=size)), "<i4")
    body = pack_values(values, point)
    assert len(body) == size * -(-bits // 8)
    np.testing.assert_array_equal(unpack_values(body, point), values)
    np.testing.assert_array_equal(unpack_values(memoryview(body), point), values)


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(InvalidInput, match="15 bytes, got 14"):
        unpack_values(bytes(14), FixedPoint(size=5))
    with pytest.raises(InvalidInput, match="20 bytes, got 15"):
        as_model(bytes(15), 5)


def test_a_layout_is_known_by_names_order_and_shapes() -> None:
    base = Layout((("a", (2, 3)), ("b", (3,))))
    others = [
        Layout((("b", (3,)), ("a", (2, 3)))),
        Layout((("a", (3, 2)), ("b", (3,)))),
        Layout((("c", (2, 3)), ("b", (3,)))),
        Layout((("a", (2, 3)),)),
    ]
    assert all(base.described != other.described for other in others)
    vector = np.arange(9, dtype="<f4")
    np.testing.assert_array_equal(base.flat(base.arrays(vector)), vector)


SIZES = some.lists(some.integers(0, 2**64 - 1), max_size=4).map(tuple)
LAYOUTS = some.lists(some.tuples(some.text(max_size=9), SIZES), max_size=5).map(lambda shapes: Layout(tuple(shapes)))


@given(LAYOUTS)
def test_no_two_layouts_have_the_same_bytes(layout: Layout) -> None:
    """Each is read back from its own, so the bytes of two that differ do: a session's identifier hashes them."""
    assert Layout.decode(layout.described) == layout


def test_counters_and_indices_are_no_parameters() -> None:
    with pytest.raises(InvalidInput, match="num_batches_tracked is int64: only trained parameters"):
        Layout.of_arrays({"num_batches_tracked": np.zeros((), np.int64)})


# -------------------------------------------------------------------------------------------------------------- orders
@pytest.mark.parametrize(
    "order", [Order(), Order(steps=3), Order(noise_multiplier=1.5, learning_rate=0.1, metrics=("correct",))]
)
def test_an_order_is_read_as_it_was_written(order: Order) -> None:
    assert Order.decode(order.encode()) == order


EIGHT = bytes(8)
ONE = b"\x01" + bytes(7)


def test_the_bytes_of_an_order_and_of_a_layout_are_these() -> None:
    """By hand, from the description in docs/federation.md: they are signed and hashed, so they must never change."""
    order = Order(steps=3, noise_multiplier=1.5, metrics=("correct",))
    assert order.encode() == (
        b"\x08order/v1" b"\x08\x03\0\0\0\0\0\0\0" b"\0" b"\0"
        b"\x08\0\0\0\0\0\0\xf8\x3f" b"\0" b"\0" b"\x08\x07correct"
    )  # fmt: skip
    assert Order(steps=3, noise_multiplier=1.5, metrics=("correct",), normaliser=2.0).encode() == (
        b"\x08order/v2" b"\x08\x03\0\0\0\0\0\0\0" b"\0" b"\0"
        b"\x08\0\0\0\0\0\0\xf8\x3f" b"\0" b"\0" b"\x08\x07correct" b"\x08\0\0\0\0\0\0\0\x40"
    )  # fmt: skip
    shapes = Layout((("a", (2, 3)), ("é", ())))
    assert shapes.described == (
        b"\x09layout/v1" b"\x1b"
        b"\x15" b"\x01a" b"\x12" b"\x08\x02\0\0\0\0\0\0\0" b"\x08\x03\0\0\0\0\0\0\0"
        b"\x04" b"\x02\xc3\xa9" b"\0"
    )  # fmt: skip


def test_an_order_is_shown_by_what_it_asks_for() -> None:
    assert str(Order(steps=3, metrics=("correct",))) == "steps=3, metrics=('correct',)"
    assert str(Order()) == "nothing"


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{}", pack(b"order/v2", *[b""] * 7), pack(b"order/v1", *[b""] * 6), pack(b"order/v1", *[b""] * 8),
        pack(b"order/v1", *[b""] * 7) + b"\0",
        pack(b"order/v1", EIGHT, *[b""] * 6),
        pack(b"order/v1", b"\xff" * 8, *[b""] * 6),
        pack(b"order/v1", b"\x01", *[b""] * 6),
        *(pack(b"order/v1", *[b""] * 3, struct.pack("<d", scale), *[b""] * 3) for scale in (0, -1, math.inf, math.nan)),
        pack(b"order/v1", *[b""] * 3, b"1", *[b""] * 3),
        pack(b"order/v1", *[b""] * 6, pack(b"\xff")),
        pack(b"order/v1", *[b""] * 6, pack(*[b"a"] * 17)),
        pack(b"order/v1", *[b""] * 6, pack(b"a" * 65)),
        pack(b"order/v1", bytes(5000), *[b""] * 6),
        pack(b"order/v2", *[b""] * 8),  # without a normaliser there is one encoding, the first
        pack(b"order/v2", *[b""] * 7, struct.pack("<d", -1.0)),
        pack(b"order/v1", *[b""] * 7, struct.pack("<d", 2.0)),
    ],
)  # fmt: skip
def test_an_order_that_is_not_understood_is_refused_whole(data: bytes) -> None:
    assert Order.decode(pack(b"order/v1", ONE, *[b""] * 6)) == Order(steps=1), "control"
    with pytest.raises(InvalidInput):
        Order.decode(data)
