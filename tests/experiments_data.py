"""Small data files in the formats of the real ones, written by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def packed(pictures):
    """Pictures (n, height, width, 3) as CIFAR's residuals: written pixel by pixel, from the description alone."""
    count, height, width, _ = pictures.shape
    residuals = np.zeros((count, 3, height, width), dtype=np.uint8)
    for number in range(count):
        red, green, blue = (pictures[number, :, :, channel].astype(int) for channel in range(3))
        for plane, values in enumerate((green, (red - green) % 256, (blue - green) % 256)):
            for row in range(height):
                for column in range(width):
                    residuals[number, plane, row, column] = (values[row, column] - guess(values, row, column)) % 256
    return residuals


def guess(values, row, column):
    if row == 0 and column == 0:
        return 0
    if row == 0:
        return values[0, column - 1]
    if column == 0:
        return values[row - 1, 0]
    west, north = values[row, column - 1], values[row - 1, column]
    return sorted([west, north, west + north - values[row - 1, column - 1]])[1]


def write_mnist(folder: Path, train=40, test=12, seed=0):
    random = np.random.default_rng(seed)
    pictures = random.integers(0, 256, (train + test, 28, 28), dtype=np.uint8)
    labels = random.integers(0, 10, train + test).astype(np.uint8)
    np.savez(
        folder / "mnist.npz",
        x_train=pictures[:train],
        y_train=labels[:train],
        x_test=pictures[train:],
        y_test=labels[train:],
    )
    return pictures, labels


def write_table(folder: Path, name: str, **columns):
    import pyarrow as pa
    from pyarrow.parquet import write_table as write

    write(pa.table(columns), folder / name)
