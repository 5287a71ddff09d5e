"""Which records a step reads: drawn again in every step, from private randomness, as the accountant assumes.

A sampler reads the mechanism the accountant reads. It takes the number of records, never a data loader: a loader that
shuffles is another mechanism with another ε.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lrdp.accounting import FixedSizeGaussian, FullBatchGaussian, Mechanism, SizedGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.keystream import Keystream

EMPTY = -1
"""The number of no record: its slot stays empty."""


@dataclass(frozen=True)
class Draw:
    """One step's records by slot; a slot without a record is EMPTY. Every step has the same number of slots.

    Guarantees: which slot a record has is uniformly random. So draws from two neighbouring data sets can be paired such
    that all slots but one hold the same records, and rounding, which depends on who stands next to whom, differs only
    there.
    """

    slots: NDArray[np.int64]


class Sampler(Protocol):
    """Draws one step's records."""

    def draw(self, stream: Keystream) -> Draw:
        """An independent draw."""


class FixedSizeSampler:
    """A uniform subset of exactly ``batch_size`` records.

    Guarantees: each subset is equally likely and independent of every other step's.
    """

    def __init__(self, mechanism: FixedSizeGaussian, records: int) -> None:
        if not records >= mechanism.dataset_size:
            raise InvalidInput(
                f"dataset must hold at least dataset_size={mechanism.dataset_size} records, got {records}: with fewer, "
                f"each is drawn more often than was accounted; account with a smaller dataset_size."
            )
        self._mechanism, self._records = mechanism, records

    def draw(self, stream: Keystream) -> Draw:
        """A new subset."""
        size = self._mechanism.batch_size
        return Draw(placed(uniform_subset(self._records, size, stream), size, stream))


class TruncatedPoissonSampler:
    """Each record on its own with probability ``batch_size / dataset_size``, cut to a uniform subset of ``cap``.

    Guarantees: the probability is the public one, whatever the true number of records.
    """

    def __init__(self, mechanism: TruncatedPoissonGaussian, records: int) -> None:
        if not 1 <= records <= mechanism.dataset_size:
            raise InvalidInput(
                f"dataset must hold 1 to dataset_size={mechanism.dataset_size} records, got {records}: with more, the "
                f"cap would cut more often than was accounted; account with a larger dataset_size."
            )
        self._mechanism, self._records = mechanism, records

    def draw(self, stream: Keystream) -> Draw:
        """A new subset of at most ``cap`` records.

        It takes one key from ``stream`` whatever the cap: with the same stream, two caps differ where one of them cuts.
        """
        own, cap = Keystream(stream.key()), self._mechanism.cap
        chosen = bernoulli_subset(self._records, self._mechanism.probability, own)
        if len(chosen) > cap:
            chosen = chosen[uniform_subset(len(chosen), cap, own)]
        return Draw(placed(chosen, cap, own))


class FullBatchSampler:
    """Every record, each in a slot of its own among ``dataset_size``.

    Guarantees: placing the records of a data set and emptying one slot is placing those of the neighbour without that
    record, so one slot differs and nobody else moves.
    """

    def __init__(self, mechanism: FullBatchGaussian, records: int) -> None:
        if not 1 <= records <= mechanism.dataset_size:
            raise InvalidInput(
                f"dataset must hold 1 to dataset_size={mechanism.dataset_size} records, got {records}: with more, some "
                f"would have no row; account with a larger dataset_size."
            )
        self._slots, self._records = mechanism.dataset_size, records

    def draw(self, stream: Keystream) -> Draw:
        """All of them, in a new order."""
        return Draw(placed(np.arange(self._records, dtype=np.int64), self._slots, stream))


_SAMPLERS: dict[type[Mechanism], Callable[[Any, int], Sampler]] = {
    FixedSizeGaussian: FixedSizeSampler,
    TruncatedPoissonGaussian: TruncatedPoissonSampler,
    FullBatchGaussian: FullBatchSampler,
}


