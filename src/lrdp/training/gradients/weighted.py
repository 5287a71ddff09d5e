"""Weighted sums of outer products: one plain matrix product for each meeting, in buffers that serve them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.gradients.protocol import PRODUCT_BYTES, meetings


@dataclass(frozen=True)
class _Factor:
    """One factor of all terms, [rows, terms, width], and room for some of its rows: it is not ours to overwrite."""

    values: Tensor
    scale: Tensor
    room: Tensor

    def scaled(self, part: slice, dead: Tensor, meet: int) -> Tensor:
        """Some rows, scaled, zeros where they have no weight: [meetings, terms, width]."""
        room = self.room[: part.stop - part.start]
        torch.mul(self.values[part], self.scale[part, None, None], out=room)
        return room.index_fill_(0, dead, 0.0).view(meet, -1, room.shape[2])


def products(left: Tensor, right: Tensor, weights: Tensor, together: int) -> Iterator[tuple[slice, Tensor]]:
    """Slices of the rows, with Σ weight · left_t ⊗ right_t for each of their meetings: [meetings, height, width].

    The narrower factor is scaled. New memory for each slice would cost more in page faults than scaling does, so each
    product overwrites the one before.
    """
    height, width = left.shape[2], right.shape[2]
    elements = max(height * width, together * right.shape[1] * max(height, width))
    parts = list(meetings(len(right), together, elements * right.element_size(), most_bytes=PRODUCT_BYTES))
    most = max(part.stop - part.start for part in parts)
    ones = torch.ones_like(weights)
    scales = (weights, ones) if height <= width else (ones, weights)
    first, second = (
        _Factor(values, scale, values.new_empty(most, *values.shape[1:]))
        for values, scale in zip((left, right), scales, strict=True)
    )
    room = right.new_empty(max(1, most // together), height, width)
    for part in parts:
        meet = max(1, (part.stop - part.start) // together)
        dead = (weights[part] == 0).nonzero()[:, 0]
        lefts, rights = first.scaled(part, dead, meet), second.scaled(part, dead, meet)
        yield part, torch.bmm(lefts.transpose(1, 2), rights, out=room[:meet])


def add_up(found: Tensor, total: Tensor) -> None:
    """Add the products of some meetings to ``total``."""
    total.add_(found[0] if len(found) == 1 else found.sum(0, dtype=total.dtype))
