"""How each backbone's output is conditioned, and by which public records. None of these functions is given a record."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import torch
from torch import Tensor
from torch.nn.functional import normalize

from lrdp.experiments.data.backbones import ENCODED, SCATTERED, SEEN, of_pictures, of_texts
from lrdp.experiments.data.conditioning import ApplyCondition, centred, whitened
from lrdp.experiments.data.glyphs import glyphs
from lrdp.experiments.data.prose import other_task, pairs, phrases
from lrdp.experiments.data.scattering import MAPS, PLACES
from lrdp.experiments.data.scenes import scenes
from lrdp.experiments.data.settings import DataSettings

_COMPONENTS: Final = 384
Shape = tuple[int, ...]


def by_drawings(settings: DataSettings, data: Path, shape: Shape) -> ApplyCondition:
    """Whitened by glyphs, or by photographs where the records have colours."""
    public = of_pictures(glyphs() if shape == (MAPS * PLACES**2,) else scenes())
    return whitened(SCATTERED.rows(public, settings, data).float(), settings.components or _COMPONENTS)


def by_scenes(settings: DataSettings, data: Path, _: Shape) -> ApplyCondition:
    """Centred by photographs."""
    return centred(SEEN.rows(of_pictures(scenes()), settings, data).float())


def by_phrases(settings: DataSettings, data: Path, _: Shape) -> ApplyCondition:
    """All layers side by side, centred by phrases from Wikipedia."""
    middle = centred(ENCODED.rows(of_texts(phrases(data)), settings, data).float().flatten(1))
    return lambda rows: middle(rows.flatten(1))


def by_pairs(settings: DataSettings, data: Path, _: Shape) -> ApplyCondition:
    """What two texts have in common, centred by another task's pairs."""
    public = of_texts(pairs(other_task(settings.data), data))
    middle = centred(compared(ENCODED.rows(public, settings, data).float()))
    return lambda rows: middle(compared(rows))


def compared(rows: Tensor) -> Tensor:
    """|u − v|, u·v by coordinates, and the cosine, of the last layer's means of two texts."""
    one, other = (normalize(rows[:, side, 0], dim=1) for side in range(2))
    common = one * other
    return torch.cat([(one - other).abs(), common, common.sum(1, keepdim=True)], 1)
