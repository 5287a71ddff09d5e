"""The scattering transform against sums written out pixel by pixel."""

from __future__ import annotations

import cmath
import math

import numpy as np
import pytest
import torch

from lrdp.experiments.data.scattering import MAPS, PLACES, scattered

RADIUS = {0: 4, 1: 7}


def mirrored(place, length):
    """Where a pixel beyond the edge is taken from: the edge itself is not repeated."""
    if place < 0:
        return -place
    return place if place < length else 2 * (length - 1) - place


def wavelet(scale, angle):
    """The Morlet wavelet as a table of complex numbers by (row, column)."""
    width, frequency, reach = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale, RADIUS[scale]
    envelope, wave = {}, {}
    for row in range(-reach, reach + 1):
        for column in range(-reach, reach + 1):
            along = column * math.cos(angle) + row * math.sin(angle)
            across = -column * math.sin(angle) + row * math.cos(angle)
            envelope[row, column] = math.exp(-(along**2 + across**2 / 4) / (2 * width**2))
            wave[row, column] = envelope[row, column] * cmath.exp(1j * frequency * along)
    mean = sum(wave.values()) / sum(envelope.values())
    return {at: (wave[at] - mean * envelope[at]) / (4 * math.pi * width**2) for at in wave}


def bell(reach, width):
    one = {
        (r, c): math.exp(-(r * r + c * c) / (2 * width**2))
        for r in range(-reach, reach + 1)
        for c in range(-reach, reach + 1)
    }
    return {at: value / sum(one.values()) for at, value in one.items()}


def correlated(picture, table, step):
    height, width = picture.shape
    found = np.zeros((-(-height // step), -(-width // step)), dtype=complex)
    for row in range(0, height, step):
        for column in range(0, width, step):
            found[row // step, column // step] = sum(
                value * picture[mirrored(row + r, height), mirrored(column + c, width)]
                for (r, c), value in table.items()
            )
    return found


def slow(picture):
    """All 81 maps of one picture, before they are pooled."""
    angles = [math.pi * number / 8 for number in range(8)]
    fine = [abs(correlated(picture, wavelet(0, angle), 1)) for angle in angles]
    coarse = [abs(correlated(picture, wavelet(1, angle), 2)) for angle in angles]
    twice = [abs(correlated(first, wavelet(1, angle), 2)) for first in fine for angle in angles]
    whole = [correlated(each, bell(5, 1.6), 4).real for each in (picture, *fine)]
    return whole + [correlated(each, bell(3, 0.8), 2).real for each in (*coarse, *twice)]


def pooled(values):
    """Averages over 4 × 4 windows that overlap where the side is no multiple of four."""
    side = len(values)
    edges = [(place * side // 4, -(-(place + 1) * side // 4)) for place in range(4)]
    return np.array([[values[a:b, c:d].mean() for c, d in edges] for a, b in edges])


@pytest.fixture(scope="module")
def picture():
    return np.random.default_rng(7).random((18, 18))


@pytest.fixture(scope="module")
def expected(picture):
    maps = np.stack([pooled(values) for values in slow(picture)]).reshape(27, 3 * 16)
    return ((maps - maps.mean(1, keepdims=True)) / np.sqrt(maps.var(1, keepdims=True) + 1e-5)).reshape(-1)


def test_it_is_what_the_sums_say(picture, expected):
    found = scattered(torch.tensor(picture, dtype=torch.float32)[None, None])[0]
    assert found.shape == (MAPS * PLACES**2,)
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_another_picture_has_other_features(picture, expected):
    found = scattered(torch.tensor(picture.T.copy(), dtype=torch.float32)[None, None])[0]
    assert np.abs(found.numpy() - expected).max() > 0.1


def test_channels_are_scattered_each_for_itself():
    pictures = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    alone = [scattered(pictures[:, [channel]]) for channel in range(3)]
    torch.testing.assert_close(scattered(pictures), torch.cat(alone, 1), atol=1e-4, rtol=1e-4)
