"""Left factors of outer products: dense vectors, one-hot vectors kept as indices, or both (a tied embedding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.protocol import live
from lrdp.training.rounding import Meeting, meeting


class Left(Protocol):
    """The left factors of all terms, [rows, terms, height]."""

    @property
    def products(self) -> int:
        """How many products an inner product of two terms adds up."""

    def product_size(self, width: int) -> int:
        """How many elements one meeting's product holds, apart from the factors themselves."""

    def meeting(self, right: Tensor) -> Meeting:
        """Which rows may be added up together."""

    def part(self, chosen: slice) -> Left:
        """Those of some rows."""

    def squares(self) -> Tensor:
        """Σ_t ‖left_t‖² for each row, never below the truth."""

    def gram(self) -> Tensor:
        """Inner products of all terms of a row: [rows, terms, terms]."""

    def times(self, right: Tensor, height: int) -> Tensor:
        """Σ_t left_t ⊗ right_t for each row: [rows, height, width]."""

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Add Σ weight · left_t ⊗ right_t over all rows to ``total``, by meeting; those of weight 0 are taken out."""


@dataclass(frozen=True)
class Vectors:
    """Dense: ``values`` is [rows, terms, height]."""

    values: Tensor

    @property
    def products(self) -> int:
        return self.values.shape[2]

    def product_size(self, width: int) -> int:
        return self.values.shape[2] * width

    def meeting(self, right: Tensor) -> Meeting:
        return meeting(right.shape[1], right.dtype)

    def part(self, chosen: slice) -> Vectors:
        return Vectors(self.values[chosen])

    def squares(self) -> Tensor:
        return row_squares(self.values)

    def gram(self) -> Tensor:
        return torch.bmm(self.values, self.values.transpose(1, 2))

    def times(self, right: Tensor, height: int) -> Tensor:  # noqa: ARG002 - the values know their height
        return torch.bmm(self.values.transpose(1, 2), right)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        total.add_(self.by_meeting(right, weights, self.meeting(right).rows).sum(0, dtype=total.dtype))

    def by_meeting(self, right: Tensor, weights: Tensor, together: int) -> Tensor:
        """One matrix product for each meeting, [meetings, height, width]; the narrower factor is scaled."""
        left, scale = self.values, weights[:, None, None]
        narrow = left.shape[2] <= right.shape[2]
        left, right = (left * scale, right.clone()) if narrow else (left.clone(), right * scale)
        meet = max(1, len(right) // together)
        left, right = (live(values, weights).reshape(meet, -1, values.shape[2]) for values in (left, right))
        return torch.bmm(left.transpose(1, 2), right)


@dataclass(frozen=True)
class Indices:
    """One-hot: ``values`` is [rows, terms], the place of each one."""

    values: Tensor

    @property
    def products(self) -> int:
        return 1

    def product_size(self, width: int) -> int:  # noqa: ARG002 - sums are as long as the terms
        return 0

    def meeting(self, right: Tensor) -> Meeting:
        return meeting(right.shape[1], right.dtype)

    def part(self, chosen: slice) -> Indices:
        return Indices(self.values[chosen])

    def squares(self) -> Tensor:
        return torch.full(self.values.shape[:1], float(self.values.shape[1]), device=self.values.device)

    def gram(self) -> Tensor:
        return self.values[:, :, None] == self.values[:, None, :]

    def times(self, right: Tensor, height: int) -> Tensor:
        rows, _, width = right.shape
        offsets = torch.arange(rows, device=right.device)[:, None] * height
        sums = right.new_zeros(rows * height, width)
        return sums.index_add_(0, (self.values + offsets).flatten(), right.flatten(0, 1)).view(rows, height, width)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Added up by meeting and place, in as many rows as there are terms, whether their places differ or not."""
        height = len(total)
        places, inverse = _unique(self.places(self.meeting(right).rows, height))
        scaled = live(right * weights[:, None, None], weights).flatten(0, 1)
        sums = torch.zeros_like(scaled).index_add_(0, inverse, scaled)
        total.index_add_(0, places % height, sums[: len(places)].to(total.dtype))

    def places(self, together: int, height: int) -> Tensor:
        """The place of each term, counted on from meeting to meeting."""
        meeting_of_row = torch.arange(len(self.values), device=self.values.device)[:, None] // together
        return (self.values + meeting_of_row * height).flatten()


@dataclass(frozen=True)
class VectorsAndIndices:
    """The terms of both, vectors first: a weight that is looked up and multiplied with."""

    vectors: Vectors
    indices: Indices

    @property
    def products(self) -> int:
        return self.vectors.products

    def product_size(self, width: int) -> int:
        return self.vectors.product_size(width)

    def meeting(self, right: Tensor) -> Meeting:
        return self.vectors.meeting(right)

    def part(self, chosen: slice) -> VectorsAndIndices:
        return VectorsAndIndices(self.vectors.part(chosen), self.indices.part(chosen))

    def squares(self) -> Tensor:
        return self.vectors.squares() + self.indices.squares()

    def gram(self) -> Tensor:
        vectors, indices = self.vectors.values, self.indices.values
        across = vectors.gather(2, indices[:, None, :].expand(-1, vectors.shape[1], -1))
        above = torch.cat([self.vectors.gram(), across], 2)
        below = torch.cat([across.transpose(1, 2), self.indices.gram().to(across.dtype)], 2)
        return torch.cat([above, below], 1)

    def times(self, right: Tensor, height: int) -> Tensor:
        first, second = self._split(right)
        return self.vectors.times(first, height) + self.indices.times(second, height)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Both kinds of terms of a meeting come together before it is added: either alone may be far longer."""
        first, second = self._split(right)
        together = self.meeting(right).rows
        products = self.vectors.by_meeting(first, weights, together)
        scaled = live(second * weights[:, None, None], weights).flatten(0, 1)
        products.view(-1, scaled.shape[1]).index_add_(0, self.indices.places(together, products.shape[1]), scaled)
        total.add_(products.sum(0, dtype=total.dtype))

    def _split(self, right: Tensor) -> tuple[Tensor, Tensor]:
        terms = self.vectors.values.shape[1]
        return right[:, :terms], right[:, terms:]


def _unique(values: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = torch.unique(values, return_inverse=True)
    return found


def joined(vectors: Sequence[Tensor], indices: Sequence[Tensor]) -> Left:
    """All terms in one: the vectors, then the indices; either may be missing."""
    if not indices:
        return Vectors(torch.cat(list(vectors), 1))
    ones = Indices(torch.cat(list(indices), 1))
    return VectorsAndIndices(Vectors(torch.cat(list(vectors), 1)), ones) if vectors else ones
