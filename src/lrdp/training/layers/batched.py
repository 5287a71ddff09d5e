"""Which tensors have one row for each example: what only happens to be as long as the batch is found out by another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor


class Batched:
    """Learnt from made-up batches of several sizes, since one alone can deceive; nothing from private ones."""

    def __init__(self) -> None:
        self._known: dict[tuple[Any, tuple[bool, ...]], tuple[bool, ...]] = {}
        self._learning = True

    def settle(self) -> None:
        """Learn no more."""
        self._learning = False

    def among(self, place: Any, leaves: Sequence[Any], rows: int) -> tuple[bool, ...]:
        """Whether each of the leaves seen at ``place`` had ``rows`` rows in every batch so far, whatever its size.

        Leaves of another form, such as a first state that is none, are another place. Of what was never learnt nothing
        is known.
        """
        tensors = tuple(isinstance(leaf, Tensor) for leaf in leaves)
        now = tuple(
            tensor and leaf.dim() > 0 and len(leaf) == rows for leaf, tensor in zip(leaves, tensors, strict=True)
        )
        before = self._known.get((place, tensors), now if self._learning else (False,) * len(now))
        found = tuple(a and b for a, b in zip(now, before, strict=True))
        if self._learning:
            self._known[place, tensors] = found
        return found
