"""Frozen public functions of a record: what they make of it is kept, for it takes minutes.

Each sees a record on its own, whatever else goes through it at once: passes have one shape, and rows that are left over
are blank, so that not even rounding depends on others.
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
from lrdp.experiments.data.efficientnet import EfficientNetLite, weights_file
from lrdp.experiments.data.records import Records
from lrdp.experiments.data.settings import DataSettings

_SCATTERED_AT_ONCE: Final = 50  # pictures in a pass
_SEEN_AT_ONCE: Final = 20
_LAYERS: Final = (6, 4)


@dataclass(frozen=True, kw_only=True)
class Backbone:
    """``rows`` returns a row for each record; ``files`` are those of the data folder that it also needs."""

    name: str
    version: int
    rows: Callable[[Records, DataSettings, Path], Tensor]
    files: Callable[[Path], list[Path]] = lambda _: []


def of_pictures(pictures: NDArray[np.uint8]) -> Records:
    """Public pictures as records, whose labels mean nothing."""
    return Records(inputs=pictures, labels=np.zeros(len(pictures), dtype=np.int64), train=1)


def of_texts(texts: list[str] | list[tuple[str, str]]) -> Records:
    """Public texts as records, in the same way."""
    return Records(inputs=texts, labels=np.zeros(len(texts), dtype=np.int64), train=1)


def in_passes(pictures: NDArray[np.uint8], rows: int, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """What ``compute`` makes of pictures (n, channels, height, width) with values from 0 to 255, in half precision."""
    found = []
    for part in torch.split(torch.from_numpy(pictures).movedim(-1, 1), rows):
        full = torch.zeros(rows, *part.shape[1:])
        full[: len(part)] = part
        found.append(compute(full)[: len(part)].half())
    return torch.cat(found)


def _scattered(records: Records, _: DataSettings, __: Path) -> Tensor:
    return in_passes(records.pictures, _SCATTERED_AT_ONCE, lambda pictures: scattering.scattered(pictures / 255))


def _seen(records: Records, _: DataSettings, __: Path) -> Tensor:
    network, pictures = EfficientNetLite(), records.pictures
    if pictures.shape[-1] == 1:
        pictures = np.repeat(pictures, 3, axis=-1)
    return in_passes(pictures, _SEEN_AT_ONCE, network)


def _encoded(records: Records, _: DataSettings, data: Path) -> Tensor:
    """Of each of a record's texts, after each of the layers: (n, texts, layers, width)."""
    texts = records.texts
    if isinstance(texts[0], str):
        return sentences.layer_means(cast(list[str], texts), data, _LAYERS)[:, None]
    sides = zip(*cast(list[tuple[str, str]], texts), strict=True)
    return torch.stack([sentences.layer_means(cast(tuple[str], side), data, _LAYERS) for side in sides], 1)


def _pixels(records: Records, _: DataSettings, __: Path) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(records.pictures, -1, 1)))


def _tokens(records: Records, settings: DataSettings, data: Path) -> Tensor:
    return sentences.tokens(records.texts, data, settings.length).int()


SCATTERED: Final = Backbone(name="scattered", version=1, rows=_scattered)
SEEN: Final = Backbone(name="seen", version=2, rows=_seen, files=lambda _: [weights_file()])
PIXELS: Final = Backbone(name="pixels", version=1, rows=_pixels)
TOKENS: Final = Backbone(name="tokens", version=1, rows=_tokens, files=sentences.files)
ENCODED: Final = Backbone(name="encoded", version=2, rows=_encoded, files=sentences.files)
