"""Which tensors have one row for each example: what only happens to be as long as the batch is found out by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


class Batched:
    """Learnt from made-up batches of several sizes, since one alone can deceive; nothing from private ones."""

    def __init__(self) -> None:
        self._known: dict[Any, tuple[bool, ...]] = {}
        self._learning = True

    def settle(self) -> None:
        """Learn no more."""
        self._learning = False

    def among(self, place: Any, leaves: Sequence[Any], rows: int) -> tuple[bool, ...]:
        """Whether each of the leaves seen at ``place`` had ``rows`` rows in every batch so far, whatever its size."""
        now = tuple(isinstance(leaf, Tensor) and leaf.dim() > 0 and len(leaf) == rows for leaf in leaves)
        before = self._known.get(place, now)
        if len(before) != len(now):  # another form than was learnt: nothing is known of it
            return (False,) * len(now)
        found = tuple(a and b for a, b in zip(now, before, strict=True))
        if self._learning:
            self._known[place] = found
        return found
