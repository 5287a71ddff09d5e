"""What is the same in every pair: sizes, and chance that repeats itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

WIDTH, HIDDEN, TOKENS, PLACES = 16, 4, 12, 3
OTHERS, BATCH, LEAST = 9, 7, 8
"""With the target they are ten, of which seven are drawn in a step: it is one of them seven times in ten."""
LARGEST = float(torch.finfo(torch.float32).max)

Finish = Callable[[Tensor], Tensor]
Loss = Callable[..., Tensor]
Labels = Callable[[int, torch.Generator], Tensor]


def source(*seeds: int) -> torch.Generator:
    """Numbers that are the same in every run."""
    number = 0
    for seed in seeds:
        number = 1_000_003 * number + seed
    return torch.Generator().manual_seed(number)
