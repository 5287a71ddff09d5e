"""A fleet: the books of many clients at once.

Mechanisms are interned: each distinct one has a number and one row of Rényi divergences. A client is the list of
(mechanism number, steps) it has run, so the divergences of all clients are one matrix product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from lrdp.accounting import limits
from lrdp.accounting.accountants import History
from lrdp.accounting.conversion import ORDERS, epsilon_at
from lrdp.accounting.mechanisms import Adjacency, Mechanism
from lrdp.accounting.pairs import log_excess, renyi_divergence
from lrdp.accounting.renyi import FloatArray
from lrdp.errors import InvalidInput

_CHUNK = 1 << 14  # clients whose divergences are held at once: about 8 MB


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Client c ran ``steps[i]`` steps of ``mechanisms[numbers[i]]`` for i from ``starts[c]`` to ``starts[c+1]``."""

    adjacency: Adjacency
    mechanisms: tuple[Mechanism, ...]
    starts: NDArray[np.int64]
    numbers: NDArray[np.int32]
    steps: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("starts", "numbers", "steps"):
            if not np.issubdtype(getattr(self, name).dtype, np.integer):
                raise InvalidInput(
                    f"{name} must hold whole numbers: a fraction of a step has no cost that would be known."
                )
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
            for mechanism, count in history.items():
                numbers.append(number_of.setdefault(mechanism, len(number_of)))
                steps.append(limits.whole("steps", count, 1, "books hold steps that were taken"))
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

    def curves(self) -> FloatArray:
        """One row of divergences per mechanism, one column per order of ``ORDERS``."""
        pairs = [mechanism.dominating_pair(self.adjacency) for mechanism in self.mechanisms]
        return renyi_divergence(log_excess(pairs, ORDERS), ORDERS)

    def epsilons(self, delta: float) -> FloatArray:
        """ε of every client at ``delta``, each at its own best order; 0 for a client that ran nothing."""
        limits.open_unit("delta", delta, "it bounds the probability that the guarantee fails")
        result = np.zeros(len(self))
        if not self.mechanisms:
            return result
        curves = self.curves()
        for first in range(0, len(self), _CHUNK):
            clients = slice(first, min(first + _CHUNK, len(self)))
            divergence = self._rows(clients) @ curves
            result[clients] = epsilon_at(divergence, ORDERS, delta).min(axis=1)
        result[np.diff(self.starts) == 0] = 0.0
        return result

    def _rows(self, clients: slice) -> csr_array:
        """The steps of some clients by mechanism, as a sparse matrix."""
        starts = self.starts[clients.start : clients.stop + 1]
        entries = slice(starts[0], starts[-1])
        shape = (len(starts) - 1, len(self.mechanisms))
        return csr_array(
            (self.steps[entries].astype(np.float64), self.numbers[entries], starts - starts[0]), shape=shape
        )
