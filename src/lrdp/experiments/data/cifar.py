"""CIFAR-10 as it is packed in its npz files: differences of colours, and of each pixel from a guess by those before.

Of each picture G, R − G and B − G are kept modulo 256, and of each of these planes what is left after subtracting the
median edge detector's guess (as in JPEG-LS): the median of west, north and west + north − north-west; in the first row
west alone, in the first column north alone, and in the corner nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unpacked(residuals: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Residuals (n, 3, height, width) as pictures (n, height, width, 3), red first."""
    green, red, blue = (_plane(residuals[:, plane]) for plane in range(3))
    return np.stack([red + green, green, blue + green], axis=-1)  # eight bits wrap around, as they are meant to


def _plane(residuals: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Pixels first: one step decodes the same pixel of all pictures, which lie side by side.
    left = np.ascontiguousarray(np.moveaxis(residuals, 0, -1)).astype(np.int16)
    height, width, count = left.shape
    known = np.zeros((height + 1, width + 1, count), dtype=np.int16)  # with a row and a column of nothing before it
    for row in range(1, height + 1):
        for column in range(1, width + 1):
            guess = _guess(known, row, column)
            known[row, column] = (left[row - 1, column - 1] + guess) & 255
    return np.moveaxis(known[1:, 1:], -1, 0).astype(np.uint8)


def _guess(known: NDArray[np.int16], row: int, column: int) -> NDArray[np.int16]:
    west, north, corner = known[row, column - 1], known[row - 1, column], known[row - 1, column - 1]
    if row == 1 or column == 1:
        outside: NDArray[np.int16] = west + north  # one of them lies outside, and is nothing
        return outside
    low, high = np.minimum(west, north), np.maximum(west, north)
    clipped: NDArray[np.int16] = np.clip(west + north - corner, low, high)
    return clipped
