"""Mechanisms: what one private step does, as immutable values.

Sampler, noise and accountant read the same value, so they cannot disagree. ``noise_multiplier`` is σ: the standard
deviation of the noise on the *sum* of clipped gradients, over the clip norm. Each mechanism knows the pair that
dominates it under each adjacency, or refuses with the reason. Proofs: docs/accounting.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, Final, Self

import numpy as np
from scipy.special import betainc, gammaln

from lrdp import limits
from lrdp.accounting.pairs import DominatingPair, GaussianMixturePair, OneOfPair, ReplaceOnePair
from lrdp.errors import InvalidInput, Unsupported

CLIP_HEADROOM: Final = {"float32": 2.0**-7, "float64": 2.0**-16}
"""The share of the clip norm that is kept free for rounding, by the type of the weights: what training clips to, and
what a statement says of it."""
_MOST_DRAWS = 60  # one record drawn more often than this into one batch with replacement: probability below 1e-80
_LEAST_LOG_WEIGHT = -50.0  # rarer than 2e-22: far below the rounding that a loss distribution charges to δ anyway
_NOISE = (1e-6, 1e9)
_ROUND_UP = 1 + 1e-9  # above the relative error of the incomplete beta function


class Adjacency(Enum):
    """Which data sets count as neighbours: what exactly is protected."""

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"


@dataclass(frozen=True, kw_only=True)
class Mechanism:
    """One private step.

    A kind of step that has a name is final: what it costs is proved for it as it is, and a subclass that changes
    anything is another mechanism. Derive new ones from this class, and prove their pair.
    """

    name: ClassVar[str]
    noise_multiplier: float

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        named = [base.__name__ for base in cls.__mro__[1:] if "name" in vars(base)]
        if named:
            raise InvalidInput(
                f"{cls.__name__} must not derive from {named[0]}: its cost is proved for {named[0]} as it is, so "
                f"derive from Mechanism and give the pair that dominates it."
            )

    def __post_init__(self) -> None:
        noise = limits.positive("noise_multiplier", self.noise_multiplier, "noise is what hides a record")
        limits.between("noise_multiplier", noise, *_NOISE, "beyond, doubles do not resolve its cost")
        limits.keep(self, noise_multiplier=noise)

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """The pair that bounds this step for the given neighbours."""
        limits.made_by("adjacency", adjacency, Adjacency)
        raise Unsupported(f"{type(self).__name__} has no cost: no pair is given that would dominate it.")

    def with_noise(self, noise_multiplier: float) -> Self:
        """The same step with another σ."""
        return replace(self, noise_multiplier=noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class Gaussian(Mechanism):
    """The whole data set in every step: the plain Gaussian mechanism."""

    name: ClassVar[str] = "gaussian"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """Removal moves the sum by one clip norm, replacement by two."""
        limits.made_by("adjacency", adjacency, Adjacency)
        moves = {Adjacency.ADD_REMOVE: 1, Adjacency.REPLACE_ONE: 2}[adjacency]
        return GaussianMixturePair(weights=(1.0,), deviation=self.noise_multiplier / moves)


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(Mechanism):
    """A batch drawn anew in every step, independently of all others."""

    dataset_size: int
    batch_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(
            self,
            batch_size=limits.whole("batch_size", self.batch_size, 1, "an empty batch trains nothing"),
            dataset_size=limits.whole("dataset_size", self.dataset_size, 2, "a batch must leave a record out"),
        )
        if not self.batch_size < self.dataset_size:
            raise InvalidInput(
                f"batch_size must be below dataset_size={self.dataset_size}, got {self.batch_size}: the theorem holds "
                f"for a sampling probability below 1 only."
            )

    @property
    def probability(self) -> float:
        """q: how likely a given record is to be drawn."""
        return self.batch_size / self.dataset_size

    @property
    def rows(self) -> int | None:
        """Rows held in memory in every step; None where that varies from step to step."""
        return self.batch_size

    @property
    def noise_on_mean(self) -> float:
        """Standard deviation of the noise on the mean gradient, over the clip norm."""
        return self.noise_multiplier / self.batch_size

    def _refuse_replace_one(self, adjacency: Adjacency) -> None:
        if limits.made_by("adjacency", adjacency, Adjacency) is not Adjacency.ADD_REMOVE:
            raise Unsupported(
                f"{self.name} sampling is not supported under replace-one adjacency: no dominating pair is proved for "
                f"it here, so use fixed-size sampling or add-remove adjacency."
            )


@dataclass(frozen=True, kw_only=True)
class FixedSizeGaussian(SampledGaussian):
    """A uniform subset of exactly ``batch_size`` records: the paper's mechanism [eq:client_Delta_Theta_def].

    Guarantees: hold for every data set of *at least* ``dataset_size`` records, the larger neighbour counted.
    """

    name: ClassVar[str] = "fixed-size"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """A record enters by displacing another, so the sum moves by two clip norms: deviation σ/2."""
        deviation = self.noise_multiplier / 2
        if limits.made_by("adjacency", adjacency, Adjacency) is Adjacency.REPLACE_ONE:
            return ReplaceOnePair(probability=self.probability, deviation=deviation)
        return GaussianMixturePair(weights=(self.probability,), deviation=deviation)


@dataclass(frozen=True, kw_only=True)
class FixedSizeWithReplacementGaussian(SampledGaussian):
    """``batch_size`` independent uniform draws: a record may come several times.

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


