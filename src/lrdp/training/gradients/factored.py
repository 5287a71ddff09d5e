"""Per-example gradients as sums of outer products: Σ_t left_t ⊗ right_t, never multiplied out when that is dearer.

A linear layer's weight has left = output gradient and right = input; an embedding has one-hot lefts, kept as indices.
The squared norm is ⟨left leftᵀ, right rightᵀ⟩. A tied weight has the terms of all its uses, so cross terms are counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients import gram
from lrdp.training.gradients.dense import multiplied_out
from lrdp.training.gradients.factors import Indices, LeftFactors, Vectors, joined
from lrdp.training.gradients.protocol import CACHED_BYTES, Gradient, Measured, chunks
from lrdp.training.rounding import Meeting


@dataclass(frozen=True)
class Factored:
    """The terms of one weight of shape [height, width]; ``right`` is [rows, terms, width]."""

    left: LeftFactors
    right: Tensor
    height: int

    def measure(self) -> Measured:
        """By Gram matrices, or multiplied out where the weight is smaller than they are."""
        count, terms, width = self.right.shape
        if terms == 1:
            squares = self.left.squares() * row_squares(self.right)
            return Measured(squares, squares, self)
        if 2 * terms * terms > self.height * width:
            return multiplied_out(self, count, self.height * width, self.right.dtype)
        squares, reaches = gram.lengths(self._grams(), (width, self.left.products))
        return Measured(squares, reaches, self)

    def _grams(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Both Gram matrices of a few rows at a time, in the same two buffers."""
        count, terms, _ = self.right.shape
        parts = list(chunks(count, 2 * terms * terms * self.right.element_size(), most_bytes=CACHED_BYTES))
        rooms = self.right.new_empty(2, parts[0].stop, terms, terms)
        for chosen in parts:
            right = self.right[chosen]
            pair = rooms[:, : len(right)]
            torch.bmm(right, right.transpose(1, 2), out=pair[0])
            self.left.part(chosen).gram(pair[1])
            yield pair[0], pair[1]

    def _part(self, chosen: slice) -> Factored:
        return Factored(self.left.part(chosen), self.right[chosen], self.height)

    @property
    def meeting(self) -> Meeting:
        return self.left.meeting(self.right)

    def rows(self, chosen: slice) -> Tensor:
        part = self._part(chosen)
        return part.left.times(part.right, self.height).flatten(1)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        self.left.add_product(self.right, weights, total.view(len(total), -1))

    @classmethod
    def join(cls, uses: Sequence[Factored]) -> Gradient:
        """The terms of all uses."""
        dense = [(use.left.values, use.right) for use in uses if isinstance(use.left, Vectors)]
        looked_up = [(use.left.values, use.right) for use in uses if isinstance(use.left, Indices)]
        left = joined([values for values, _ in dense], [values for values, _ in looked_up])
        return cls(left, torch.cat([right for _, right in dense + looked_up], 1), uses[0].height)
