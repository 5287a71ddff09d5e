"""The plain Gaussian mechanism, without a bound on the data set: what stands for several kinds in a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lrdp import limits
from lrdp.accounting.mechanisms.base import Adjacency, Displacement, Mechanism
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair


@dataclass(frozen=True, kw_only=True)
class Gaussian(Mechanism):
    """The whole data set in every step, whatever its size: the plain Gaussian mechanism.

    It says what a step costs, not in how many rows it is computed: to train, take :class:`FullBatchGaussian`.

    >>> from lrdp.accounting import Adjacency, PldAccountant
    >>> spent = PldAccountant(adjacency=Adjacency.ADD_REMOVE).epsilon({Gaussian(noise_multiplier=5.0): 1}, delta=1e-5)
    >>> f"{spent.epsilon:.3f}"
    '0.726'
    """

    name: ClassVar[str] = "gaussian"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """Removal moves the sum by one clip norm, replacement by two."""
        limits.made_by("adjacency", adjacency, Adjacency)
        moves = {Adjacency.ADD_REMOVE: 1, Adjacency.REPLACE_ONE: 2}[adjacency]
        return GaussianMixturePair(weights=(1.0,), deviation=self.noise_multiplier / moves)

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """Every row moves the sum as one does."""
        return self.with_noise(self.noise_multiplier / rows).dominating_pair(adjacency)

    def displacement(self) -> Displacement:
        """Every record is in every step."""
        return Displacement(batch_size=1, dataset_size=1, noise_multiplier=self.noise_multiplier)
