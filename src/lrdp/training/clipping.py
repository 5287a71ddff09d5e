"""Clipping: how long each example's gradient is, and by how much it is shortened."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.training.rounding import clip_target, inflation, meeting_limit

_BLOCK = 2048
# A gradient that would have to be shortened by more is given up: its coefficient would come near the smallest floats,
# which round by any share of themselves.
_LEAST_COEFFICIENT = 2.0**-100
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


def coefficients(lengths: Lengths, clip_norm: float, dtype: torch.dtype) -> Tensor:
    """What each example's gradient is multiplied by: at most 1, and small enough for its norm and for its rounding.

    Guarantees: 0 for what is not finite, so that one such record contributes nothing instead of showing itself; and
    for gradients with weights of type ``dtype`` the computed sum moves by at most ``clip_norm`` with one example.
    """
    norms, roundings = lengths.squares.sqrt(), lengths.roundings.sqrt()
    found = (clip_target(clip_norm, dtype) / norms).clamp(max=1.0)
    found = torch.minimum(found, meeting_limit(clip_norm, dtype) / roundings)
    usable = torch.isfinite(norms) & torch.isfinite(roundings) & (found >= _LEAST_COEFFICIENT)
    return torch.where(usable, found, 0.0)
