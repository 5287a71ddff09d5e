"""Noise by torch's own functions, on any device: the reference for all others."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lrdp.training.keystream import Keystream
from lrdp.training.noise import chacha
from lrdp.training.noise.grid import Grid

_FRACTION_BITS = (1 << 52) - 1
_MINUS_ONE = (0xBFF << 52) - (1 << 64)  # the bits of the float -1, as a signed integer


class Plain:
    """Noise for tensors on one device, at most ``chunk`` values at a time.

    Two buffers are kept from one tensor to the next: new ones would cost a page fault per 512 values.
    """

    def __init__(self, grid: Grid, fill: Callable[[Tensor], object], chunk: int, device: torch.device) -> None:
        self._grid, self._fill, self._chunk = grid, fill, chunk
        self._root = _root_here if device.type == "cpu" else Tensor.sqrt_
        self._words = torch.empty(chunk, dtype=torch.int64, device=device)
        self._values = torch.empty(chunk, dtype=torch.float64, device=device)

    def add_to(self, flat: Tensor) -> None:
        """Add noise in float64, snap, and only then round to the tensor's type."""
        for start in range(0, flat.numel(), self._chunk):
            part = flat[start : start + self._chunk]
            noisy = self._in_steps(part.numel()).add_(part, alpha=1.0 / self._grid.step)
            part.copy_(noisy.round_().mul_(self._grid.step))

    def _in_steps(self, count: int) -> Tensor:
        """``count`` normals by Box and Muller, tails to 8.49 deviations, in units of the grid's step.

        Each call overwrites the one before. A uniform lies in (0, 1]: never 0, so its logarithm is finite.
        """
        half = (count + 1) // 2
        words, values = self._words[: 2 * half], self._values
        self._fill(words)
        words.bitwise_and_(_FRACTION_BITS).bitwise_or_(_MINUS_ONE)  # read as floats: uniform in (-2, -1]
        uniforms = words.view(torch.float64).add_(2.0)
        radius = self._root(uniforms[:half].log_().mul_(self._grid.stretch))
        angle = uniforms[half:].mul_(2.0 * math.pi)
        torch.cos(angle, out=values[:half]).mul_(radius)
        torch.sin(angle, out=values[half : 2 * half]).mul_(radius)
        return values[:count]


def here(grid: Grid, stream: Keystream, chunk: int = 1 << 18) -> Plain:
    """On the CPU: two buffers of 2 MB, and no second copy of the model."""
    return Plain(grid, lambda words: stream.fill(words.numpy().view(np.uint64)), chunk, torch.device("cpu"))


def there(grid: Grid, stream: Keystream, device: torch.device, chunk: int = 1 << 20) -> Plain:
    """On another device: nothing but a key of 32 bytes goes there, once per million values."""
    return Plain(grid, lambda words: chacha.fill(words, stream.key()), chunk, device)


def _root_here(values: Tensor) -> Tensor:
    """numpy's root is twice as fast as torch's; for logarithm, sine and cosine it is the other way round."""
    np.sqrt(values.numpy(), out=values.numpy())
    return values
