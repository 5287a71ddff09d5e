"""Per-example gradients held as they are: right for small parameters (biases, normalisation)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.protocol import Gradient


@dataclass(frozen=True)
class Dense:
    """``values`` is [rows, elements]."""

    values: Tensor

    def measure(self) -> tuple[Tensor, Gradient]:
        """The norms of the rows."""
        return row_squares(self.values), self

    def rows(self, chosen: slice) -> Tensor:
        return self.values[chosen]

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        total.view(-1).addmv_(self.values.t(), weights)

    def without(self, dead: Tensor) -> Gradient:
        return Dense(self.values.masked_fill(dead[:, None], 0.0))

    @classmethod
    def join(cls, uses: Sequence[Dense]) -> Gradient:
        return cls(torch.stack([use.values for use in uses]).sum(0))
