"""Records that take a byte per pixel until they are read, as a careful client would keep them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp.experiments.networks import CLASSES


class Pictures:
    """Pictures and labels, made up: how many bytes a step takes does not depend on what they show."""

    def __init__(self, count: int, shape: Sequence[int], seed: int) -> None:
        source = torch.Generator().manual_seed(seed)
        self._pixels = torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=source)
        self._labels = torch.randint(0, CLASSES, (count,), generator=source)

    def __len__(self) -> int:
        return len(self._labels)

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        return _scaled(self._pixels[number]), self._labels[number]

    def columns_at(self, numbers: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Some records, already in columns."""
        places = torch.from_numpy(numbers)
        return _scaled(self._pixels.index_select(0, places)), self._labels.index_select(0, places)

    def __getitems__(self, numbers: Sequence[int]) -> tuple[Tensor, Tensor]:
        """The same for torch's loader, which is told to stack nothing: a card never sees single records."""
        return self.columns_at(np.array(numbers, dtype=np.int64))


def _scaled(pixels: Tensor) -> Tensor:
    return pixels.float().div_(127.5).sub_(1.0)
