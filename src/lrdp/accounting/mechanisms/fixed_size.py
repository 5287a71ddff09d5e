"""A subset of constant size: the paper's mechanism."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from lrdp import limits
from lrdp.accounting.mechanisms.base import Adjacency, Bound, Displacement, Side
from lrdp.accounting.mechanisms.rows_drawn import among_subsets
from lrdp.accounting.mechanisms.sampled import SampledGaussian
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair, ReplaceOnePair


@dataclass(frozen=True, kw_only=True)
class FixedSizeGaussian(SampledGaussian):
    """A uniform subset of exactly ``batch_size`` records: the paper's mechanism [eq:client_Delta_Theta_def].

    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.2)
    >>> step.looser_in(step.with_noise(1.1)), step.looser_in(step.varied(batch_size=64, noise_multiplier=2.0))
    ('noise_multiplier', None)

    Guarantees: hold for every data set of *at least* ``dataset_size`` records, the larger neighbour counted.
    """

    name: ClassVar[str] = "fixed-size"
    about: ClassVar[str] = (
        'Batches of constant size: memory is constant. "truncated-poisson" also needs cap, and max_dataset_size below.'
    )
    bounds: ClassVar[Mapping[str, Bound]] = {
        "noise_multiplier": Bound("min_noise_multiplier", Side.ABOVE),
        "batch_size": Bound("batch_size", Side.BELOW, "The largest batch. Smaller ones cost less."),
        # With a smaller one stated, a record counts as drawn more often, and costs more.
        "dataset_size": Bound(
            "min_dataset_size",
            Side.SAME,
            "There are at least this many records, a public lower bound: what is charged depends on it, never on the "
            "true number. "
            "State one that leaves all rows of one unit to spare: whether training starts must not depend on it.",
        ),
    }

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """A record enters by displacing another, so the sum moves by two clip norms: deviation σ/2."""
        deviation = self.noise_multiplier / 2
        if limits.made_by("adjacency", adjacency, Adjacency) is Adjacency.REPLACE_ONE:
            return ReplaceOnePair(probability=self.probability, deviation=deviation)
        return GaussianMixturePair(weights=(self.probability,), deviation=deviation)

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """Each of the rows that are drawn displaces another: shift j, with hypergeometric probability."""
        if adjacency is Adjacency.REPLACE_ONE:
            return super()._pair_of_rows(adjacency, rows)
        weights = among_subsets(rows, self.dataset_size, self.batch_size)
        return GaussianMixturePair(weights=weights, deviation=self.noise_multiplier / 2)

    def displacement(self) -> Displacement:
        """A record is drawn at most once, and displaces at most one other."""
        return self._one_for_one()
