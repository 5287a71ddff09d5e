"""A new batch drawn in every step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from lrdp import limits
from lrdp.accounting.mechanisms.base import Adjacency, Displacement
from lrdp.accounting.mechanisms.sized import PublicSizes, SizedGaussian
from lrdp.errors import InvalidInput, Unsupported


@dataclass(frozen=True, kw_only=True)
class SampledGaussian(SizedGaussian):
    """A new batch drawn in every step, independently of all others."""

    numbers: ClassVar[Mapping[str, type[int] | type[float]]] = {**SizedGaussian.numbers, "batch_size": int}
    batch_size: int

    def __post_init__(self) -> None:
        super().__post_init__()
        limits.keep(self, batch_size=limits.whole("batch_size", self.batch_size, 1, "an empty batch trains nothing"))
        if not self.batch_size < self.dataset_size:
            raise InvalidInput(
                f"batch_size must be below dataset_size={self.dataset_size}, got {self.batch_size}: the theorem holds "
                f"for a sampling probability below 1 only.",
                field="batch_size",
            )

    @classmethod
    def batch_sizes(cls, sizes: PublicSizes) -> range:
        """As many records as rows; where rows are not given, any number that leaves a record out."""
        return range(1, sizes.dataset_size) if sizes.rows is None else range(sizes.rows, sizes.rows + 1)

    @classmethod
    def drawing(cls, batch_size: int, sizes: PublicSizes) -> Self:
        """There is nothing else to choose."""
        return cls(dataset_size=sizes.dataset_size, batch_size=batch_size, noise_multiplier=1.0)

    @property
    def probability(self) -> float:
        """q: how likely a given record is to be drawn."""
        return self.batch_size / self.dataset_size

    @property
    def normaliser(self) -> int:
        """The batch size, or its expected value."""
        return self.batch_size

    @property
    def rows(self) -> int | None:
        """Rows held in memory in every step; None where that varies from step to step."""
        return self.batch_size

    @property
    def scope(self) -> str:
        """The data sets that its cost is proved for."""
        return f"data sets of at least {self.dataset_size} records"

    def _one_for_one(self) -> Displacement:
        """For kinds that draw a record at most once, where it displaces at most one other: each says so itself."""
        return Displacement(
            batch_size=self.batch_size, dataset_size=self.dataset_size, noise_multiplier=self.noise_multiplier
        )

    def _refuse_replace_one(self, adjacency: Adjacency) -> None:
        if limits.made_by("adjacency", adjacency, Adjacency) is not Adjacency.ADD_REMOVE:
            raise Unsupported(
                f"{self.name} sampling is not supported under replace-one adjacency: no dominating pair is proved for "
                f"it here, so use fixed-size sampling or add-remove adjacency."
            )
