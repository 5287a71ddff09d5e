"""What every form of per-example gradient can do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, Self

import torch
from torch import Tensor

from lrdp.training.clipping import wide

TRANSIENT_BYTES = 8 << 20  # what one operation may hold for a moment, beyond its result
KEPT_BYTES = 48 << 20  # per-example gradients of one parameter up to this size are kept for the weighted sum


class Gradient(Protocol):
    """The gradients of one parameter by example, in whatever form is cheapest. Nothing holds [rows, parameters]."""

    def measure(self) -> tuple[Tensor, Gradient]:
        """The squared norm of each example's gradient, and the form to keep for the weighted sum."""

    def rows(self, chosen: slice) -> Tensor:
        """The gradients of some examples, flat: [examples, elements]."""

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Add Σ weight_i · gradient_i to ``total``."""

    def without(self, dead: Tensor) -> Gradient:
        """The same with zero in the rows marked dead: 0 × ∞ is not zero."""

    @classmethod
    def join(cls, uses: Sequence[Self]) -> Gradient:
        """The gradient of a parameter used several times, all uses in this form."""


def chunks(rows: int, bytes_per_row: int) -> Iterator[slice]:
    """Slices of the rows whose transients stay within bounds."""
    size = max(1, TRANSIENT_BYTES // max(1, bytes_per_row))
    return (slice(start, min(rows, start + size)) for start in range(0, rows, size))


def rounding_allowance(diagonals: Tensor, dtype: torch.dtype) -> Tensor:
    """How far below the truth a squared norm taken from Gram matrices may lie.

    ``diagonals`` holds the squared lengths of the summed outer products, [rows, terms]. Terms that cancel leave a small
    norm with the rounding of large ones; without this allowance such a gradient would pass unclipped.
    """
    return diagonals.to(wide(diagonals.device)).clamp(min=0.0).sqrt_().sum(1).square_().mul_(torch.finfo(dtype).eps)