@dataclass(frozen=True, kw_only=True)
class PoissonGaussian(SampledGaussian):
    """Each record drawn on its own with probability q: the baseline, whose batches have no fixed size.

    Guarantees: hold for every data set when records are drawn with probability ``batch_size / dataset_size``.
    """

    name: ClassVar[str] = "poisson"

    @property
    def rows(self) -> int | None:
        """No bound below the data set's size."""
        return None

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """A record enters without displacing another: deviation σ."""
        self._refuse_replace_one(adjacency)
        return GaussianMixturePair(weights=(self.probability,), deviation=self.noise_multiplier)


@dataclass(frozen=True, kw_only=True)
class TruncatedPoissonGaussian(SampledGaussian):
    """Poisson draws cut to a uniform subset of at most ``cap`` records, padded to ``cap`` with rows of weight zero.

    Memory is as constant as with fixed size, and the noise on the mean about half. ``batch_size`` is the expected size,
    and the public normaliser.

    Guarantees: hold for every data set of *at most* ``dataset_size`` records, the larger neighbour counted, when
    records are drawn with probability ``batch_size / dataset_size``: more records would be cut more often.
    """

    name: ClassVar[str] = "truncated-poisson"
    cap: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, cap=limits.whole("cap", self.cap, 1, "an empty batch trains nothing"))
        if not self.cap >= self.batch_size:
            raise InvalidInput(
                f"cap must be at least the expected batch_size={self.batch_size}, got {self.cap}: most batches would "
                f"be cut, and the bound would be worse than that of fixed-size sampling."
            )

    @property
    def rows(self) -> int | None:
        """Every step holds ``cap`` rows, padding included."""
        return self.cap

    @property
    def cut_probability(self) -> float:
        """How likely the *other* records alone fill the cap: P(Binomial(dataset_size - 1, q) ≥ cap), rounded up."""
        others = self.dataset_size - 1
        if self.cap > others:
            return 0.0
        return min(1.0, float(betainc(self.cap, others - self.cap + 1, self.probability)) * _ROUND_UP)

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """Below the cap a record enters freely (σ); at the cap it displaces another (σ/2), at most as likely as q."""
        self._refuse_replace_one(adjacency)
        free = GaussianMixturePair(weights=(self.probability,), deviation=self.noise_multiplier)
        displacing = GaussianMixturePair(weights=(self.probability,), deviation=self.noise_multiplier / 2)
        cut = self.cut_probability
        return OneOfPair(weights=(1 - cut, cut), pairs=(free, displacing))
