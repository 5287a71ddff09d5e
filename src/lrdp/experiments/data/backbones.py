"""Frozen public functions of a record: what they make of it is kept, for it takes minutes.

Each sees a record for itself, whatever else goes through it at once: passes have one shape, and rows that are left over
are blank, so that not even rounding hangs on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp.experiments.data import scattering, sentences
from lrdp.experiments.data.records import Records

_PASS: Final = 50  # pictures
_LAYERS: Final = (6, 4)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """``rows`` returns a row for each record, given the data folder where ``files`` of it are needed."""

    name: str
    version: int
    rows: Callable[[Records, Path], Tensor]
    files: Callable[[Path], list[Path]] = lambda _: []


def of_pictures(pictures: NDArray[np.uint8]) -> Records:
    """Public pictures as records, whose labels mean nothing."""
    return Records(inputs=pictures, labels=np.zeros(len(pictures), dtype=np.int64), train=1)


def in_passes(pictures: NDArray[np.uint8], compute: Callable[[Tensor], Tensor]) -> Tensor:
    """What ``compute`` makes of pictures (n, channels, height, width) with values from 0 to 255, in half precision."""
    found = []
    for part in torch.split(torch.from_numpy(pictures).movedim(-1, 1), _PASS):
        full = torch.zeros(_PASS, *part.shape[1:])
        full[: len(part)] = part
        found.append(compute(full)[: len(part)].half())
    return torch.cat(found)


def _scattered(records: Records, _: Path) -> Tensor:
    return in_passes(records.pictures, lambda pictures: scattering.scattered(pictures / 255))


def _encoded(records: Records, data: Path) -> Tensor:
    """Of each of a record's texts, after each of the layers: (n, texts, layers, width)."""
    texts = records.texts
    if isinstance(texts[0], str):
        return sentences.layer_means(cast(list[str], texts), data, _LAYERS)[:, None]
    sides = zip(*cast(list[tuple[str, str]], texts), strict=True)
    return torch.stack([sentences.layer_means(cast(tuple[str], side), data, _LAYERS) for side in sides], 1)


SCATTERED: Final = Backbone(name="scattered", version=1, rows=_scattered)
ENCODED: Final = Backbone(name="encoded", version=1, rows=_encoded, files=sentences.files)
