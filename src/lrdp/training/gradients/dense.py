"""Per-example gradients held as they are: right for small parameters (biases, normalisation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.protocol import KEPT_BYTES, Gradient, Measured, chunks, live
from lrdp.training.rounding import Meeting, meeting


@dataclass(frozen=True)
class Dense:
    """``values`` is [rows, elements], and nobody else holds it: what is measured is what is added."""

    values: Tensor

    def measure(self) -> Measured:
        """The norms of the rows."""
        squares = row_squares(self.values)
        return Measured(squares, squares, self)

    @property
    def meeting(self) -> Meeting:
        return meeting(1, self.values.dtype)

    def rows(self, chosen: slice) -> Tensor:
        return self.values[chosen]

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        for part in chunks(len(self.values), 0, self.meeting.rows):
            add_rows(total, self.values[part], weights[part])

    @classmethod
    def join(cls, uses: Sequence[Dense]) -> Gradient:
        return cls(torch.stack([use.values for use in uses]).sum(0))


@dataclass(frozen=True)
class MultipliedOut:
    """Gradients of ``source``, too many to keep: made a few at a time for their norms, and again for the sum."""

    source: Gradient
    squares: Tensor
    bytes_each: int
    dtype: torch.dtype

    @property
    def meeting(self) -> Meeting:
        return meeting(1, self.dtype)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """What comes out longer than it was measured gets no weight: a kernel need not repeat itself to the bit."""
        for part in chunks(len(self.squares), self.bytes_each, self.meeting.rows):
            rows = self.source.rows(part)
            add_rows(total, rows, weights[part] * (row_squares(rows) <= self.squares[part]))


def multiplied_out(source: Gradient, count: int, elements: int, dtype: torch.dtype, scratch: int = 0) -> Measured:
    """``source`` multiplied out, and kept if small. ``scratch`` is what an example takes meanwhile, in bytes."""
    each = elements * dtype.itemsize
    parts = chunks(count, each + scratch, meeting(1, dtype).rows)
    if count * each > KEPT_BYTES:
        squares = torch.cat([row_squares(source.rows(part)) for part in parts])
        return Measured(squares, squares, MultipliedOut(source, squares, each + scratch, dtype))
    first = source.rows(next(parts))
    if len(first) == count:
        return Dense(first).measure()
    values = first.new_empty(count, elements)
    values[: len(first)] = first
    del first
    for part in parts:
        values[part] = source.rows(part)
    return Dense(values).measure()


def add_rows(total: Tensor, rows: Tensor, weights: Tensor) -> None:
    """Add Σ weight_i · row_i to ``total``, of rows that meet; those without weight are overwritten."""
    total.view(-1).add_(live(rows, weights).t() @ weights)
