"""What is attacked, the sum that noise is added to, and the truth about it, which shares no code."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lrdp.training.clipping import FLAT, Clipping
from lrdp.training.engine import Engine
from lrdp.training.local_steps import LocalSteps
from lrdp.training.sampling import Draw

LEAST_CLIP, MOST_CLIP = 1e-6, 1e3
LARGEST_WEIGHT = 1e4
Batch = tuple[Tensor, ...]
Loss = Callable[[nn.Module, Batch], Tensor]
Target = Callable[[nn.Module, Loss, Batch, Tensor, float], Tensor]


def computed_sum(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    live: Tensor,
    clip_norm: float,
    *,
    micro_batch: int = 64,
    clipping: Clipping = FLAT,
) -> Tensor:
    """The sum that noise will be added to, over all trained parameters, in float64; rows not live have weight 0.

    All contact with the code under test is here: it is the very method that an update takes its sums from.
    """

    class Rows:
        def slots(self, numbers: np.ndarray) -> tuple[Batch, Tensor]:
            return tuple(part[numbers] for part in batch), live[numbers]

    none: Any = None
    reader: Any = Rows()
    checked: Any = SimpleNamespace(alone="")
    task: Any = SimpleNamespace(constants=SimpleNamespace(clip_norm=clip_norm, clipping=clipping))
    memory: Any = SimpleNamespace(micro_batch=min(len(live), micro_batch))
    with Engine(model, loss) as engine:
        steps = LocalSteps(none, task, engine, none, reader, checked, memory)
        totals = steps.clipped_sum(Draw(np.arange(len(live))))
    parameters = [p for p in model.parameters() if p.requires_grad]
    return torch.cat([totals.get(p, torch.zeros_like(p)).detach().double().flatten() for p in parameters])


def true_gradients(model: nn.Module, loss: Loss, batch: Batch) -> Tensor:
    """[rows, elements] in float64, by one plain backward pass for each record."""
    model = deepcopy(model).double()
    wide = tuple(part.double() if part.is_floating_point() else part for part in batch)
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = []
    for row in range(len(wide[0])):
        value = loss(model, tuple(part[row : row + 1] for part in wide)).sum()
        gradients = torch.autograd.grad(value, parameters, allow_unused=True)
        pairs = zip(gradients, parameters, strict=True)
        found.append(torch.cat([(torch.zeros_like(p) if g is None else g).flatten() for g, p in pairs]))
    return torch.stack(found)
