"""Handwritten digits that ship with scikit-learn: 1,797 images of 8 × 8 pixels, for a federation that takes seconds.

The last 360 images are public test data. The others are dealt out to clients like cards; pixels are moved and scaled by
public constants, so nothing is fitted on anybody's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lrdp.errors import InvalidInput
from lrdp.training import CrossEntropy, TensorRecords

PUBLIC_RECORDS: Final = 360
_MIDDLE, _SCALE = 5.0, 8.0  # pixels are whole numbers from 0 to 16
LOSS: Final = CrossEntropy(classes=10)


class Net(nn.Module):
    """One hidden layer: 2,410 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of ten classes."""
        logits: Tensor = self.output(torch.relu(self.hidden(images)))
        return logits


@lru_cache(maxsize=1)
def _all() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    scaled = torch.from_numpy(((images - _MIDDLE) / _SCALE).astype(np.float32))
    return scaled, torch.from_numpy(labels.astype(np.int64))


def records(settings: Mapping[str, Any]) -> TensorRecords:
    """One client's share: ``partition-id`` of ``num-partitions``."""
    number, count = int(settings["partition-id"]), int(settings["num-partitions"])
    if not 0 <= number < count:
        raise InvalidInput(f"partition-id must lie in [0, {count}), got {number}.")
    images, labels = _all()
    here = slice(number, len(images) - PUBLIC_RECORDS, count)
    return TensorRecords(images[here], labels[here])


def share(count: int) -> int:
    """How many records each of ``count`` clients has, at least."""
    images, _ = _all()
    return (len(images) - PUBLIC_RECORDS) // count


def stated_size(count: int) -> int:
    """What a policy states of it: one record fewer, so that whether training starts does not depend on a single one."""
    return share(count) - 1


@torch.no_grad()
def accuracy(parameters: Mapping[str, NDArray[np.float32]]) -> float:
    """On the public test data."""
    model = Net()
    model.load_state_dict({name: torch.from_numpy(np.array(values)) for name, values in parameters.items()})
    images, labels = _all()
    right = model(images[-PUBLIC_RECORDS:]).argmax(1) == labels[-PUBLIC_RECORDS:]
    return float(right.double().mean())
