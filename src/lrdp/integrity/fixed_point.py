"""Updates as whole numbers, their sum, and the model step: bit-identical on every machine.

Floating-point sums depend on their order, so nobody could recompute the server's. Rounding happens after the noise: it
is post-processing and leaves ε as it is. Everything streams in chunks that stay in the processor's cache.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lrdp.codec import NUMBER, Format, packed
from lrdp.errors import InvalidInput
from lrdp.integrity.encoding import Encoded, hasher

if TYPE_CHECKING:
    from hashlib import _Hash

CHUNK = 1 << 16
SMALL = np.dtype("<i4")
"""One client's update in whole numbers, as it is hashed and sent."""
LARGE = np.dtype("<i8")
MODEL = np.dtype("<f4")
"""A model's coordinates, as they are hashed and sent."""
MOST_MEMBERS = 1 << 16

Whole = NDArray[Any]
"""Whole numbers, small or large: an update, a masked one, or a sum of them."""
Model = NDArray[np.float32]
"""All parameters of a model, in one row."""


@dataclass(frozen=True, kw_only=True)
class FixedPoint(Encoded):
    """``size`` coordinates of ``update_bits`` bits each, of which ``fraction_bits`` come after the point."""

    size: int
    fraction_bits: int = 20
    update_bits: int = 24

    FORMAT: ClassVar[Format[bytes]] = packed(b"fixed-point/v1", size=NUMBER, fraction_bits=NUMBER, update_bits=NUMBER)

    def __post_init__(self) -> None:
        if not 1 <= self.size < 1 << 40:
            raise InvalidInput(f"size must lie in [1, 2^40), got {self.size}: it is the model's number of coordinates.")
        if not 2 <= self.update_bits <= 32:
            raise InvalidInput(f"update_bits must lie in [2, 32], got {self.update_bits}: an update is an int32.")
        if not 0 <= self.fraction_bits <= 32:
            raise InvalidInput(f"fraction_bits must lie in [0, 32], got {self.fraction_bits}: the step is 2^-bits.")

    @property
    def most(self) -> int:
        """u_max, the largest magnitude of a coordinate of one update."""
        return (1 << (self.update_bits - 1)) - 1

    def bound(self, count: int) -> int:
        """The largest magnitude of a coordinate of the sum of ``count`` updates."""
        return count * self.most

    def sum_type(self, count: int) -> np.dtype[Any]:
        """The only type that the sum of ``count`` updates may have: four bytes while they suffice."""
        return SMALL if self.bound(count) < 1 << 31 else LARGE


@dataclass(frozen=True)
class Quantised:
    """An update as whole numbers, and how many coordinates were clipped to the range."""

    values: Whole
    clipped: int


def chunks(size: int) -> Iterator[slice]:
    """Slices that cover ``size`` coordinates in order."""
    return (slice(start, min(start + CHUNK, size)) for start in range(0, size, CHUNK))


def vector(values: Whole, kind: np.dtype[Any]) -> Whole:
    """``values`` if they are one contiguous vector of exactly this type."""
    if values.ndim != 1 or values.dtype != kind or not values.flags.c_contiguous:
        raise InvalidInput(f"expected one contiguous vector of {kind}, got {values.dtype} of shape {values.shape}.")
    return values


def quantise(update: NDArray[np.floating[Any]], point: FixedPoint, out: Whole | None = None) -> Quantised:
    """clip(rint(update·2^f), ±u_max), in ``out`` if given, since fresh memory costs more than the arithmetic.

    Refuses what is not finite.
    """
    if update.shape != (point.size,):
        raise InvalidInput(f"the update must be a vector of {point.size} coordinates, got shape {update.shape}.")
    values = np.empty(point.size, SMALL) if out is None else vector(out, SMALL)
    scratch = np.empty(min(CHUNK, point.size))
    clipped = 0
    for part in chunks(point.size):
        scaled = scratch[: part.stop - part.start]
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(update[part], float(1 << point.fraction_bits), out=scaled, dtype=np.float64)
        np.rint(scaled, out=scaled)
        clipped += (outside := _outside(scaled, point.most))
        values[part] = np.clip(scaled, -point.most, point.most, out=scaled) if outside else scaled
    return Quantised(values, clipped)


def _outside(scaled: NDArray[np.float64], most: int) -> int:
    low, high = float(scaled.min()), float(scaled.max())
    if not (-np.inf < low and high < np.inf):  # a NaN fails both
        raise InvalidInput("the update holds NaN or infinity, which no sum can take: nothing was sent.")
    return int(np.count_nonzero(np.abs(scaled) > most)) if low < -most or high > most else 0


def within(values: Whole, bound: int) -> bool:
    """Whether every coordinate has a magnitude of at most ``bound``."""
    return all(-bound <= int(values[part].min()) and int(values[part].max()) <= bound for part in chunks(values.size))


def sums_to(updates: Sequence[Whole], total: Whole) -> bool:
    """Whether Σ updates = total modulo 2^w."""
    scratch = np.empty(min(CHUNK, total.size), total.dtype)
    for part in chunks(total.size):
        left = scratch[: part.stop - part.start]
        left[:] = total[part]
        for values in updates:
            left -= values[part]
        if left.any():
            return False
    return True


