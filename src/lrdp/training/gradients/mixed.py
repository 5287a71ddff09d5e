"""A parameter used in several ways: its per-example gradient is the sum over the uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.gradients.dense import multiplied_out
from lrdp.training.gradients.protocol import Gradient, Measured


@dataclass(frozen=True)
class Mixed:
    """Uses in forms that have no common one: multiplied out, a few examples at a time."""

    uses: tuple[Gradient, ...]
    count: int

    def measure(self) -> Measured:
        """The norm of the sum. The sum of the norms would be wrong: tied uses may add up or cancel."""
        first = self.rows(slice(0, 1))
        return multiplied_out(self, self.count, first.numel(), first.dtype)

    def rows(self, chosen: slice) -> Tensor:
        return torch.stack([use.rows(chosen) for use in self.uses]).sum(0)

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
