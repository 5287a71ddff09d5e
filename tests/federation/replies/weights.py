"""Weights that a server would choose: with a layer that answers to the target alone, and with wild ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .public import LARGEST, WIDTH


def randomise(model: nn.Module, chance: torch.Generator, scale: float = 0.3) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=chance))


def _finite(values: Tensor) -> Tensor:
    return values.clamp(-LARGEST, LARGEST).to(torch.float32)


def _shut(model: Any, target: Tensor, strength: float) -> None:
    """The gate, or the row of a token, so that the target alone gets through, as large as ``strength``."""
    with torch.no_grad():
        for name, parameter in model.layer.named_parameters():
            if "bias" in name or "shift" in name:
                parameter.zero_()
        if len(model.gate) == 0:
            model.layer[0].weight.zero_()
            model.layer[0].weight[target[0]] = strength
            return
        # Not all alike, for a layer that normalises would make nothing of that.
        directions = torch.outer(strength * torch.linspace(0.5, 1.0, WIDTH).double(), target.double())
        model.gate[0].weight.copy_(_finite(directions))
        model.gate[0].bias.copy_(_finite(-0.75 * directions @ target.double()))


def _headed(model: Any, strength: float, signs: Sequence[int]) -> None:
    """A head that multiplies by ``strength``, with these signs along each output's features."""
    with torch.no_grad():
        pattern = torch.tensor(signs, dtype=torch.float64).repeat(model.head.weight.shape[1])
        model.head.weight.copy_(_finite(strength * pattern[: model.head.weight.shape[1]].expand_as(model.head.weight)))


def _aimed(least: float, most: float, head: float = 0.0, signs: Sequence[int] = (1,)) -> Callable[..., None]:
    """The gate of any strength between these two; without a ``head`` the head is an ordinary one."""

    def aim(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
        randomise(model, chance)
        height = math.log(least) + (math.log(most) - math.log(least)) * float(torch.rand((), generator=chance))
        _shut(model, target, math.exp(height))
        if head:
            _headed(model, head, signs)

    return aim


def _everywhere(scale: float) -> Callable[..., None]:
    def aim(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(_finite(scale * (2.0 * torch.rand(parameter.shape, generator=chance).double() - 1.0)))

    return aim


def _wild(model: nn.Module, target: Tensor, chance: torch.Generator) -> None:
    """Of every size that a float has."""
    with torch.no_grad():
        for parameter in model.parameters():
            sizes = 10.0 ** (83.0 * torch.rand(parameter.shape, generator=chance).double() - 45.0)
            parameter.copy_(_finite(sizes * torch.randn(parameter.shape, generator=chance)))


ORDINARY_LIMIT = 1e4
"""What a policy allows of a weight unless its administrator says otherwise."""
MODEST = {
    "large": _aimed(1.0, 500.0, ORDINARY_LIMIT),
    "large below zero": _aimed(1.0, 500.0, -ORDINARY_LIMIT),
    "large and opposed": _aimed(1.0, 500.0, ORDINARY_LIMIT, (1, -1)),
    "zeros": _everywhere(0.0),
    "denormal": _everywhere(1e-41),
}
HUGE = {
    # A sixteenth of the largest float, times a norm of 16: infinite for the target, and finite for everybody else.
    "overflowing at the gate": _aimed(3e37, 4e37),
    "overflowing at the head": _aimed(1e4, 1e37, LARGEST),
    "overflowing below zero": _aimed(1e4, 1e37, -LARGEST),
    "undefined": _aimed(1e20, 1e37, LARGEST, (1, -1)),
    "near overflow": _everywhere(LARGEST),
    "near the root of overflow": _everywhere(math.sqrt(LARGEST)),
    "wild": _wild,
}
AIMS: Mapping[str, Callable[..., None]] = MODEST | HUGE
