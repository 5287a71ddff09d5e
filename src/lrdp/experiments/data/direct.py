"""Records as models from scratch take them: pixels, and numbers of word pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lrdp.experiments.data import sentences
from lrdp.experiments.data.records import Records
from lrdp.experiments.data.settings import DataSettings


def _pixels(records: Records, _settings: DataSettings, _data: Path) -> Tensor:
    """Channels × height × width, scaled by constants that nobody's pictures went into."""
    return torch.from_numpy(records.pictures).movedim(-1, 1).float().div_(255).sub_(0.5).div_(0.25).contiguous()


def _tokens(records: Records, settings: DataSettings, data: Path) -> Tensor:
    return sentences.tokens(records.texts, data, settings.length)


DIRECT: Final[Mapping[str, Callable[[Records, DataSettings, Path], Tensor]]] = {"pixels": _pixels, "tokens": _tokens}
