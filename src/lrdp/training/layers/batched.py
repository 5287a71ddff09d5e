"""Which tensors have rows for each example: one that only happens to be as long as a batch is found out by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


class Batched:
    """Learnt from made-up batches of several sizes, since one alone can deceive; nothing from private ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, tuple[bool, ...]], tuple[int, ...]] = {}
        self._learning = True

    def settle(self) -> None:
        """Learn no more."""
        self._learning = False

    def among(self, place: Any, leaves: Sequence[Any], rows: int) -> tuple[int, ...]:
        """How many rows for each of ``rows`` examples each of the leaves at ``place`` had in every batch so far.

        It is 0 for what has none, or another number of them in a batch of another size. Leaves of another form, such as
        a first state that is None, are another place. Nothing is known of what was never learnt.
        """
        tensors = tuple(isinstance(leaf, Tensor) for leaf in leaves)
        now = tuple(_rows_each(leaf, rows) if tensor else 0 for leaf, tensor in zip(leaves, tensors, strict=True))
        before = self._known.get((place, tensors), now if self._learning else (0,) * len(now))
        found = tuple(a if a == b else 0 for a, b in zip(now, before, strict=True))
        if self._learning:
            self._known[place, tensors] = found
        return found


def _rows_each(leaf: Tensor, rows: int) -> int:
    return 0 if leaf.dim() == 0 or len(leaf) % rows else len(leaf) // rows
