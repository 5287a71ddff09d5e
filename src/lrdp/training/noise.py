"""Gaussian noise that no float betrays: 53-bit uniforms, Box–Muller in float64, snapped to a grid before the cast.

In float32, a quarter of the outputs at σ = 1 can arise only with some record or only without it (docs/pitfalls.md).
Here sum and noise meet in float64, and what is released is a multiple of 2^-20 of the noise's own scale.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lrdp.training.keystream import Keystream

GRID_BITS = 20
_CHUNK = 1 << 16  # values at a time: 64 Ki stay in the second-level cache, and no second copy of the model is made


def grid_step(deviation: float) -> float:
    """The grid's step: 2^-20 of the largest power of two that is at most ``deviation``."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)


def standard_normals(count: int, stream: Keystream) -> Tensor:
    """``count`` independent standard normals in float64, tails to 8.57 standard deviations."""
    half = (count + 1) // 2
    radius = torch.from_numpy(stream.uniforms(half)).log_().mul_(-2.0).sqrt_()
    angle = torch.from_numpy(stream.uniforms(half)).mul_(2.0 * math.pi)
    values = torch.empty(2 * half, dtype=torch.float64)
    torch.cos(angle, out=values[:half]).mul_(radius)
    torch.sin(angle, out=values[half:]).mul_(radius)
    return values[:count]


def add_noise(total: Tensor, deviation: float, stream: Keystream) -> None:
    """Add noise of ``deviation`` to every element of ``total``, in place.

    Guarantees: the sum is taken in float64 and snapped to the grid; rounding to the tensor's type comes after.
    """
    flat = total.view(-1)
    step = grid_step(deviation)
    for start in range(0, flat.numel(), _CHUNK):
        part = flat[start : start + _CHUNK]
        noisy = standard_normals(part.numel(), stream).mul_(deviation)
        noisy += part.to(device="cpu", dtype=torch.float64)
        part.copy_(noisy.div_(step).round_().mul_(step))
