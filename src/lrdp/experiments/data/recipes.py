"""The kinds of features, each with all that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lrdp.errors import InvalidInput
from lrdp.experiments.data.backbones import SCATTERED, Backbone, of_pictures
from lrdp.experiments.data.conditioning import Condition, whitened
from lrdp.experiments.data.glyphs import glyphs
from lrdp.experiments.data.settings import DataSettings

_COMPONENTS: Final = 384


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How records become inputs.

    ``condition`` is made of public things alone: it is given no records. ``given`` makes of what is kept what a model
    takes. A change needs another ``version``; ``packages`` are those whose version matters as well.
    """

    version: int
    backbone: Backbone
    condition: Callable[[DataSettings, Path], Condition]
    given: Callable[[Tensor], Tensor] = torch.Tensor.float
    packages: tuple[str, ...] = ()


def recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        InvalidInput: naming those that there are.
    """
    if name not in RECIPES:
        raise InvalidInput(f"features must be one of {', '.join(RECIPES)}, got {name!r}: nothing was run.")
    return RECIPES[name]


def _whitened_by_glyphs(settings: DataSettings, data: Path) -> Condition:
    public = SCATTERED.rows(of_pictures(glyphs()), data)
    return whitened(public.float(), settings.components or _COMPONENTS)


RECIPES: Final[Mapping[str, Recipe]] = {
    "scattering": Recipe(
        version=1, backbone=SCATTERED, condition=_whitened_by_glyphs, packages=("matplotlib", "pillow")
    ),
}
