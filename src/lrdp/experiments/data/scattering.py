"""Two layers of wavelets and moduli, which nobody trained: Mallat's scattering transform with J = 2 and L = 8.

For each picture the mean, 16 moduli of first order and 64 of second order (the finer scale first), each low-passed and
pooled to 4 × 4 places; then normalised within the picture in groups of three maps (arXiv:2011.11660, section 2). A
record's features are a function of that record alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

SCALES: Final = 2
ANGLES: Final = 8
MAPS: Final = 1 + SCALES * ANGLES + ANGLES * ANGLES
PLACES: Final = 4
_GROUP: Final = 3  # maps that are normalised together: 27 groups of 81
_WIDTH: Final = 0.8  # of a wavelet's envelope at the finest scale, in pixels; twice that at the next
_FREQUENCY: Final = 0.75 * math.pi
_SLANT: Final = 4 / ANGLES
_RADII: Final = (4, 7)
_TINY: Final = 1e-12  # under the root, where a modulus is zero


@torch.no_grad()
def scattered(pictures: Tensor) -> Tensor:
    """Pictures (n, channels, height, width) with values in [0, 1] as rows of channels × 81 × 16 features."""
    count, channels = pictures.shape[:2]
    single = pictures.flatten(0, 1)[:, None]
    fine, coarse = (_modulus(single, scale) for scale in range(SCALES))
    twice = _modulus(fine.flatten(0, 1)[:, None], 1)
    twice = twice.reshape(len(fine), -1, *twice.shape[2:])
    maps = [_lowpassed(single, 4), _lowpassed(fine, 4), _lowpassed(coarse, 2), _lowpassed(twice, 2)]
    pooled = functional.adaptive_avg_pool2d(torch.cat(maps, 1), PLACES)
    normal = functional.group_norm(pooled, MAPS // _GROUP)
    return normal.reshape(count, channels * MAPS * PLACES**2)


def _modulus(pictures: Tensor, scale: int) -> Tensor:
    """|x ∗ ψ| for all angles of one scale, at every 2^scale-th pixel."""
    waves = functional.conv2d(_reflected(pictures, _RADII[scale]), _wavelets(scale), stride=2**scale)
    real, imaginary = waves.chunk(2, 1)
    return (real.square() + imaginary.square() + _TINY).sqrt()


def _lowpassed(maps: Tensor, stride: int) -> Tensor:
    """x ∗ φ on a grid of a quarter of the picture's: ``stride`` is what is left to get there."""
    radius, width = (5, 1.6) if stride == 4 else (3, 0.8)
    flat = _reflected(maps, radius).flatten(0, 1)[:, None]
    low = functional.conv2d(flat, _bell(radius, width), stride=stride)
    return low.reshape(*maps.shape[:2], *low.shape[2:])


def _reflected(pictures: Tensor, radius: int) -> Tensor:
    return functional.pad(pictures, (radius,) * 4, mode="reflect")


@lru_cache(maxsize=SCALES)
def _wavelets(scale: int) -> Tensor:
    """Real parts, then imaginary parts, of Morlet wavelets at eight angles; each sums to zero."""
    reach = torch.arange(-_RADII[scale], _RADII[scale] + 1, dtype=torch.float64)
    rows, columns = torch.meshgrid(reach, reach, indexing="ij")
    width, found = _WIDTH * 2**scale, []
    for angle in (math.pi * number / ANGLES for number in range(ANGLES)):
        along = math.cos(angle) * columns + math.sin(angle) * rows
        across = math.cos(angle) * rows - math.sin(angle) * columns
        envelope = torch.exp(-(along.square() + (_SLANT * across).square()) / (2 * width**2))
        wave = envelope * torch.exp(1j * _FREQUENCY / 2**scale * along)
        found.append((wave - wave.sum() / envelope.sum() * envelope) * _SLANT / (2 * math.pi * width**2))
    stacked = torch.stack(found)
    return torch.cat([stacked.real, stacked.imag])[:, None].float()


@lru_cache(maxsize=2)
def _bell(radius: int, width: float) -> Tensor:
    one = torch.exp(-torch.arange(-radius, radius + 1, dtype=torch.float64).square() / (2 * width**2))
    return torch.outer(one / one.sum(), one / one.sum())[None, None].float()
