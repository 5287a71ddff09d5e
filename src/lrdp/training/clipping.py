"""Clipping: how long each example's gradient is, and by how much it is shortened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.rounding import clip_target, inflation, meeting_limit

_BLOCK = 2048
# A gradient that would have to be shortened by more is given up: its coefficient would come near the smallest floats,
# which round by any share of themselves.
_LEAST_COEFFICIENT = 2.0**-100
# None is lengthened by more: what its factors lose among the smallest floats is lengthened too (docs/training.md).
_LARGEST_COEFFICIENT = 2.0**10
WIDE = torch.float64


@dataclass(frozen=True)
class Lengths:
    """Squares of two lengths of each example, never below the truth: its gradient, and what rounding it may cause.

    Both are over all trained parameters together, and private.
    """

    squares: Tensor
    roundings: Tensor


def row_squares(values: Tensor) -> Tensor:
    """The squared norm of each row, in float64.

    Guarantees: never below the truth, whatever the order in which a kernel adds; at most 2.5e-4 above it, or infinite
    where the square leaves the values' own type, so that no finite row has an element above 2^64 in float32. A plain
    float32 sum falls short by 7.5e-4 at 16.8 million elements, and squares of tiny values vanish.
    """
    flat = values.flatten(1)
    columns = flat.shape[1]
    whole = columns // _BLOCK * _BLOCK
    squares = _squared_norm(flat[:, whole:])
    if whole:
        squares += _squared_norm(flat[:, :whole].view(len(flat), -1, _BLOCK)).sum(1)
    kind = torch.finfo(values.dtype)
    squares.mul_(inflation(min(columns, _BLOCK), values.dtype)).add_(columns * kind.tiny)
    return squares.masked_fill_(squares > kind.max, torch.inf)


def _squared_norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.to(WIDE).square_()


@dataclass(frozen=True)
class FlatClipping:
    """Shortened to the clip norm where they are longer, otherwise left as they are: min(1, C/‖g‖).

    >>> FlatClipping().scales(torch.tensor([0.5, 4.0]), 1.0)
    tensor([1.0000, 0.2500])
    """

    def scales(self, norms: Tensor, longest: float) -> Tensor:
        """What gradients of these lengths are multiplied by, each according to its own length alone."""
        return (longest / norms).clamp(max=1.0)


@dataclass(frozen=True, kw_only=True)
class AutomaticClipping:
    """All brought close to the clip norm, short ones by being lengthened: C/(‖g‖ + γ), arXiv 2206.07136.

    ``gamma`` says what is short. Steps then scale with C, which becomes a part of the learning rate.

    >>> AutomaticClipping(gamma=0.5).scales(torch.tensor([0.5, 4.5]), 1.0)
    tensor([1.0000, 0.2000])
    """

    gamma: float = 0.01

    def __post_init__(self) -> None:
        limits.keep(self, gamma=limits.positive("gamma", self.gamma, "without it a zero gradient has no finite scale"))

    def scales(self, norms: Tensor, longest: float) -> Tensor:
        """What gradients of these lengths are multiplied by, each according to its own length alone."""
        return longest / (norms + self.gamma)


Clipping = FlatClipping | AutomaticClipping
"""A public choice of what becomes of gradients. Nobody brings their own: one that saw all lengths would tie records."""
FLAT: Clipping = FlatClipping()


def check_clipping(given: object) -> None:
    """Refuse what is neither."""
    if type(given) not in (FlatClipping, AutomaticClipping):
        raise InvalidInput(
            f"clipping must be FlatClipping() or AutomaticClipping(gamma=…), got {type(given).__name__}: one that "
            f"looks at several gradients would tie records together."
        )


def coefficients(lengths: Lengths, clip_norm: float, dtype: torch.dtype, clipping: Clipping = FLAT) -> Tensor:
    """What each example's gradient is multiplied by: small enough for its norm and for its rounding.

    Guarantees: 0 for what is not finite, so that one such record contributes nothing instead of showing itself; and
    for gradients with weights of type ``dtype`` the computed sum moves by at most ``clip_norm`` with one example.
    """
    norms, roundings = lengths.squares.sqrt(), lengths.roundings.sqrt()
    longest = clip_target(clip_norm, dtype)
    found = clipping.scales(norms, longest).clamp(max=_LARGEST_COEFFICIENT)
    found = torch.minimum(found, longest / norms)
    found = torch.minimum(found, meeting_limit(clip_norm, dtype) / roundings)
    usable = torch.isfinite(norms) & torch.isfinite(roundings) & (found >= _LEAST_COEFFICIENT)
    return torch.where(usable, found, 0.0)
