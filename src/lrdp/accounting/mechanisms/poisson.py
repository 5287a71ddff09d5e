"""Each record on its own: the baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lrdp.accounting.mechanisms.base import Adjacency, Displacement
from lrdp.accounting.mechanisms.rows_drawn import among_draws
from lrdp.accounting.mechanisms.sampled import SampledGaussian
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair


@dataclass(frozen=True, kw_only=True)
class PoissonGaussian(SampledGaussian):
    """Each record drawn on its own with probability q: the baseline, whose batches have no fixed size.

    >>> PoissonGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.0).rows is None
    True

    Guarantees: hold for every data set when records are drawn with probability ``batch_size / dataset_size``.
    """

    name: ClassVar[str] = "poisson"

    @property
    def rows(self) -> int | None:
        """No bound below the data set's size."""
        return None

    @property
    def scope(self) -> str:
        """Whatever its size."""
        return "every data set"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """A record enters without displacing another: deviation σ."""
        self._refuse_replace_one(adjacency)
        return GaussianMixturePair(weights=(self.probability,), deviation=self.noise_multiplier)

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """The rows enter on their own: shift j, with binomial probability."""
        self._refuse_replace_one(adjacency)
        return GaussianMixturePair(weights=among_draws(rows, self.probability), deviation=self.noise_multiplier)

    def displacement(self) -> Displacement:
        """A record is drawn at most once, and displaces at most one other."""
        return self._one_for_one()
