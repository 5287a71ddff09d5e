"""Left factors of outer products: dense vectors, one-hot vectors kept as indices, or both (a tied embedding)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.protocol import live, meetings
from lrdp.training.gradients.weighted import add_up, products
from lrdp.training.rounding import Meeting, meeting


class LeftFactors(Protocol):
    """The left factors of all terms, [rows, terms, height]."""

    @property
    def products(self) -> int:
        """How many products an inner product of two terms adds up."""

    def meeting(self, right: Tensor) -> Meeting:
        """Which rows may be added up together."""

    def part(self, chosen: slice) -> LeftFactors:
        """Those of some rows."""

    def squares(self) -> Tensor:
        """Σ_t ‖left_t‖² for each row, never below the truth."""

    def gram(self, room: Tensor) -> None:
        """Write the inner products of all terms of a row: [rows, terms, terms]."""

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

    def meeting(self, right: Tensor) -> Meeting:
        return meeting(right.shape[1], right.dtype)

    def part(self, chosen: slice) -> Vectors:
        return Vectors(self.values[chosen])

    def squares(self) -> Tensor:
        return row_squares(self.values)

    def gram(self, room: Tensor) -> None:
        torch.bmm(self.values, self.values.transpose(1, 2), out=room)

    def times(self, right: Tensor, height: int) -> Tensor:  # noqa: ARG002 - the values know their height
        return torch.bmm(self.values.transpose(1, 2), right)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        for _, found in products(self.values, right, weights, self.meeting(right).rows):
            add_up(found, total)


@dataclass(frozen=True)
class Indices:
    """One-hot: ``values`` is [rows, terms], the place of each one."""

    values: Tensor

    @property
    def products(self) -> int:
        return 1

    def meeting(self, right: Tensor) -> Meeting:
        return meeting(right.shape[1], right.dtype)

    def part(self, chosen: slice) -> Indices:
        return Indices(self.values[chosen])

    def squares(self) -> Tensor:
        return torch.full(self.values.shape[:1], float(self.values.shape[1]), device=self.values.device)

    def gram(self, room: Tensor) -> None:
        room.copy_(self.values[:, :, None] == self.values[:, None, :])

    def times(self, right: Tensor, height: int) -> Tensor:
        rows, _, width = right.shape
        offsets = torch.arange(rows, device=right.device)[:, None] * height
        sums = right.new_zeros(rows * height, width)
        return sums.index_add_(0, (self.values + offsets).flatten(), right.flatten(0, 1)).view(rows, height, width)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Added up by meeting and place, in as many rows as there are terms, whether their places differ or not."""
        together, height = self.meeting(right).rows, len(total)
        for part in meetings(len(right), together, together * right[0].nbytes):
            places, inverse = _unique(self.part(part).places(together, height))
            scaled = live(right[part] * weights[part, None, None], weights[part]).flatten(0, 1)
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

    def meeting(self, right: Tensor) -> Meeting:
        return self.vectors.meeting(right)

    def part(self, chosen: slice) -> VectorsAndIndices:
        return VectorsAndIndices(self.vectors.part(chosen), self.indices.part(chosen))

    def squares(self) -> Tensor:
        return self.vectors.squares() + self.indices.squares()

    def gram(self, room: Tensor) -> None:
        vectors, indices = self.vectors.values, self.indices.values
        terms = vectors.shape[1]
        across = vectors.gather(2, indices[:, None, :].expand(-1, terms, -1))
        room[:, :terms, :terms] = vectors @ vectors.transpose(1, 2)
        room[:, :terms, terms:], room[:, terms:, :terms] = across, across.transpose(1, 2)
        self.indices.gram(room[:, terms:, terms:])

    def times(self, right: Tensor, height: int) -> Tensor:
        first, second = self._split(right)
        return self.vectors.times(first, height) + self.indices.times(second, height)

    def add_product(self, right: Tensor, weights: Tensor, total: Tensor) -> None:
        """Both kinds of terms of a meeting come together before it is added: either alone may be far longer."""
        first, second = self._split(right)
        together = self.meeting(right).rows
        for part, found in products(self.vectors.values, first, weights, together):
            scaled = live(second[part] * weights[part, None, None], weights[part]).flatten(0, 1)
            places = self.indices.part(part).places(together, found.shape[1])
            found.view(-1, scaled.shape[1]).index_add_(0, places, scaled)
            add_up(found, total)

    def _split(self, right: Tensor) -> tuple[Tensor, Tensor]:
        terms = self.vectors.values.shape[1]
        return right[:, :terms], right[:, terms:]


def _unique(values: Tensor) -> tuple[Tensor, Tensor]:
    found: tuple[Tensor, Tensor] = torch.unique(values, return_inverse=True)
    return found


def joined(vectors: Sequence[Tensor], indices: Sequence[Tensor]) -> LeftFactors:
    """All terms in one: the vectors, then the indices; either may be missing."""
    if not indices:
        return Vectors(torch.cat(list(vectors), 1))
    ones = Indices(torch.cat(list(indices), 1))
    return VectorsAndIndices(Vectors(torch.cat(list(vectors), 1)), ones) if vectors else ones
