"""A step on a data set whose size has a public bound: what a client can train with, and what a plan compares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, Self

from lrdp import limits
from lrdp.accounting.mechanisms.base import Mechanism
from lrdp.errors import Unsupported


class PublicSizes(NamedTuple):
    """What a plan gives to every kind: a bound on the number of records, and the rows of a step.

    Without ``rows`` a step has as many as serve it best, and is computed in passes.

    >>> from lrdp.accounting import TruncatedPoissonGaussian
    >>> TruncatedPoissonGaussian.drawing(96, PublicSizes(dataset_size=5000, rows=128)).cap
    128
    """

    dataset_size: int
    rows: int | None = None


@dataclass(frozen=True, kw_only=True)
class SizedGaussian(Mechanism):
    """One private step, with a public bound on the number of records that it is taken on.

    What a step holds in memory and what its sum is divided by follow from this value alone, never from the records.
    ``drawing`` and ``batch_sizes`` make steps of a kind for a plan: a kind chooses its other numbers itself.
    """

    numbers: ClassVar[Mapping[str, type[int] | type[float]]] = {**Mechanism.numbers, "dataset_size": int}
    dataset_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        size = limits.whole("dataset_size", self.dataset_size, 2, "a single record has nobody to hide among")
        limits.keep(self, dataset_size=size)

    @property
    def normaliser(self) -> int:
        """The public number that the noised sum is divided by."""
        raise Unsupported(f"{type(self).__name__} does not say what its sum is divided by.")

    @property
    def rows(self) -> int | None:
        """Rows of every step, padding included; None where that varies from step to step."""
        raise Unsupported(f"{type(self).__name__} does not say how many rows a step has.")

    @property
    def scope(self) -> str:
        """The data sets that its cost is proved for."""
        raise Unsupported(f"{type(self).__name__} does not say which data sets it holds for.")

    @property
    def noise_on_mean(self) -> float:
        """Standard deviation of the noise on the mean gradient, over the clip norm."""
        return self.noise_multiplier / self.normaliser

    @classmethod
    def batch_sizes(cls, sizes: PublicSizes) -> range:  # noqa: ARG003 - subclasses read it
        """The numbers of records a step may expect, for a plan to choose from; none where it cannot be planned."""
        return range(0)

    @classmethod
    def drawing(cls, batch_size: int, sizes: PublicSizes) -> Self:
        """A step of this kind, of noise multiplier 1, that expects ``batch_size`` records."""
        raise Unsupported(f"{cls.__name__} cannot be planned with: it names no step of {batch_size} for {sizes}.")
