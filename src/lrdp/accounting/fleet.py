"""A fleet: the books of many clients at once.

Mechanisms are interned: each distinct one has a number and one row of Rényi divergences. A client is the list of
(mechanism number, steps) it has run, so the divergences of all clients are one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lrdp import limits
from lrdp.accounting.accountants import History, checked_history
from lrdp.accounting.conversion import ORDERS, epsilon_at
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.pairs import log_excess, renyi_divergence
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import InvalidInput, Unsupported

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FLEET_CHUNK = 1 << 14
"""Clients whose divergences are held at once: about 8 MB."""
_WIDE = (np.dtype(np.int32), np.dtype(np.int64))


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Client c ran ``steps[i]`` steps of ``mechanisms[numbers[i]]`` for i from ``starts[c]`` to ``starts[c+1]``.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.427)
    >>> fleet = Fleet.from_histories([{step: 100}, {}, {step: 10_000}], Adjacency.ADD_REMOVE)
    >>> fleet.epsilons(delta=1e-5).round(2).tolist()
    [0.52, 0.0, 6.0]
    """

    adjacency: Adjacency
    mechanisms: tuple[Mechanism, ...]
    starts: NDArray[np.int64]
    numbers: NDArray[np.int32]
    steps: NDArray[np.int64]

    def __post_init__(self) -> None:
        limits.made_by("adjacency", self.adjacency, Adjacency)
        for mechanism in limits.made_by("mechanisms", self.mechanisms, tuple):
            limits.derived_from("mechanism", mechanism, Mechanism)
        for name in ("starts", "numbers", "steps"):
            column = np.asarray(limits.made_by(name, getattr(self, name), np.ndarray))
            if column.ndim != 1 or column.dtype.kind not in "iu":
                raise InvalidInput(f"{name} must hold whole numbers: the cost of a fraction of a step is not known.")
            # Narrow and unsigned ones wrap around where they are added or subtracted.
            limits.keep(self, **{name: column if column.dtype in _WIDE else column.astype(np.int64)})
        if len(self.starts) < 1 or self.starts[0] != 0 or self.starts[-1] != len(self.numbers):
            raise InvalidInput("starts must run from 0 to the number of entries: some entry would belong to no client.")
        if (np.diff(self.starts) < 0).any() or len(self.numbers) != len(self.steps):
            raise InvalidInput("starts must not decrease, and numbers and steps must pair: books would be mixed up.")
        if len(self.numbers) and not 0 <= self.numbers.min() <= self.numbers.max() < len(self.mechanisms):
            raise InvalidInput(f"numbers must name one of {len(self.mechanisms)} mechanisms: some step has no cost.")
        if (self.steps < 1).any():
            raise InvalidInput(f"steps must be at least 1, got {self.steps.min()}: books hold steps that were taken.")

    @classmethod
    def from_histories(cls, histories: Iterable[History], adjacency: Adjacency) -> Fleet:
        """Intern the mechanisms of many histories."""
        number_of: dict[Mechanism, int] = {}
        starts, numbers, steps = [0], [], []
        for history in histories:
            for mechanism, count in checked_history(history).items():
                numbers.append(number_of.setdefault(mechanism, len(number_of)))
                steps.append(count)
            starts.append(len(numbers))
        return cls(
            adjacency=adjacency,
            mechanisms=tuple(number_of),
            starts=np.array(starts, dtype=np.int64),
            numbers=np.array(numbers, dtype=np.int32),
            steps=np.array(steps, dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.starts) - 1

    def curves(self, orders: FloatArray = ORDERS) -> FloatArray:
        """One row of divergences per mechanism, one column per order; infinite where there is no Rényi bound."""
        try:
            return self._curves(self.mechanisms, orders)
        except Unsupported:  # one client's step must not hide the figures of all others
            return np.vstack([self._curve(mechanism, orders) for mechanism in self.mechanisms])

    def divergences(self, clients: NDArray[np.int64] | slice, curves: FloatArray) -> FloatArray:
        """What some clients ran, by :meth:`curves`: a row each, a column per order."""
        return np.asarray(self._steps_by_mechanism[clients] @ curves)

    def epsilons(self, delta: float) -> FloatArray:
        """ε of every client at ``delta``, each at its own best order; 0 for a client that ran nothing."""
        delta = limits.open_unit("delta", delta, "it bounds the probability that the guarantee fails")
        result = np.zeros(len(self))
        if not self.mechanisms:
            return result
        curves = self.curves()
        for first in range(0, len(self), FLEET_CHUNK):
            clients = slice(first, first + FLEET_CHUNK)
            result[clients] = epsilon_at(self.divergences(clients, curves), ORDERS, delta).min(axis=1)
        result[self.idle] = 0.0
        return result

    @property
    def idle(self) -> NDArray[np.bool_]:
        """The clients that ran nothing."""
        return np.asarray(self.starts[1:] == self.starts[:-1])

    @cached_property
    def _steps_by_mechanism(self) -> csr_array:
        from scipy.sparse import csr_array  # here: whoever imports the accountants need not wait for it

        shape = (len(self), len(self.mechanisms))
        return csr_array((self.steps.astype(np.float64), self.numbers, self.starts), shape=shape)

    def _curves(self, mechanisms: Iterable[Mechanism], orders: FloatArray) -> FloatArray:
        pairs = [mechanism.dominating_pair(self.adjacency) for mechanism in mechanisms]
        return renyi_divergence(log_excess(pairs, orders), orders)

    def _curve(self, mechanism: Mechanism, orders: FloatArray) -> FloatArray:
        try:
            return self._curves([mechanism], orders)
        except Unsupported:
            return np.full((1, len(orders)), np.inf)
