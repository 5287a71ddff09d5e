"""Every record in every step, padded to a public bound on their number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Self

from lrdp.accounting.mechanisms.base import Adjacency, Bound, Displacement, Side
from lrdp.accounting.mechanisms.gaussian import Gaussian
from lrdp.accounting.mechanisms.sized import PublicSizes, SizedGaussian
from lrdp.accounting.pairs import DominatingPair
from lrdp.errors import InvalidInput


@dataclass(frozen=True, kw_only=True)
class FullBatchGaussian(SizedGaussian):
    """All records in every step, padded to ``dataset_size`` rows of which the empty ones weigh nothing.

    Nobody is drawn, so nobody is displaced: no amplification, and no factor 2. Rows, time and the normaliser follow
    from the public bound. It is for a few hundred records, or for very few passes.

    >>> FullBatchGaussian(dataset_size=300, noise_multiplier=15.0).noise_on_mean
    0.05

    Guarantees: hold for every data set of *at most* ``dataset_size`` records, the larger neighbour counted. With more,
    no slot would be left for some record, and which one would depend on the others.
    """

    name: ClassVar[str] = "full-batch"
    about: ClassVar[str] = (
        "Every record is in every step, and rows are padded to max_dataset_size: memory and time are constant, in "
        "passes of as many rows as [execution] says."
    )
    bounds: ClassVar[Mapping[str, Bound]] = {
        "noise_multiplier": Bound("min_noise_multiplier", Side.ABOVE),
        # A smaller one might have no room for a record, and training would show it.
        "dataset_size": Bound(
            "max_dataset_size",
            Side.SAME,
            "There are at most this many records, a public upper bound that sums are divided by: rows and noise depend "
            "on it, never on the true number. State one that leaves all rows of one unit to spare: whether training "
            "starts must not depend on it.",
        ),
    }

    @classmethod
    def batch_sizes(cls, sizes: PublicSizes) -> range:
        """All of them, however many rows are computed at a time."""
        return range(sizes.dataset_size, sizes.dataset_size + 1)

    @classmethod
    def drawing(cls, batch_size: int, sizes: PublicSizes) -> Self:
        """There is one step only."""
        if batch_size != sizes.dataset_size:
            raise InvalidInput(
                f"batch_size must be dataset_size={sizes.dataset_size}, got {batch_size}: full-batch steps leave "
                f"nobody out.",
                field="batch_size",
            )
        return cls(dataset_size=sizes.dataset_size, noise_multiplier=1.0)

    @property
    def normaliser(self) -> int:
        """The public bound: the true number of records is nobody's business."""
        return self.dataset_size

    @property
    def rows(self) -> int | None:
        """A slot for every record that there may be."""
        return self.dataset_size

    @property
    def scope(self) -> str:
        """More records would have no slots."""
        return f"data sets of at most {self.dataset_size} records"

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        """Removal moves the sum by one clip norm, replacement by two; no other record moves."""
        return self._plain.dominating_pair(adjacency)

    def _pair_of_rows(self, adjacency: Adjacency, rows: int) -> DominatingPair:
        """Every row moves the sum as one does."""
        return self._plain.group_pair(adjacency, rows)

    def displacement(self) -> Displacement:
        """Every record is in every step."""
        return self._plain.displacement()

    @property
    def _plain(self) -> Gaussian:
        """What it costs, whatever its rows."""
        return Gaussian(noise_multiplier=self.noise_multiplier)
