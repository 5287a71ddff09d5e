"""Left factors of outer products: dense vectors, one-hot vectors kept as indices, or both (a tied embedding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares


class Left(Protocol):
    """The left factors of all terms, [rows, terms, height]."""

    def part(self, chosen: slice) -> Left:
        """Those of some rows."""

    def squares(self) -> Tensor:
        """Σ_t ‖left_t‖² for each row."""

    def gram(self, other: Left) -> Tensor:
        """Inner products of own terms with the other's: [rows, own terms, other terms]."""

    def gram_with_vectors(self, vectors: Tensor) -> Tensor:
        """Inner products of own terms with ``vectors``."""

    def gram_with_indices(self, indices: Tensor) -> Tensor:
        """Inner products of own terms with the one-hot vectors of ``indices``."""

    def times(self, right: Tensor, height: int) -> Tensor:
        """Σ_t left_t ⊗ right_t for each row: [rows, height, width]."""

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Add Σ weight · left_t ⊗ right_t over all rows and terms to ``total``."""

    def without(self, dead: Tensor) -> Left:
        """The same with zero in the rows marked dead."""


@dataclass(frozen=True)
class Vectors:
    """Dense: ``values`` is [rows, terms, height]."""

    values: Tensor

    def part(self, chosen: slice) -> Vectors:
        return Vectors(self.values[chosen])

    def squares(self) -> Tensor:
        return row_squares(self.values)

    def gram(self, other: Left) -> Tensor:
        return other.gram_with_vectors(self.values).transpose(1, 2)

    def gram_with_vectors(self, vectors: Tensor) -> Tensor:
        return torch.bmm(self.values, vectors.transpose(1, 2))

    def gram_with_indices(self, indices: Tensor) -> Tensor:
        return self.values.gather(2, indices[:, None, :].expand(-1, self.values.shape[1], -1))

    def times(self, right: Tensor, height: int) -> Tensor:  # noqa: ARG002 - the values know their height
        return torch.bmm(self.values.transpose(1, 2), right)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """One matrix product over all rows and terms; the narrower factor is scaled."""
        left, scale = self.values, weights[:, None, None]
        if left.shape[2] <= right.shape[2]:
            left = left * scale
        else:
            right = right * scale
        total.addmm_(left.flatten(0, 1).t(), right.flatten(0, 1))

    def without(self, dead: Tensor) -> Vectors:
        return Vectors(self.values.masked_fill(dead[:, None, None], 0.0))


@dataclass(frozen=True)
class Indices:
    """One-hot: ``values`` is [rows, terms], the place of each one."""

    values: Tensor

    def part(self, chosen: slice) -> Indices:
        return Indices(self.values[chosen])

    def squares(self) -> Tensor:
        return torch.full(self.values.shape[:1], float(self.values.shape[1]), device=self.values.device)

    def gram(self, other: Left) -> Tensor:
        return other.gram_with_indices(self.values).transpose(1, 2)

    def gram_with_vectors(self, vectors: Tensor) -> Tensor:
        return Vectors(vectors).gram_with_indices(self.values).transpose(1, 2)

    def gram_with_indices(self, indices: Tensor) -> Tensor:
        return self.values[:, :, None] == indices[:, None, :]

    def times(self, right: Tensor, height: int) -> Tensor:
        rows, _, width = right.shape
        offsets = torch.arange(rows, device=right.device)[:, None] * height
        sums = right.new_zeros(rows * height, width)
        return sums.index_add_(0, (self.values + offsets).flatten(), right.flatten(0, 1)).view(rows, height, width)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        total.index_add_(0, self.values.flatten(), (right * weights[:, None, None]).flatten(0, 1))

    def without(self, dead: Tensor) -> Indices:  # noqa: ARG002 - the right factor of a dead row is zero, and an index is finite
        return self


@dataclass(frozen=True)
class VectorsAndIndices:
    """The terms of both, vectors first: a weight that is looked up and multiplied with."""

    vectors: Vectors
    indices: Indices

    def part(self, chosen: slice) -> VectorsAndIndices:
        return VectorsAndIndices(self.vectors.part(chosen), self.indices.part(chosen))

    def squares(self) -> Tensor:
        return self.vectors.squares() + self.indices.squares()

    def gram(self, other: Left) -> Tensor:
        return torch.cat([self.vectors.gram(other), self.indices.gram(other)], 1)

    def gram_with_vectors(self, vectors: Tensor) -> Tensor:
        return torch.cat([self.vectors.gram_with_vectors(vectors), self.indices.gram_with_vectors(vectors)], 1)

    def gram_with_indices(self, indices: Tensor) -> Tensor:
        return torch.cat([self.vectors.gram_with_indices(indices), self.indices.gram_with_indices(indices)], 1)

    def times(self, right: Tensor, height: int) -> Tensor:
        first, second = self._split(right)
        return self.vectors.times(first, height) + self.indices.times(second, height)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        first, second = self._split(right)
        self.vectors.add_product(first, weights, total)
        self.indices.add_product(second, weights, total)

    def without(self, dead: Tensor) -> VectorsAndIndices:
        return VectorsAndIndices(self.vectors.without(dead), self.indices)

    def _split(self, right: Tensor) -> tuple[Tensor, Tensor]:
        terms = self.vectors.values.shape[1]
        return right[:, :terms], right[:, terms:]


def joined(vectors: Sequence[Tensor], indices: Sequence[Tensor]) -> Left:
    """All terms in one: the vectors, then the indices; either may be missing."""
    if not indices:
        return Vectors(torch.cat(list(vectors), 1))
    ones = Indices(torch.cat(list(indices), 1))
    return VectorsAndIndices(Vectors(torch.cat(list(vectors), 1)), ones) if vectors else ones
