"""Poisson draws cut to a cap: memory as constant as with fixed size, and half the noise."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from lrdp import limits
from lrdp.accounting.mechanisms.base import Adjacency, Bound, Displacement, Side
from lrdp.accounting.mechanisms.cut_batches import cuts, filled
from lrdp.accounting.mechanisms.rows_drawn import among_draws
from lrdp.accounting.mechanisms.sampled import SampledGaussian
from lrdp.accounting.mechanisms.sized import PublicSizes
from lrdp.accounting.mixed_pairs import MixedPair
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair
from lrdp.errors import InvalidInput

_GENEROUS = 5.0  # spreads of a batch's size above what is expected: a larger one is drawn once in 3 million steps


@dataclass(frozen=True, kw_only=True)
class TruncatedPoissonGaussian(SampledGaussian):
    """Poisson draws cut to a uniform subset of at most ``cap`` records, padded to ``cap`` with rows of weight zero.

    Memory is as constant as with fixed size, and the noise on the mean about half. ``batch_size`` is the expected size,
    and the public normaliser.

    >>> from lrdp.accounting import FixedSizeGaussian
    >>> step = TruncatedPoissonGaussian(dataset_size=5000, batch_size=96, cap=128, noise_multiplier=1.363)
    >>> step.rows, FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.363).rows
    (128, 128)
    >>> f"{step.noise_on_mean:.4f}", step.scope
    ('0.0142', 'data sets of at most 5000 records')

    Guarantees: hold for every data set of *at most* ``dataset_size`` records, the larger neighbour counted, when
    records are drawn with probability ``batch_size / dataset_size``: more records would be cut more often.
    """

    name: ClassVar[str] = "truncated-poisson"
    numbers: ClassVar[Mapping[str, type[int] | type[float]]] = {**SampledGaussian.numbers, "cap": int}
    about: ClassVar[str] = (
        "Every record is drawn by chance; batches are cut at cap and padded to it: memory is constant. "
        '"fixed-size" has no cap, and min_dataset_size in place of max_dataset_size.'
    )
    bounds: ClassVar[Mapping[str, Bound]] = {
        "noise_multiplier": Bound("min_noise_multiplier", Side.ABOVE),
        "batch_size": Bound("batch_size", Side.BELOW, "The largest batch that is expected. Smaller ones cost less."),
        # A smaller cap costs more, not less.
        "cap": Bound(
            "cap",
            Side.SAME,
            "The rows of every batch, padding included. A request must name exactly this one: a smaller cap costs "
            "more.",
        ),
        "dataset_size": Bound(
            "max_dataset_size",
            Side.SAME,
            "There are at most this many records, a public upper bound: what is charged depends on it, never on the "
            "true number. "
            "State one that leaves all rows of one unit to spare: whether training starts must not depend on it.",
        ),
    }
    cap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, cap=limits.whole("cap", self.cap, 1, "an empty batch trains nothing"))
        if not self.cap >= self.batch_size:
            raise InvalidInput(
                f"cap must be at least the expected batch_size={self.batch_size}, got {self.cap}: most batches would "
                f"be cut, and the bound would be worse than that of fixed-size sampling.",
                field="cap",
            )

    @classmethod
    def batch_sizes(cls, sizes: PublicSizes) -> range:
        """Up to the cap, or up to what leaves a record out."""
        return range(1, sizes.dataset_size if sizes.rows is None else sizes.rows + 1)

    @classmethod
    def drawing(cls, batch_size: int, sizes: PublicSizes) -> Self:
        """Cut at ``rows``; or so far above what is expected that next to no batch is ever cut."""
        spread = math.sqrt(batch_size * (1 - batch_size / sizes.dataset_size))
        generous = min(sizes.dataset_size, math.ceil(batch_size + _GENEROUS * spread))
        cap = generous if sizes.rows is None else sizes.rows
        return cls(dataset_size=sizes.dataset_size, batch_size=batch_size, cap=cap, noise_multiplier=1.0)

    @property
    def rows(self) -> int | None:
        """Every step holds ``cap`` rows, padding included."""
        return self.cap

    @property
    def scope(self) -> str:
        """More records would be cut more often."""
        return f"data sets of at most {self.dataset_size} records"

    @property
    def cut_probability(self) -> float:
        """The chance that the *others* alone fill the cap: P(Binomial(dataset_size - 1, q) ≥ cap), rounded up."""
        return filled(self.dataset_size - 1, self.cap, self.probability)

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """Below the cap a record enters freely (σ); at the cap it displaces another (σ/2), with a chance below q."""
        self._refuse_replace_one(adjacency)
        found = cuts(self.dataset_size, self.probability, self.cap)
        free = GaussianMixturePair(weights=(self.probability,), deviation=self.noise_multiplier)
        displacing = (GaussianMixturePair(weights=(swap,), deviation=self.noise_multiplier / 2) for swap in found.swaps)
        return MixedPair(weights=found.weights, pairs=(free, *displacing))

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """Where a cut is possible each row that is kept displaces at most one other; else they enter freely."""
        self._refuse_replace_one(adjacency)
        weights = among_draws(rows, self.probability)
        free, displacing = (
            GaussianMixturePair(weights=weights, deviation=deviation)
            for deviation in (self.noise_multiplier, self.noise_multiplier / 2)
        )
        cut = filled(self.dataset_size - rows, self.cap - rows + 1, self.probability)
        return MixedPair(weights=((1 - cut, cut),), pairs=(free, displacing))

    def displacement(self) -> Displacement:
        """A record is drawn at most once, and displaces at most one other."""
        return self._one_for_one()