def samplers() -> str:
    """What can be trained with, by name."""
    return " or ".join(sorted(known.name for known in _SAMPLERS))


def sampler_for(mechanism: Mechanism, records: int) -> Sampler:
    """The sampler of ``mechanism`` over this many records, or a refusal where they do not fit."""
    found = _SAMPLERS.get(type(mechanism))
    if found is None:
        raise Unsupported(f"{mechanism.name} sampling does not train in constant memory here: use {samplers()}.")
    return found(mechanism, records)


def check_room(mechanism: Mechanism, records: int, per_unit: int = 1) -> None:
    """Refuse a data set which, with ``per_unit`` records of one unit more or fewer, could not be trained on.

    Guarantees: every neighbour of a data set that passes is within the mechanism's domain, so that its bound holds for
    both and no refusal can tell them apart. A domain has no gaps: the largest unit stands for all smaller ones. It is
    for whoever sets a client up, before a server can see anything, and never for a reply.

    >>> step = FixedSizeGaussian(dataset_size=40, batch_size=8, noise_multiplier=1.0)
    >>> check_room(step, 41)
    >>> check_room(step, 40)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    lrdp.errors.InvalidInput: the data set has 40 records, and with 39 it would be refused, ...
    """
    unit = "one record" if per_unit == 1 else f"one unit of {per_unit} records"
    sampler_for(mechanism, records)
    for neighbour in (records - per_unit, records + per_unit):
        try:
            sampler_for(mechanism, neighbour)
        except InvalidInput as problem:
            raise InvalidInput(
                f"the data set has {records} records, and with {neighbour} it would be refused, which would reveal "
                f"{unit}: {problem}"
            ) from None


def rows_of(mechanism: SizedGaussian) -> int:
    """Rows in memory in every step; refused where that varies."""
    if mechanism.rows is None:
        raise Unsupported(f"{mechanism.name} sampling has no bound on a step's rows: use {samplers()}.")
    return mechanism.rows


def placed(records: NDArray[np.int64], slots: int, stream: Keystream) -> NDArray[np.int64]:
    """The records in slots of their own, every way to place them equally likely.

    >>> sorted(placed(np.array([3, 7]), 4, Keystream.from_system()).tolist())
    [-1, -1, 3, 7]
    """
    found = np.full(slots, EMPTY, dtype=np.int64)
    found[: len(records)] = records
    keys = stream.words(slots)
    while len(np.unique(keys)) < slots:  # equal keys would favour the order at hand
        keys = stream.words(slots)
    return found[np.argsort(keys)]


def uniform_subset(population: int, size: int, stream: Keystream) -> NDArray[np.int64]:
    """``size`` distinct numbers below ``population``, every subset equally likely, in O(size).

    >>> len(set(uniform_subset(1000, 12, Keystream.from_system()).tolist()))
    12
    """
    if 2 * size > population:
        left_out = np.ones(population, dtype=np.bool_)
        left_out[uniform_subset(population, population - size, stream)] = False
        return np.flatnonzero(left_out).astype(np.int64)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < size:
        more = stream.below(population, size - len(drawn) + 8)
        drawn = _first_occurrences(np.concatenate([drawn, more]))
    return drawn[:size]


def bernoulli_subset(population: int, probability: float, stream: Keystream) -> NDArray[np.int64]:
    """Each number below ``population`` on its own with ``probability``, by jumping from one success to the next."""
    expected = population * probability
    jumps = int(expected + 6 * expected**0.5) + 16
    last = np.empty(0, dtype=np.int64)
    reached = -1
    while reached < population:
        gaps = np.floor(np.log(stream.uniforms(jumps)) / np.log1p(-probability)) + 1.0
        found = reached + np.cumsum(np.minimum(gaps, population + 1.0)).astype(np.int64)
        last, reached = np.concatenate([last, found]), int(found[-1])
    return last[last < population]


def _first_occurrences(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    _, places = np.unique(numbers, return_index=True)
    return numbers[np.sort(places)]
