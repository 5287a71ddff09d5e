"""The paper's model for pictures: VGG11 for 32 × 32 pixels, with GroupNorm in place of BatchNorm.

The paper says "a VGG11 architecture" and no more. This is the form that is usual at this size: eight convolutions, one
linear layer, 9.2 million weights. That of ImageNet has 129 million, and so 3.7 times the noise.
"""

from __future__ import annotations

from typing import Final

from torch import nn

from lrdp.errors import InvalidInput
from lrdp.experiments.models.entry import Form, ModelEntry, Wanted

SIDE: Final = 32
_WIDTHS: Final = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # a pooling after each group
_NORM_GROUPS: Final = 32


def vgg11(channels: int = 3, classes: int = 10) -> nn.Module:
    """With random weights from torch's generator."""
    layers: list[nn.Module] = []
    for group in _WIDTHS:
        for width in group:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(_NORM_GROUPS, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels, classes))


def _build(wanted: Wanted) -> nn.Module:
    """Smaller pictures, such as those of MNIST, get a black border: five poolings leave nothing of 28 pixels."""
    channels, height, width = wanted.shape
    if height != width or height > SIDE or height % 2:
        raise InvalidInput(
            f"vgg11 takes square pictures of at most {SIDE} pixels a side, an even number, got {height} × {width}: "
            f"nothing was run."
        )
    model = vgg11(channels, wanted.classes)
    return model if height == SIDE else nn.Sequential(nn.ZeroPad2d((SIDE - height) // 2), model)


VGG11 = ModelEntry(form=Form.PIXELS, build=_build)
