"""Where a convolution's kernel meets its input, in one, two or three dimensions."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

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
        spatial = len(self.kernel)
        view = self._seen(self.padded(inputs), 2)
        view = view.permute(0, 1, *range(2 + spatial, 2 + 2 * spatial), *range(2, 2 + spatial))
        return view.reshape(inputs.shape[0], self.groups, prod(self.shape[1:]), -1)

    def channels_last(self, inputs: Tensor) -> Tensor:
        """A copy of the input with its zero border and the channels in the last dimension."""
        sizes = [size + 2 * border for size, border in zip(inputs.shape[2:], self.padding, strict=True)]
        padded = inputs.new_zeros(len(inputs), *sizes, inputs.shape[1])
        inside = tuple(slice(border, size - border) for size, border in zip(sizes, self.padding, strict=True))
        padded[(slice(None), *inside)] = inputs.movedim(1, -1)
        return padded

    def patches_last(self, padded: Tensor) -> Tensor:
        """The patches of ``channels_last``: [rows, groups, places, kernel × inputs per group], copied in long runs."""
        spatial = len(self.kernel)
        view = self._seen(padded, 1).movedim(1 + spatial, -1)
        view = view.reshape(len(padded), -1, prod(self.kernel), self.groups, self.shape[1])
        return view.permute(0, 3, 1, 2, 4).flatten(3)

    def _seen(self, view: Tensor, first: int) -> Tensor:
        """A view of padded inputs whose spatial dimensions begin at ``first``: places there, kernel at the end."""
        for axis, (size, stride, dilation) in enumerate(
            zip(self.kernel, self.stride, self.dilation, strict=True), first
        ):
            view = view.unfold(axis, dilation * (size - 1) + 1, stride)[..., ::dilation]
        return view

    def windows(self, axis: int, length: int) -> list[slice]:
        """For each of the kernel's places along ``axis``, the padded pixels it meets on its way over ``length``."""
        stride, reach = self.stride[axis], self.stride[axis] * (length - 1) + 1
        return [
            slice(at * self.dilation[axis], at * self.dilation[axis] + reach, stride) for at in range(self.kernel[axis])
        ]

    def weight_gradient(self, padded: Tensor, outputs: Tensor, meet: int) -> Tensor:
        """Σ over the rows of each of ``meet`` meetings of the weight's gradient, its inputs' channels last.

        ``padded`` is ``channels_last``. These are plain matrix products, for which docs/training.md has a bound; a
        convolution's own kernel may transform its inputs first.
        """
        groups, (height, width) = self.groups, self.shape[:2]
        right = self.patches_last(padded)
        right = right.reshape(meet, -1, *right.shape[1:]).transpose(1, 2).flatten(0, 1).flatten(1, 2)
        left = outputs.reshape(meet, -1, groups, height // groups, prod(outputs.shape[2:]))
        left = left.permute(0, 2, 3, 1, 4).reshape(meet * groups, height // groups, -1)
        return torch.bmm(left, right).view(meet, height, *self.kernel, width)

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
