"""Gaussian noise that no float betrays: 52-bit uniforms, Box–Muller in float64, snapped to a grid before the cast.

In float32, a quarter of the outputs at σ = 1 can arise only with some record or only without it (docs/pitfalls.md).
Here sum and noise meet in float64, and what is released is a multiple of 2^-20 of the noise's own scale.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lrdp.training.keystream import Keystream

GRID_BITS = 20
_CHUNK = 1 << 18  # values at a time: two buffers of 2 MB, and no second copy of the model


def grid_step(deviation: float) -> float:
    """The grid's step: 2^-20 of the largest power of two that is at most ``deviation``."""
    return math.ldexp(1.0, math.frexp(deviation)[1] - 1 - GRID_BITS)


class Noise:
    """Gaussian noise of one ``deviation``, for as many tensors as need be.

    Two buffers are kept from one tensor to the next: new ones would cost a page fault per 512 values.
    """

    def __init__(self, deviation: float, stream: Keystream) -> None:
        self._step, self._stream = grid_step(deviation), stream
        self._stretch = -2.0 * (deviation / self._step) ** 2
        self._uniforms, self._values = np.empty(_CHUNK), torch.empty(_CHUNK, dtype=torch.float64)

    def add_to(self, total: Tensor) -> None:
        """Add noise to every element of ``total``, in place.

        Guarantees: the sum is taken in float64 and snapped to the grid; rounding to the tensor's type comes after.
        """
        flat = total.view(-1)
        for start in range(0, flat.numel(), _CHUNK):
            part = flat[start : start + _CHUNK]
            noisy = self._in_steps(part.numel()).add_(part.cpu(), alpha=1.0 / self._step)
            part.copy_(noisy.round_().mul_(self._step))

    def _in_steps(self, count: int) -> Tensor:
        """``count`` normals by Box and Muller, tails to 8.49 deviations, in units of the grid's step.

        The step is a power of two, so what is counted in it loses nothing. Each call overwrites the one before.
        """
        half = (count + 1) // 2
        self._stream.fill_uniforms(self._uniforms[: 2 * half])
        uniforms, values = torch.from_numpy(self._uniforms), self._values
        radius = uniforms[:half].log_().mul_(self._stretch)
        np.sqrt(radius.numpy(), out=radius.numpy())  # of numpy's and torch's, the faster of each function is called
        angle = uniforms[half : 2 * half].mul_(2.0 * math.pi)
        torch.cos(angle, out=values[:half]).mul_(radius)
        torch.sin(angle, out=values[half : 2 * half]).mul_(radius)
        return values[:count]
