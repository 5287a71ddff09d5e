"""Draws with replacement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import gammaln

from lrdp.accounting.mechanisms.base import Adjacency
from lrdp.accounting.mechanisms.rows_drawn import among_draws
from lrdp.accounting.mechanisms.sampled import SampledGaussian
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair
from lrdp.errors import Unsupported

_MOST_DRAWS = 60  # one record drawn more often than this into one batch with replacement: probability below 1e-80
_LEAST_LOG_WEIGHT = -50.0  # rarer than 2e-22: far below the rounding that a loss distribution charges to δ anyway


@dataclass(frozen=True, kw_only=True)
class FixedSizeWithReplacementGaussian(SampledGaussian):
    """``batch_size`` independent uniform draws: a record may be drawn several times.

    >>> FixedSizeWithReplacementGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.0).rows
    128

    Guarantees: hold for every data set of *at least* ``dataset_size`` records, the larger neighbour counted.
    """

    name: ClassVar[str] = "fixed-size-with-replacement"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """A record drawn k times displaces k others: shift k, with binomial probability."""
        self._refuse_replace_one(adjacency)
        draws = np.arange(1, min(self.batch_size, _MOST_DRAWS) + 1)
        log_binomial = gammaln(self.batch_size + 1) - gammaln(draws + 1) - gammaln(self.batch_size - draws + 1)
        log_weights = (
            log_binomial
            - draws * np.log(self.dataset_size)
            + (self.batch_size - draws) * np.log1p(-1 / self.dataset_size)
        )
        held = log_weights > _LEAST_LOG_WEIGHT
        return GaussianMixturePair(
            weights=tuple(np.exp(log_weights[held]).tolist()), deviation=self.noise_multiplier / 2
        )

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """Each draw may be one of the rows, and then displaces another: shift j, with binomial probability."""
        self._refuse_replace_one(adjacency)
        if rows >= self.dataset_size:
            raise Unsupported(f"a group of {rows} rows leaves none of {self.dataset_size}: there is no neighbour.")
        weights = among_draws(self.batch_size, rows / self.dataset_size)
        return GaussianMixturePair(weights=weights, deviation=self.noise_multiplier / 2)
