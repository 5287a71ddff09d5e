"""Networks that are measured and trained, with the form of the records that they take.

None has dropout: its random numbers cost every contestant the same, and would make every ratio look better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from torch import nn

CLASSES: Final = 10


@dataclass(frozen=True)
class Network:
    """How to build it with random weights, and the shape of one record."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


def vgg11() -> nn.Module:
    """VGG11 for pictures of 32×32, with normalisation by groups: by batches it would mix examples."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()] if width else []
        layers += [] if width else [nn.MaxPool2d(2)]
        channels = width or channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, CLASSES))


def small_cnn() -> nn.Module:
    """The small network for pictures of 28×28 that papers on private training use."""
    first = [nn.Conv2d(1, 16, 8, 2, padding=2), nn.ReLU(), nn.MaxPool2d(2, 1)]
    second = [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, CLASSES))


NETWORKS: Final[Mapping[str, Network]] = {
    "vgg11": Network(vgg11, (3, 32, 32)),
    "small cnn": Network(small_cnn, (1, 28, 28)),
}
