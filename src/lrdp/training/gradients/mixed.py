"""A parameter used in several ways: its per-example gradient is the sum over the uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.protocol import Gradient, chunks


@dataclass(frozen=True)
class Mixed:
    """Uses in forms that have no common one: multiplied out, a few examples at a time."""

    uses: tuple[Gradient, ...]
    count: int

    def measure(self) -> tuple[Tensor, Gradient]:
        """The norm of the sum. The sum of the norms would be wrong: tied uses may add up or cancel."""
        first = self.rows(slice(0, 1))
        parts = chunks(self.count, first.numel() * first.element_size())
        return torch.cat([row_squares(self.rows(part)) for part in parts]), self

    def rows(self, chosen: slice) -> Tensor:
        return torch.stack([use.rows(chosen) for use in self.uses]).sum(0)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        for use in self.uses:
            use.add_to(total, weights)

    def without(self, dead: Tensor) -> Gradient:
        return Mixed(tuple(use.without(dead) for use in self.uses), self.count)

    @classmethod
    def join(cls, uses: Sequence[Mixed]) -> Gradient:
        return cls(tuple(part for use in uses for part in use.uses), uses[0].count)


def combine(uses: Sequence[Gradient], count: int) -> Gradient:
    """The per-example gradient of a parameter over all its uses, for ``count`` examples."""
    kinds: dict[type[Gradient], list[Gradient]] = {}
    for use in uses:
        kinds.setdefault(type(use), []).append(use)
    joined = tuple(same[0] if len(same) == 1 else kind.join(same) for kind, same in kinds.items())
    return joined[0] if len(joined) == 1 else Mixed(joined, count)
