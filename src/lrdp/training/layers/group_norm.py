"""``nn.GroupNorm``, written so that its own kernel adds up per example."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import Parameter

from lrdp.training.gradients import Dense
from lrdp.training.layers.protocol import check_rows
from lrdp.training.tape import Share, Tape


class GroupNormExpression:
    """The batch as one image with the channels of all, weight and bias copied for each: groups never cross examples.

    The backward kernel then yields a gradient for each example's copy, in the same pass that the input's needs.
    """

    name: ClassVar[str] = "group normalisation"
    cost: ClassVar[str] = "none beyond ordinary training: each example has its own copy of weight and bias"

    def fits(self, module: Any) -> bool:  # noqa: ARG002 - every group normalisation is written out
        return True

    def forward(self, tape: Tape, module: Any, input: Tensor) -> Tensor:  # noqa: A002 - the name in nn.GroupNorm
        """The same output."""
        images = tape.one_row_each(input)
        check_rows(tape, module, images)
        count = len(images)
        weight, bias = (_copies(tape, getattr(module, name), count) for name in ("weight", "bias"))
        merged = images.reshape(1, -1, *images.shape[2:])
        return torch.group_norm(merged, count * module.num_groups, weight, bias, module.eps).view(images.shape)


def _copies(tape: Tape, parameter: Parameter | None, count: int) -> Tensor | None:
    """``count`` copies in a row, whose gradients are recorded as those of ``parameter``."""
    if parameter is None:
        return None
    copies = parameter.detach().repeat(count)

    def emit(gradient: Tensor) -> list[Share]:
        return [(parameter, Dense(tape.by_row(gradient.view(count, -1), parameter.dtype).sum(1)))]

    if parameter.requires_grad:
        tape.watch(copies.requires_grad_(), [parameter], emit)
    return copies
