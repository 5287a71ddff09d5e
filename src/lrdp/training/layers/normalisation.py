"""Normalisation within an example: the parameters are few, so their per-example gradients are taken as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from lrdp.training.gradients import Dense, chunks
from lrdp.training.layers.protocol import Call
from lrdp.training.tape import Share, Tape

Normalise = Callable[[Any, Tensor], Tensor]


class NormalisationRule:
    """A layer that computes weight · normalised(input) + bias, the parameters along some of the dimensions."""

    name: ClassVar[str] = "normalisation"
    cost: ClassVar[str] = "normalises the input a second time; per-example gradients of a few channels"
    parameters: ClassVar[Sequence[str]] = ("weight", "bias")

    def __init__(self, normalise: Normalise, *, channels_last: bool) -> None:
        self._normalise = normalise
        self._channels_last = channels_last

    def watch(self, call: Call) -> None:
        """Keep the input only if the weight is trained."""
        call.check_rows()
        weight, bias = call.trainable("weight"), call.trainable("bias")
        module, tape = call.module, call.tape
        inputs = call.input if weight is not None else None

        def emit(gradient: Tensor) -> list[Share]:
            shares: list[Share] = []
            if weight is not None and inputs is not None:
                shares.append((weight, _by_row(tape, self._weight(module, inputs, gradient, weight))))
            if bias is not None:
                shares.append((bias, _by_row(tape, self._sum(gradient.detach().to(bias.dtype), bias))))
            return shares

        tape.watch(call.output, [p for p in (weight, bias) if p is not None], emit)

    def _weight(self, module: Any, inputs: Tensor, gradient: Tensor, weight: Tensor) -> Tensor:
        """Σ over places of gradient × normalised input, a few rows at a time."""
        sums = []
        for part in chunks(len(inputs), inputs[0].numel() * inputs.element_size()):
            normalised = self._normalise(module, inputs[part].to(weight.dtype))
            sums.append(self._sum(normalised.mul_(gradient[part].detach()), weight))
        return torch.cat(sums)

    def _sum(self, values: Tensor, parameter: Tensor) -> Tensor:
        """The sum over all dimensions but the first and the parameter's own: [first, elements]."""
        if self._channels_last:
            return values.reshape(len(values), -1, parameter.numel()).sum(1)
        return values.flatten(2).sum(2)


def _by_row(tape: Tape, sums: Tensor) -> Dense:
    return Dense(tape.by_row(sums, sums.dtype).sum(1))


def layer_norm(module: Any, inputs: Tensor) -> Tensor:
    """The normalised input of a ``LayerNorm``, before weight and bias."""
    return functional.layer_norm(inputs, module.normalized_shape, None, None, module.eps)


def instance_norm(module: Any, inputs: Tensor) -> Tensor:
    """The same for ``InstanceNorm``."""
    return functional.instance_norm(inputs, eps=module.eps)


def rms_norm(module: Any, inputs: Tensor) -> Tensor:
    """The same for ``RMSNorm``."""
    return functional.rms_norm(inputs, module.normalized_shape, None, module.eps)
