"""Public pictures of letters and digits: drawn with the fonts that come with matplotlib, moved about a little.

What is fitted on them (a mean, a whitening) has seen nobody's handwriting.
"""

from __future__ import annotations

from pathlib import Path
from string import ascii_lowercase, ascii_uppercase, digits
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image

GLYPHS: Final = 6200
_CHARACTERS: Final = digits + ascii_uppercase + ascii_lowercase
_NO_LETTERS: Final = ("STIX", "cmex", "cmsy", "cmmi", "Display")  # fonts of mathematical signs
_CANVAS, _SIDE, _BODY = 96, 28, 20  # MNIST's own: a body of at most 20 pixels in the middle of 28


def glyphs(count: int = GLYPHS, seed: int = 0) -> NDArray[np.uint8]:
    """White on black, (count, 28, 28), each character about equally often."""
    random, fonts = np.random.default_rng(seed), _fonts()
    drawn = [_glyph(_CHARACTERS[number % len(_CHARACTERS)], fonts, random) for number in range(count)]
    return np.stack(drawn)


def _fonts() -> list[Path]:
    from matplotlib import get_data_path

    found = sorted((Path(get_data_path()) / "fonts" / "ttf").glob("*.ttf"))
    return [path for path in found if not any(part in path.name for part in _NO_LETTERS)]


def _glyph(character: str, fonts: list[Path], random: np.random.Generator) -> NDArray[np.uint8]:
    from PIL import Image, ImageDraw, ImageFilter, ImageFont

    font = ImageFont.truetype(str(fonts[random.integers(len(fonts))]), int(random.integers(52, 69)))
    image = Image.new("L", (_CANVAS, _CANVAS))
    ImageDraw.Draw(image).text((_CANVAS / 2, _CANVAS / 2), character, font=font, fill=255, anchor="mm")
    image = image.rotate(float(random.uniform(-14, 14)), resample=Image.Resampling.BICUBIC)
    slant = float(random.uniform(-0.3, 0.3))
    sheared = (1, slant, -slant * _CANVAS / 2, 0, 1, 0)
    image = image.transform(image.size, Image.Transform.AFFINE, sheared, Image.Resampling.BICUBIC)
    if random.random() < 0.5:
        image = image.filter(ImageFilter.MaxFilter(3))  # a broader pen
    return np.asarray(_framed(image))


def _framed(image: Image) -> Image:
    from PIL import Image as Pictures

    body = image.crop(image.getbbox())
    shrunk = _BODY / max(body.size)
    width, height = (max(1, round(side * shrunk)) for side in body.size)
    framed = Pictures.new("L", (_SIDE, _SIDE))
    resized = body.resize((width, height), Pictures.Resampling.LANCZOS)
    framed.paste(resized, ((_SIDE - width) // 2, (_SIDE - height) // 2))
    return framed
