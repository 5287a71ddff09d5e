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
from lrdp.training.gradients.dense import Dense
from lrdp.training.gradients.factors import Indices, Left, Vectors, joined
from lrdp.training.gradients.protocol import KEPT_BYTES, Gradient, chunks, rounding_allowance


@dataclass(frozen=True)
class Factored:
    """The terms of one weight of shape [height, width]; ``right`` is [rows, terms, width]."""

    left: Left
    right: Tensor
    height: int

    def measure(self) -> tuple[Tensor, Gradient]:
        """By Gram matrices, or multiplied out where the weight is smaller than they are."""
        count, terms, width = self.right.shape
        if terms == 1:
            return self.left.squares() * row_squares(self.right), self
        if 2 * terms * terms <= self.height * width:
            return self._squares_by_gram(), self
        bytes_each = self.height * width * self.right.element_size()
        if count * bytes_each <= KEPT_BYTES:
            return Dense(self.rows(slice(None))).measure()
        return torch.cat([row_squares(self.rows(part)) for part in chunks(count, bytes_each)]), self

    def _squares_by_gram(self) -> Tensor:
        count, terms, _ = self.right.shape
        squares = []
        for chosen in chunks(count, 2 * terms * terms * self.right.element_size()):
            part = self._part(chosen)
            products = torch.bmm(part.right, part.right.transpose(1, 2)).mul_(part.left.gram(part.left))
            allowance = rounding_allowance(products.diagonal(dim1=1, dim2=2), self.right.dtype)
            squares.append(products.sum((1, 2)) + allowance)
        return torch.cat(squares)

    def _part(self, chosen: slice) -> Factored:
        return Factored(self.left.part(chosen), self.right[chosen], self.height)

    def rows(self, chosen: slice) -> Tensor:
        part = self._part(chosen)
        return part.left.times(part.right, self.height).flatten(1)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        """In chunks of rows, so that the scaled copy stays small."""
        count, terms, width = self.right.shape
        for chosen in chunks(count, terms * min(width, self.height) * self.right.element_size()):
            part = self._part(chosen)
            part.left.add_product(part.right, weights[chosen], total)

    def without(self, dead: Tensor) -> Gradient:
        return Factored(self.left.without(dead), self.right.masked_fill(dead[:, None, None], 0.0), self.height)

    @classmethod
    def join(cls, uses: Sequence[Factored]) -> Gradient:
        """The terms of all uses."""
        dense = [(use.left.values, use.right) for use in uses if isinstance(use.left, Vectors)]
        looked_up = [(use.left.values, use.right) for use in uses if isinstance(use.left, Indices)]
        left = joined([values for values, _ in dense], [values for values, _ in looked_up])
        return cls(left, torch.cat([right for _, right in dense + looked_up], 1), uses[0].height)
