"""Whole numbers and the model step: the same bits whoever computes them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from integrity.parties import federation, play_out, stage
from lrdp.errors import InvalidInput
from lrdp.integrity import client, fixed_point
from lrdp.integrity.fixed_point import (
    LARGE,
    SMALL,
    FixedPoint,
    Room,
    Step,
    aggregate_hash,
    combine,
    inspect,
    model_hash,
    next_model,
    quantise,
)
from lrdp.integrity.session import Parameters
from lrdp.integrity.verdicts import Verdict
from oracles import integrity_reference as reference

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(arrays(np.float32, 17, elements=floats))
def test_quantising_rounds_to_even_and_clips(update):
    point = FixedPoint(size=17)
    made = quantise(update, point)
    exact = [round(float(x) * 2**20) for x in update]
    assert made.values.tolist() == [max(-point.most, min(point.most, value)) for value in exact]
    assert made.clipped == sum(abs(value) > point.most for value in exact)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_wherever_it_hides(value):
    update = np.zeros(70_001, np.float32)
    update[70_000] = value
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        quantise(update, FixedPoint(size=70_001))


def test_quantising_reuses_memory_and_refuses_other_shapes():
    point = FixedPoint(size=3)
    out = np.full(3, 9, SMALL)
    assert quantise(np.array([0.5, -1, 99]), point, out).values is out
    assert out.tolist() == [2**19, -(2**20), point.most]
    for wrong in (np.zeros(4), np.zeros((3, 1))):
        with pytest.raises(InvalidInput, match="vector of 3"):
            quantise(wrong, point)
    with pytest.raises(InvalidInput, match="contiguous"):
        quantise(np.zeros(3), point, np.zeros(3, np.int64))


@given(
    model=arrays(np.dtype("<f4"), 9, elements=floats),
    total=arrays(np.dtype("<i4"), 9, elements=st.integers(-(2**25), 2**25)),
    count=st.integers(3, 200),
)
def test_the_model_step_is_the_references_bit_by_bit(model, total, count):
    point = FixedPoint(size=9)
    params = {"fraction_bits": 20}
    expected = reference.f32(reference.next_model(model.tolist(), total.tolist(), count, params))
    assert next_model(model, total, count, point).tobytes() == expected
    step = inspect(model, total, count, point)
    assert step.next_model_hash == reference.model_hash(
        reference.next_model(model.tolist(), total.tolist(), count, params)
    )
    assert step.aggregate_hash == reference.aggregate_hash(total.tolist(), "<i4")
    assert step.in_range == (max(map(abs, total.tolist())) <= count * point.most)


def test_chunks_do_not_show():
    rng = np.random.default_rng(5)
    size = 2 * fixed_point.CHUNK + 77
    point = FixedPoint(size=size)
    model, update = rng.standard_normal(size).astype("<f4"), rng.standard_normal(size)
    values = quantise(update, point).values
    assert values.tolist() == np.clip(np.rint(update * 2**20), -point.most, point.most).astype(int).tolist()
    after = next_model(model, values, 3, point)
    assert after.tobytes() == (model.astype("f8") + values / float(3 << 20)).astype("<f4").tobytes()
    assert inspect(model, values, 3, point).next_model_hash == model_hash(after)


def test_minus_zero_and_denormals_step_deterministically():
    model = np.array([-0.0, 1e-45, -1e-45, 3.4e38, 0.0, 1.0], "<f4")
    total = np.array([0, 0, 1, 3, -1, 0], "<i4")
    expected = reference.f32(reference.next_model(model.tolist(), total.tolist(), 3, {"fraction_bits": 20}))
    assert next_model(model, total, 3, FixedPoint(size=6)).tobytes() == expected


@pytest.mark.parametrize("model", [np.array([-0.0, 1e-45, -1e-42, 0.0], "<f4"), np.full(4, 3e38, "<f4")])
def test_awkward_models_are_verified_all_the_same(model):
    world = federation(3, size=4)
    for name, ready in world.clients.items():
        world.clients[name] = client.start(ready.identity, ready.scheme, world.session, model)
    idle = world.idle
    world.idle = type(idle)(
        identity=idle.identity, scheme=idle.scheme, position=world.clients["c000"].position, model=model
    )
    assert play_out(stage(world)).worst is Verdict.VERIFIED


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_is_refused(value):
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        model_hash(np.array([0, value], "<f4"))


def test_minus_zero_and_zero_are_different_models():
    assert model_hash(np.array([-0.0], "<f4")) != model_hash(np.array([0.0], "<f4"))


def test_sums_are_int32_while_they_fit():
    point = FixedPoint(size=1)
    assert (point.sum_type(256), point.sum_type(257)) == (SMALL, LARGE)
    assert point.bound(256) == 2**31 - 256
    smallest = FixedPoint(size=1, update_bits=2)
    assert (smallest.sum_type(2**31 - 1), smallest.sum_type(2**31)) == (SMALL, LARGE)


def test_a_coordinate_at_the_end_of_the_range_is_not_counted_as_clipped():
    point = FixedPoint(size=4)
    ends = np.array([point.most, -point.most, point.most + 1, -point.most - 1]) / 2**20
    made = quantise(ends, point)
    assert (made.values.tolist(), made.clipped) == ([point.most, -point.most] * 2, 2)
    assert quantise(np.append(ends[:2], [0, 0]), point).clipped == 0


@pytest.mark.parametrize("at", [0, fixed_point.CHUNK - 1, fixed_point.CHUNK, fixed_point.CHUNK + 76])
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_range_holds_to_its_end_and_is_left_by_one_coordinate_wherever_it_is(at, sign):
    point, count = FixedPoint(size=fixed_point.CHUNK + 77), 3
    model, total = np.zeros(point.size, "<f4"), np.zeros(point.size, SMALL)
    total[at] = sign * point.bound(count)
    assert fixed_point.within(total, point.bound(count))
    assert inspect(model, total, count, point).in_range
    total[at] += sign
    assert not fixed_point.within(total, point.bound(count))
    assert not inspect(model, total, count, point).in_range


@pytest.mark.parametrize("wrong", [np.zeros((2, 2), SMALL), np.zeros(4, "<i8"), np.zeros(8, SMALL)[::2]])
def test_a_vector_is_one_row_of_its_type_in_one_piece(wrong):
    with pytest.raises(InvalidInput, match="expected one contiguous vector"):
        fixed_point.vector(wrong, SMALL)
    right = np.zeros(4, SMALL)
    assert fixed_point.vector(right, SMALL) is right


def test_the_next_model_is_written_where_it_is_told_even_over_the_old_one():
    point, total = FixedPoint(size=5), np.arange(5, dtype="<i4") << 20
    model = np.ones(5, "<f4")
    fresh, out = next_model(model, total, 2, point), np.empty(5, "<f4")
    assert next_model(model, total, 2, point, out) is out
    assert out.tobytes() == fresh.tobytes() == next_model(model, total, 2, point, model).tobytes() == model.tobytes()


@pytest.mark.parametrize("count", [1, 3, 7, 300])
def test_the_server_makes_in_one_pass_what_clients_compute(count):
    rng = np.random.default_rng(count)
    size = fixed_point.CHUNK + 77
    point = FixedPoint(size=size)
    model = rng.standard_normal(size).astype("<f4")
    updates = [rng.integers(-point.most, point.most, size, endpoint=True).astype(SMALL) for _ in range(count)]
    made = combine(updates, model, point)
    assert made.aggregate.tolist() == np.sum(updates, axis=0, dtype=np.int64).tolist()
    assert made.next_model.tobytes() == next_model(model, made.aggregate, count, point).tobytes()
    assert (made.aggregate_hash, made.next_model_hash) == (aggregate_hash(made.aggregate), model_hash(made.next_model))
    assert inspect(model, made.aggregate, count, point) == Step(True, made.aggregate_hash, made.next_model_hash)


class Hasty(Room):
    """The control: its memory is free as soon as it was handed out."""

    def vector(self, size, kind):
        lent: Any = super().vector(size, kind)
        self._free[lent.nbytes].append(lent.base)
        return lent


def test_a_sum_in_memory_that_was_used_before_is_the_same():
    point, model = FixedPoint(size=5), np.arange(5, dtype="<f4")
    updates = [np.full(5, value, SMALL) for value in (7, -3, 11)]
    room, fresh, places = Room(), combine(updates, model, point), set()
    for _ in range(4):
        made = combine(updates, model, point, room)
        assert made.aggregate.tolist() == fresh.aggregate.tolist() == [15] * 5
        assert made.next_model.tobytes() == fresh.next_model.tobytes()
        assert (made.aggregate_hash, made.next_model_hash) == (fresh.aggregate_hash, fresh.next_model_hash)
        places |= {made.aggregate.ctypes.data, made.next_model.ctypes.data}
        made.aggregate[:], made.next_model[:] = 99, 99  # what is left there must not matter
        del made
    assert len(places) == 2


class Watched(Room):
    """Remembers what it lent."""

    def __init__(self):
        super().__init__()
        self.lent: list[Any] = []

    def vector(self, size, kind):
        self.lent.append(super().vector(size, kind))
        return self.lent[-1]


def test_a_sum_and_its_model_lie_in_the_room_that_is_given():
    room = Watched()
    made = combine([np.ones(5, SMALL)] * 3, np.zeros(5, "<f4"), FixedPoint(size=5), room)
    assert [each is lent for each, lent in zip((made.aggregate, made.next_model), room.lent, strict=True)] == [True] * 2


HOLDS = {
    "the vector": lambda vector: vector,
    "a part": lambda vector: vector[2:],
    "a part of a part": lambda vector: vector[1:][1:],
    "its bytes": lambda vector: vector.view(np.uint8).data,
    "a part of its bytes": lambda vector: memoryview(vector)[2:],
    "a vector over a part of its bytes": lambda vector: np.frombuffer(vector[1:].data, "<u1"),
    "something that holds it": lambda vector: [{"deep": (vector,)}],
}


def _unharmed(room, hold):
    """Whether what is held is the same after the room has handed out more."""
    lent = room.vector(5, SMALL)
    lent[:] = np.arange(5)
    held = hold(lent)
    before = pickle.dumps(held if not isinstance(held, memoryview) else bytes(held))
    del lent
    more = [room.vector(5, kind) for kind in (SMALL, np.dtype("<f4"))]
    for one in more:
        one[:] = 99
    return pickle.dumps(held if not isinstance(held, memoryview) else bytes(held)) == before


@pytest.mark.parametrize("how", HOLDS)
def test_memory_that_somebody_refers_to_is_never_used_again(how):
    assert _unharmed(Room(), HOLDS[how])
    assert not _unharmed(Hasty(), HOLDS[how])


def test_memory_comes_back_when_the_last_view_of_it_is_gone():
    room = Room()
    first = room.vector(6, SMALL)
    place, view = first.ctypes.data, first[3:]
    del first
    assert room.vector(6, SMALL).ctypes.data != place
    del view
    assert place in [one.ctypes.data for one in (room.vector(3, LARGE), room.vector(3, LARGE))]


@pytest.mark.parametrize(("count", "kind"), [(256, SMALL), (257, LARGE)])
def test_the_largest_updates_of_256_and_257_sum_without_wrapping(count, kind):
    point = FixedPoint(size=2)
    updates = [np.array([point.most, -point.most], SMALL)] * count
    total = combine(updates, np.zeros(2, "<f4"), point).aggregate
    assert total.dtype == kind
    assert total.tolist() == [count * point.most, -count * point.most]
    assert fixed_point.sums_to(updates, total)
    assert not fixed_point.sums_to(updates, total + kind.type(1))


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": 2**40},
        {"size": 1, "update_bits": 1},
        {"size": 1, "update_bits": 33},
        {"size": 1, "fraction_bits": -1},
        {"size": 1, "fraction_bits": 33},
    ],
)
def test_formats_outside_their_limits_are_refused(options):
    with pytest.raises(InvalidInput):
        FixedPoint(**options)


@pytest.mark.parametrize("options", [{"min_roster": 2}, {"pending_window": -1}, {"pending_window": 2**32}])
def test_parameters_outside_their_limits_are_refused(options):
    with pytest.raises(InvalidInput):
        Parameters(point=FixedPoint(size=1), **options)


def test_a_session_may_allow_no_waiting_at_all():
    assert Parameters(point=FixedPoint(size=1), pending_window=0).pending_window == 0
    assert Parameters(point=FixedPoint(size=1), pending_window=2**32 - 1).min_roster == 3


@pytest.mark.parametrize("bits", [2, 32])
@pytest.mark.parametrize("fraction", [0, 32])
def test_the_first_and_the_last_number_of_bits_are_taken(bits: int, fraction: int) -> None:
    point = FixedPoint(size=7, update_bits=bits, fraction_bits=fraction)
    assert point.most == 2 ** (bits - 1) - 1
