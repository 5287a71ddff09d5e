"""Affine maps that make features easy to learn from under noise, fitted on public records only.

A fit takes the features of public pictures or texts. It never gets a client's record, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from lrdp.errors import InvalidInput

ApplyCondition = Callable[[Tensor], Tensor]
"""Rows of a backbone's output as rows of features, each row on its own."""

_PART: Final = 4096  # rows at a time


def centred(public: Tensor) -> ApplyCondition:
    """Less the mean of the public rows, and of unit norm."""
    mean = public.double().mean(0).float()
    return lambda rows: functional.normalize(rows - mean, dim=1)


def whitened(public: Tensor, components: int) -> ApplyCondition:
    """In the public rows' first principal directions, each divided by its deviation there, and of unit norm.

    Raises:
        InvalidInput: where the public rows do not span that many directions.
    """
    if not 0 < components <= min(public.shape[1], len(public) - 1):
        raise InvalidInput(
            f"components must lie between 1 and {min(public.shape[1], len(public) - 1)}, got {components}: the public "
            f"records span no more directions. Nothing was run."
        )
    wide = public.double()
    mean = wide.mean(0)
    values, vectors = torch.linalg.eigh((wide - mean).T @ (wide - mean) / len(wide))
    strongest = values.argsort(descending=True)[:components]
    turned = (vectors[:, strongest] * _signs(vectors[:, strongest]) / values[strongest].sqrt()).float()
    return lambda rows: functional.normalize((rows - mean.float()) @ turned, dim=1)


def applied(condition: ApplyCondition, rows: Tensor) -> Tensor:
    """All rows conditioned, in half precision."""
    return torch.cat([condition(part.float()).half() for part in torch.split(rows, _PART)])


def _signs(vectors: Tensor) -> Tensor:
    """An eigenvector's sign is anybody's choice: here its largest entry is positive."""
    return vectors.gather(0, vectors.abs().argmax(0, keepdim=True)).sign()
