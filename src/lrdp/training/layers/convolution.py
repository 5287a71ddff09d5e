"""Convolutions in one, two and three dimensions, with stride, padding, dilation and groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from torch import Tensor
from torch.nn import functional

from lrdp.errors import Unsupported
from lrdp.training.gradients import Convolved, Dense, Factored, Geometry, Gradient, Vectors
from lrdp.training.layers.protocol import Call
from lrdp.training.tape import Share, Tape


class ConvolutionRule:
    """``nn.Conv1d``, ``nn.Conv2d``, ``nn.Conv3d``."""

    name: ClassVar[str] = "convolution"
    cost: ClassVar[str] = "norms multiplied out or from Gram matrices, whichever is cheaper; weighted matrix products"
    parameters: ClassVar[Sequence[str]] = ("weight", "bias")

    def watch(self, call: Call) -> None:
        """Keep the input only if the weight is trained."""
        call.check_rows()
        module = call.module
        weight, bias = call.trainable("weight"), call.trainable("bias")
        if call.input.dim() != module.weight.dim():
            raise Unsupported(f"{type(module).__name__} was given an input without examples: add the batch dimension.")
        tape, inputs = call.tape, call.input if weight is not None else None

        def emit(gradient: Tensor) -> list[Share]:
            shares: list[Share] = []
            if weight is not None and inputs is not None:
                shares.append((weight, _weight_gradient(tape, module, inputs, gradient)))
            if bias is not None:
                places = gradient.detach().to(bias.dtype).flatten(2).sum(2)
                shares.append((bias, Dense(tape.by_row(places, bias.dtype).sum(1))))
            return shares

        tape.watch(call.output, [p for p in (weight, bias) if p is not None], emit)


def _weight_gradient(tape: Tape, module: Any, inputs: Tensor, gradient: Tensor) -> Gradient:
    inputs, geometry = _placed(module, inputs.to(module.weight.dtype))
    outputs = gradient.detach().to(module.weight.dtype)
    if len(inputs) == tape.rows:
        return Convolved(inputs, outputs, geometry)
    if geometry.groups != 1:
        raise Unsupported("a grouped convolution over several images per example has no rule: use groups=1.")
    patches = geometry.patches(inputs)[:, 0].transpose(1, 2)
    places = outputs.flatten(2).transpose(1, 2)
    left, right = tape.by_row(places, outputs.dtype), tape.by_row(patches, inputs.dtype)
    return Factored(Vectors(left), right, geometry.shape[0])


def _placed(module: Any, inputs: Tensor) -> tuple[Tensor, Geometry]:
    """The input and geometry with symmetric zero padding; other paddings are put around the input first."""
    padding = module.padding
    if isinstance(padding, str) or module.padding_mode != "zeros":
        border = module._reversed_padding_repeated_twice
        mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
        inputs, padding = functional.pad(inputs, border, mode=mode), (0,) * (inputs.dim() - 2)
    shape = tuple(module.weight.shape)
    return inputs, Geometry(shape, tuple(module.stride), tuple(padding), tuple(module.dilation), module.groups)
