"""Per-example gradients as sums of outer products: Σ_t left_t ⊗ right_t, never multiplied out when that is dearer.

A linear layer's weight has left = output gradient and right = input; an embedding has one-hot lefts, kept as indices.
The squared norm is ⟨left leftᵀ, right rightᵀ⟩. A tied weight has the terms of all its uses, so cross terms are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients import gram
from lrdp.training.gradients.dense import multiplied_out
from lrdp.training.gradients.factors import Indices, Left, Vectors, joined
from lrdp.training.gradients.protocol import Gradient, Measured, chunks, meetings
from lrdp.training.rounding import Meeting


@dataclass(frozen=True)
class Factored:
    """The terms of one weight of shape [height, width]; ``right`` is [rows, terms, width]."""

    left: Left
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
        parts = (self._part(chosen) for chosen in chunks(count, 2 * terms * terms * self.right.element_size()))
        found = [part._by_gram() for part in parts]
        return Measured(torch.cat([squares for squares, _ in found]), torch.cat([reach for _, reach in found]), self)

    def _by_gram(self) -> tuple[Tensor, Tensor]:
        right = torch.bmm(self.right, self.right.transpose(1, 2))
        left = self.left.gram().to(right.dtype)
        return gram.lengths(right, left, (self.right.shape[2], self.left.products))

    def _part(self, chosen: slice) -> Factored:
        return Factored(self.left.part(chosen), self.right[chosen], self.height)

    @property
    def meeting(self) -> Meeting:
        return self.left.meeting(self.right)

    def rows(self, chosen: slice) -> Tensor:
        part = self._part(chosen)
        return part.left.times(part.right, self.height).flatten(1)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """Several meetings at once, as far as the products and scaled factors of them all stay small."""
        count, terms, width = self.right.shape
        together = self.meeting.rows
        size = max(self.left.product_size(width), together * terms * width) * self.right.element_size()
        for chosen in meetings(count, together, size):
            part = self._part(chosen)
            part.left.add_product(part.right, weights[chosen], total.view(len(total), -1))

    @classmethod
    def join(cls, uses: Sequence[Factored]) -> Gradient:
        """The terms of all uses."""
        dense = [(use.left.values, use.right) for use in uses if isinstance(use.left, Vectors)]
        looked_up = [(use.left.values, use.right) for use in uses if isinstance(use.left, Indices)]
        left = joined([values for values, _ in dense], [values for values, _ in looked_up])
        return cls(left, torch.cat([right for _, right in dense + looked_up], 1), uses[0].height)
