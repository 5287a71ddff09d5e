"""Where a convolution's kernel meets its input, in one, two or three dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

_FEW_PLACES = 8
_SMALL_WEIGHT = 1 << 14


@dataclass(frozen=True)
class Geometry:
    """A convolution without its numbers. ``shape`` is the weight's: [out, in / groups, kernel…]."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.shape[2:]

    @property
    def elements(self) -> int:
        return prod(self.shape)

    def padded(self, inputs: Tensor) -> Tensor:
        """The input with its zero border."""
        if not any(self.padding):
            return inputs
        return functional.pad(inputs, [width for width in reversed(self.padding) for _ in range(2)])

    def patches(self, inputs: Tensor) -> Tensor:
        """What the kernel sees at each place: [rows, groups, inputs per group × kernel, places]."""
        view = self.padded(inputs)
        for axis, (size, stride, dilation) in enumerate(zip(self.kernel, self.stride, self.dilation, strict=True), 2):
            view = view.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
        spatial = len(self.kernel)
        view = view.permute(0, 1, *range(2 + spatial, 2 + 2 * spatial), *range(2, 2 + spatial))
        return view.reshape(inputs.shape[0], self.groups, prod(self.shape[1:]), -1)

    def windows(self, axis: int, length: int) -> list[slice]:
        """For each of the kernel's places along ``axis``, the padded pixels it meets on its way over ``length``."""
        stride, reach = self.stride[axis], self.stride[axis] * (length - 1) + 1
        return [
            slice(at * self.dilation[axis], at * self.dilation[axis] + reach, stride) for at in range(self.kernel[axis])
        ]

    def weight_gradient(self, inputs: Tensor, outputs: Tensor, weight: Tensor) -> Tensor:
        """Σ over rows of the weight's gradient, for output gradients ``outputs``.

        Where the places are few, a plain matrix product beats the convolution kernel, and needs none of its scratch.
        """
        if self.groups == 1 and prod(outputs.shape[2:]) <= _FEW_PLACES:
            left, right = outputs.flatten(2).transpose(1, 2), self.patches(inputs)[:, 0].transpose(1, 2)
            return (left.flatten(0, 1).t() @ right.flatten(0, 1)).view(self.shape)
        return self._backward(inputs, outputs, weight, self.groups)

    def weight_gradients(self, inputs: Tensor, outputs: Tensor) -> Tensor:
        """The weight's gradient for each row, flat.

        A small weight by one convolution in which every row is a group of its own, a large one by matrix products.
        """
        rows = inputs.shape[0]
        if self.elements > _SMALL_WEIGHT:
            places = outputs.reshape(rows * self.groups, self.shape[0] // self.groups, -1)
            return torch.bmm(places, self.patches(inputs).flatten(0, 1).transpose(1, 2)).view(rows, -1)
        # Only the sizes of the weight matter for its own gradient.
        weight = inputs.new_zeros(rows * self.shape[0], *self.shape[1:])
        apart = inputs.reshape(1, -1, *inputs.shape[2:]), outputs.reshape(1, -1, *outputs.shape[2:])
        return self._backward(*apart, weight, rows * self.groups).reshape(rows, -1)

    def _backward(self, inputs: Tensor, outputs: Tensor, weight: Tensor, groups: int) -> Tensor:
        none = [0] * len(self.kernel)
        mask = [False, True, False]
        gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
            outputs, inputs, weight, None, self.stride, self.padding, self.dilation, False, none, groups, mask
        )
        return gradients[1]