@dataclass(frozen=True)
class Step:
    """What a client learns in one pass over the aggregate, without writing the next model down."""

    in_range: bool
    aggregate_hash: bytes
    next_model_hash: bytes


def inspect(model: Model, aggregate: Whole, count: int, point: FixedPoint) -> Step:
    """Range, hash of the aggregate and hash of the model that follows."""
    bound, in_range = point.bound(count), True
    of_aggregate, of_model = _aggregate_hasher(aggregate), _model_hasher(model)
    scratch, following = np.empty(min(CHUNK, point.size)), np.empty(min(CHUNK, point.size), MODEL)
    for part in chunks(point.size):
        summed, count_here = aggregate[part], part.stop - part.start
        in_range = in_range and -bound <= int(summed.min()) and int(summed.max()) <= bound
        of_aggregate.update(summed.data)
        _step(model[part], summed, float(count << point.fraction_bits), scratch[:count_here], following[:count_here])
        of_model.update(following[:count_here].data)
    return Step(in_range, of_aggregate.digest(), of_model.digest())


@dataclass(frozen=True, eq=False)
class Combined:
    """What the server makes of updates in one pass: their sum, the next model, and the hashes of both."""

    aggregate: Whole
    next_model: Model
    aggregate_hash: bytes
    next_model_hash: bytes


class Room:
    """Memory that is used again once nobody refers to what lies in it: fresh memory can cost more than all arithmetic.

    Guarantees: a vector stays as it is for as long as anybody holds it or a view of it.

    >>> room = Room()
    >>> room.vector(1000, SMALL).shape
    (1000,)
    """

    def __init__(self) -> None:
        self._free: defaultdict[int, list[memoryview]] = defaultdict(list)

    def vector(self, size: int, kind: np.dtype[Any]) -> Whole:
        """A vector of ``size`` coordinates, with anything in it."""
        free = self._free[size * kind.itemsize]
        memory = free.pop() if free else np.empty(size * kind.itemsize, np.uint8).data
        # A view refers to the array at the bottom. That is this vector and none below it, since a memoryview is no
        # array: so the vector is gone when its last view is, and not before.
        lent = np.frombuffer(memory, kind)
        weakref.finalize(lent, free.append, memory).atexit = False
        return lent


def combine(updates: Sequence[Whole], model: Model, point: FixedPoint, room: Room | None = None) -> Combined:
    """A = Σ updates modulo 2^w, exact wherever each is in range, and θ' from it, chunk by chunk in the cache.

    >>> point, model = FixedPoint(size=2), np.zeros(2, MODEL)
    >>> updates = [quantise(np.array([0.5, -1.0]), point).values, quantise(np.array([1.5, 0.0]), point).values]
    >>> combine(updates, model, point).next_model.tolist()
    [1.0, -0.5]
    """
    first, *others = updates
    room = room or Room()
    total, following = room.vector(point.size, point.sum_type(len(updates))), room.vector(point.size, MODEL)
    of_aggregate, of_model = _aggregate_hasher(total), _model_hasher(model)
    scratch = np.empty(min(CHUNK, point.size))
    for part in chunks(point.size):
        summed, moved = total[part], following[part]
        summed[:] = first[part]
        for values in others:
            np.add(summed, values[part], out=summed, casting="unsafe")
        of_aggregate.update(summed.data)
        _step(model[part], summed, float(len(updates) << point.fraction_bits), scratch[: summed.size], moved)
        of_model.update(moved.data)
    return Combined(total, following, of_aggregate.digest(), of_model.digest())


def _aggregate_hasher(aggregate: Whole) -> _Hash:
    return hasher(b"aggregate/v1", aggregate.dtype.str.encode(), NUMBER.write(aggregate.size))


def _model_hasher(model: Model) -> _Hash:
    return hasher(b"model/v1", MODEL.str.encode(), NUMBER.write(model.size))


def aggregate_hash(aggregate: Whole) -> bytes:
    """H(A), with its type and length."""
    hashed = _aggregate_hasher(aggregate)
    for part in chunks(aggregate.size):
        hashed.update(aggregate[part].data)
    return hashed.digest()


def next_model(model: Model, aggregate: Whole, count: int, point: FixedPoint, out: Model | None = None) -> Model:
    """θ' = f32(f64(θ) + f64(A)/(m·2^f)), element by element; ``out`` may be the model itself."""
    following = np.empty(point.size, MODEL) if out is None else vector(out, MODEL)
    scratch = np.empty(min(CHUNK, point.size))
    for part in chunks(point.size):
        here = scratch[: part.stop - part.start]
        _step(model[part], aggregate[part], float(count << point.fraction_bits), here, following[part])
    return following


def _step(model: Model, summed: Whole, divisor: float, scratch: NDArray[np.float64], out: Model) -> None:
    np.divide(summed, divisor, out=scratch)
    np.add(scratch, model, out=scratch)
    out[:] = scratch


def model_hash(model: Model) -> bytes:
    """H(θ); refuses a model that is not finite, for its updates would not be either."""
    vector(model, MODEL)
    hashed = _model_hasher(model)
    for part in chunks(model.size):
        if not np.isfinite(model[part]).all():
            raise InvalidInput("the model holds NaN or infinity: training from it would give nothing but such updates.")
        hashed.update(model[part].data)
    return hashed.digest()
