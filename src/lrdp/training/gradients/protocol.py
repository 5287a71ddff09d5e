"""What every form of per-example gradient can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from torch import Tensor

from lrdp.training.rounding import Meeting

TRANSIENT_BYTES = 8 << 20  # what one operation may hold for a moment, beyond its result
_WEIGHTED_BYTES = 2 << 20  # the same for weighted sums: little enough to stay in a processor's cache
PRODUCT_BYTES = 1 << 20  # the same for products of factors, which share the cache with both factors
CACHED_BYTES = 1 << 19  # the same for Gram matrices, which are written once and read four times
KEPT_BYTES = 16 << 20  # per-example gradients of one parameter up to this size are kept for the weighted sum


class Kept(Protocol):
    """What a weighted sum is made of once the norms are known."""

    @property
    def meeting(self) -> Meeting:
        """Which examples share an accumulation, and in what precision."""

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add Σ weight_i · gradient_i to ``total``, the examples of a meeting first, and then the meetings.

        Zero times infinity is not zero: an example without weight is taken out, at the same cost if there is none.
        """


@dataclass(frozen=True)
class Measured:
    """Of each example, never below the truth: the squared norm of its gradient, and of any partial sum of its terms."""

    squares: Tensor
    reaches: Tensor
    kept: Kept


class Gradient(Protocol):
    """The gradients of one parameter by example, in whatever form is cheapest. Nothing holds [rows, parameters]."""

    def measure(self) -> Measured:
        """The lengths, and the form to keep for the weighted sum."""

    def rows(self, chosen: slice) -> Tensor:
        """The gradients of some examples, flat: [examples, elements]."""

    @classmethod
    def join(cls, uses: Sequence[Self]) -> Gradient:
        """The gradient of a parameter used several times, all uses in this form."""


def live(values: Tensor, weights: Tensor) -> Tensor:
    """``values``, which nobody else holds, overwritten with zeros in the rows of weight 0."""
    return values.index_fill_(0, (weights == 0).nonzero()[:, 0], 0.0)


def meetings(rows: int, together: int, bytes_per_meeting: int, *, most_bytes: int = _WEIGHTED_BYTES) -> Iterator[slice]:
    """Slices of whole meetings of ``together`` rows whose transients stay within bounds, and one of those left over."""
    whole = rows // together * together
    size = together * max(1, most_bytes // max(1, bytes_per_meeting))
    yield from (slice(start, min(whole, start + size)) for start in range(0, whole, size))
    if whole < rows:
        yield slice(whole, rows)


def chunks(
    rows: int, bytes_per_row: int, most: int | None = None, *, most_bytes: int = TRANSIENT_BYTES
) -> Iterator[slice]:
    """Slices of the rows whose transients stay within bounds, of at most ``most`` rows."""
    size = max(1, min(most_bytes // max(1, bytes_per_row), most or rows))
    return (slice(start, min(rows, start + size)) for start in range(0, rows, size))
