"""Clipping: how long each example's gradient is, and by how much it is shortened."""

from __future__ import annotations

import torch
from torch import Tensor

# The share of the clip norm kept free for rounding: of norms taken by Gram matrices, of weighted sums, of the cast. Not
# a proof: 4096 aligned rows and cancelling terms are shown to stay within it (tests/training/test_clipping.py).
HEADROOM = {torch.float32: 2.0**-10, torch.float64: 2.0**-30}
_BLOCK = 2048


def wide(device: torch.device) -> torch.dtype:
    """The type that norms are added up in: float64, except where a device has none and the headroom must do."""
    return torch.float32 if device.type == "mps" else torch.float64


def row_squares(values: Tensor) -> Tensor:
    """The squared norm of each row, in the wide type.

    Guarantees: within 1e-6 for rows of any length. A plain float32 sum falls short by 7.5e-4 at 16.8 million elements,
    and a norm that is too small lets a gradient exceed the clip norm.
    """
    flat = values.flatten(1)
    whole = flat.shape[1] // _BLOCK * _BLOCK
    tail = _squared_norm(flat[:, whole:])
    if whole == 0:
        return tail
    return _squared_norm(flat[:, :whole].view(len(flat), -1, _BLOCK)).sum(1) + tail


def _squared_norm(values: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(values, dim=-1)
    return norms.to(wide(norms.device)).square_()


def safe_bound(clip_norm: float, dtype: torch.dtype) -> float:
    """The norm to clip to, so that after all rounding no example moves the sum by more than ``clip_norm``."""
    return clip_norm * (1.0 - HEADROOM[dtype])


def coefficients(squares: Tensor, bound: float) -> Tensor:
    """What each example's gradient is multiplied by: min(1, bound / norm), and 0 where the norm is not finite.

    Guarantees: one infinite or undefined record contributes nothing, instead of showing itself in the sum.
    """
    norms = squares.clamp(min=0.0).sqrt()
    return torch.where(torch.isfinite(norms), (bound / norms).clamp(max=1.0), 0.0)
