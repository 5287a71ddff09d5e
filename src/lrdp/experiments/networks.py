"""Networks whose memory is measured, with the form of the records that they take.

None has dropout: its random numbers cost every contestant the same, and would make every ratio look better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from torch import nn

from lrdp.experiments.models.vgg11 import vgg11

CLASSES: Final = 10


@dataclass(frozen=True)
class Network:
    """How to build it with random weights, and the shape of one record."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]


def small_cnn() -> nn.Module:
    """The small network for pictures of 28×28 that papers on private training use."""
    first = [nn.Conv2d(1, 16, 8, 2, padding=2), nn.ReLU(), nn.MaxPool2d(2, 1)]
    second = [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, CLASSES))


NETWORKS: Final[Mapping[str, Network]] = {
    "vgg11": Network(vgg11, (3, 32, 32)),
    "small cnn": Network(small_cnn, (1, 28, 28)),
}
