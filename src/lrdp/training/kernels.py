"""What the bounds on rounding ask of a machine: that a matrix product multiplies and adds, in full precision."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from lrdp.errors import Unsupported

_SIZE = 192  # large enough for the kernels that real layers take
_CERTIFIED = ("cpu", "cuda")  # Metal has no float64 to add norms up in


@contextmanager
def full_precision() -> Iterator[None]:
    """No TF32 and no bfloat16 inside float32 matrix products meanwhile, whatever the program asked for."""
    backends: Any = torch.backends
    places = (backends.mkldnn.matmul, backends.cuda.matmul)
    before = [place.fp32_precision for place in places]
    for place in places:
        place.fp32_precision = "ieee"
    try:
        yield
    finally:
        for place, precision in zip(places, before, strict=True):
            place.fp32_precision = precision


def check_kernels(device: torch.device, dtype: torch.dtype) -> None:
    """Refuse a device on which the clip norm is not certified.

    A product with a permutation has one term in each sum, so multiplying and adding leaves every bit as it is. Fewer
    bits, or an algorithm that mixes elements first (Strassen, Winograd), would show.
    """
    if device.type not in _CERTIFIED:
        raise Unsupported(
            f"a model on {device.type} cannot be trained privately: the bounds behind the clip norm are proved for "
            f"{' and '.join(_CERTIFIED)}; move the model to the CPU."
        )
    source = torch.Generator().manual_seed(0)
    values = torch.randn(_SIZE, _SIZE, generator=source, dtype=dtype).to(device)
    order = torch.randperm(_SIZE, generator=source).to(device)
    moved = values @ torch.eye(_SIZE, dtype=dtype, device=device)[order]
    if not torch.equal(moved[:, order], values):
        raise Unsupported(
            f"matrix products of {dtype} on {device} lose bits, so the clip norm would not hold: turn off reduced "
            f"precision for them."
        )
