"""The kinds of features, each with all that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from lrdp.errors import InvalidInput
from lrdp.experiments.data import conditions
from lrdp.experiments.data.backbones import ENCODED, PIXELS, SCATTERED, SEEN, TOKENS, Backbone
from lrdp.experiments.data.conditioning import ApplyCondition
from lrdp.experiments.data.prose import other_task
from lrdp.experiments.data.settings import DataSettings


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How records become inputs.

    ``condition`` is made of public things alone: it is given the shape of a row from the backbone, and no records.
    ``given`` turns what is kept into what a model takes. A change needs another ``version``; ``packages`` are those
    whose version matters as well, and ``publics`` the tasks whose texts are public here.
    """

    version: int
    backbone: Backbone
    condition: Callable[[DataSettings, Path, tuple[int, ...]], ApplyCondition] | None = None
    given: Callable[[Tensor], Tensor] = torch.Tensor.float
    packages: tuple[str, ...] = ()
    publics: Callable[[DataSettings], tuple[str, ...]] = lambda _: ()


def recipe(name: str) -> Recipe:
    """The recipe of this name.

    Raises:
        InvalidInput: naming those that there are.
    """
    if name not in RECIPES:
        raise InvalidInput(f"features must be one of {', '.join(RECIPES)}, got {name!r}: nothing was run.")
    return RECIPES[name]


def _scaled(pixels: Tensor) -> Tensor:
    """By constants that do not depend on anybody's pictures."""
    return (pixels.float() / 255 - 0.5) / 0.25


def _other(settings: DataSettings) -> tuple[str, ...]:
    return (other_task(settings.data),)


_DRAWN: Final = ("matplotlib", "pillow")
_SEEN: Final = (*_DRAWN, "scikit-learn")

RECIPES: Final[Mapping[str, Recipe]] = {
    "scattering": Recipe(version=1, backbone=SCATTERED, condition=conditions.by_drawings, packages=_DRAWN),
    "efficientnet": Recipe(version=1, backbone=SEEN, condition=conditions.by_scenes, packages=_SEEN),
    "sentence": Recipe(version=1, backbone=ENCODED, condition=conditions.by_phrases, publics=lambda _: ("qnli",)),
    "pair": Recipe(version=1, backbone=ENCODED, condition=conditions.by_pairs, publics=_other),
    "pixels": Recipe(version=1, backbone=PIXELS, given=_scaled),
    "tokens": Recipe(version=1, backbone=TOKENS, given=torch.Tensor.long),
}
