"""Public photographs: crops of those that come with scikit-learn (a temple, a flower) and matplotlib (a portrait)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SCENES: Final = 1200
_SIDE: Final = 32
_SMALLEST: Final = 48  # of a crop, in pixels


def scenes(count: int = SCENES, seed: int = 0) -> NDArray[np.uint8]:
    """Squares of all sizes cut out at random and made small, (count, 32, 32, 3), half of them mirrored."""
    from PIL import Image

    random, photographs = np.random.default_rng(seed), _photographs()
    found = []
    for number in range(count):
        photograph = photographs[number % len(photographs)]
        side = int(random.integers(_SMALLEST, min(photograph.size) + 1))
        left, top = (int(random.integers(0, whole - side + 1)) for whole in photograph.size)
        crop = photograph.crop((left, top, left + side, top + side))
        small = np.asarray(crop.resize((_SIDE, _SIDE), Image.Resampling.LANCZOS))
        found.append(small[:, ::-1] if random.random() < 0.5 else small)
    return np.stack(found)


def _photographs() -> list[Any]:
    from matplotlib import get_data_path
    from PIL import Image
    from sklearn.datasets import load_sample_images

    with Image.open(Path(get_data_path()) / "sample_data" / "grace_hopper.jpg") as image:
        portrait = image.convert("RGB")
    return [*map(Image.fromarray, load_sample_images().images), portrait]
