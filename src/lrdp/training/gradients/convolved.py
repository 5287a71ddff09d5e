"""Per-example gradients of a convolution's weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from lrdp.training.clipping import row_squares
from lrdp.training.gradients.dense import Dense
from lrdp.training.gradients.geometry import Geometry
from lrdp.training.gradients.mixed import Mixed
from lrdp.training.gradients.protocol import KEPT_BYTES, Gradient, chunks, rounding_allowance

# Memory traffic in units of one multiplication: writing, reading and adding up one element of a per-example gradient.
# Estimated from a few kernel timings on one core of a server; it decides speed only, never the result.
_TRAFFIC = 100.0


@dataclass(frozen=True)
class Convolved:
    """``inputs`` and ``outputs`` (a gradient) are [rows, channels, places…]."""

    inputs: Tensor
    outputs: Tensor
    geometry: Geometry
    weight: Tensor

    def measure(self) -> tuple[Tensor, Gradient]:
        """By the cheapest of three ways for this shape: multiplied out, Gram of patches, Gram of pixels."""
        kept = self._bytes_each * len(self.inputs) <= KEPT_BYTES
        multiplied_out = _TRAFFIC * self.geometry.elements + (0 if kept else self._product_cost)
        if multiplied_out <= min(self._patch_cost, self._pixel_cost):
            return self._multiplied_out(kept)
        if self._patch_cost <= self._pixel_cost:
            return self._squares(self._patch_gram, self._patch_size), self
        return self._squares(self._pixel_gram, self._pixel_size), self

    @property
    def _bytes_each(self) -> int:
        return self.geometry.elements * self.inputs.element_size()

    @property
    def _places(self) -> int:
        return prod(self.outputs.shape[2:])

    @property
    def _pixels(self) -> int:
        sizes = zip(self.inputs.shape[2:], self.geometry.padding, strict=True)
        return prod(size + 2 * border for size, border in sizes)

    @property
    def _product_cost(self) -> float:
        return self.geometry.elements * self._places

    @property
    def _output_gram_cost(self) -> float:
        return self._places**2 * self.outputs.shape[1]

    @property
    def _patch_cost(self) -> float:
        width = self.inputs.shape[1] * prod(self.geometry.kernel)
        return self._output_gram_cost + self._places**2 * width + 10.0 * self._places * width

    @property
    def _pixel_cost(self) -> float:
        shifts = 4.0 * prod(self.geometry.kernel) * self._places**2 * self.geometry.groups
        return self._output_gram_cost + self._pixels**2 * self.inputs.shape[1] + shifts

    @property
    def _patch_size(self) -> int:
        width = self.inputs.shape[1] * prod(self.geometry.kernel)
        return (self._places * width + 2 * self.geometry.groups * self._places**2) * self.inputs.element_size()

    @property
    def _pixel_size(self) -> int:
        return self.geometry.groups * (self._pixels**2 + 2 * self._places**2) * self.inputs.element_size()

    def _multiplied_out(self, kept: bool) -> tuple[Tensor, Gradient]:
        width = prod(self.geometry.shape[1:]) * self.geometry.groups
        parts = chunks(len(self.inputs), self._bytes_each + width * self._places * self.inputs.element_size())
        if kept:
            return Dense(torch.cat([self.rows(part) for part in parts])).measure()
        return torch.cat([row_squares(self.rows(part)) for part in parts]), self

    def _squares(self, input_gram: Callable[[slice], Tensor], bytes_each: int) -> Tensor:
        squares = []
        for part in chunks(len(self.inputs), bytes_each):
            outputs = self._by_group(self.outputs[part])
            products = input_gram(part).mul_(torch.bmm(outputs.transpose(1, 2), outputs))
            allowance = rounding_allowance(products.diagonal(dim1=1, dim2=2), self.inputs.dtype)
            by_group = products.sum((1, 2)) + allowance
            squares.append(by_group.view(-1, self.geometry.groups).sum(1))
        return torch.cat(squares)

    def _by_group(self, values: Tensor) -> Tensor:
        """[rows × groups, channels of the group, places]."""
        rows, channels = values.shape[:2]
        return values.reshape(rows * self.geometry.groups, channels // self.geometry.groups, -1)

    def _patch_gram(self, part: slice) -> Tensor:
        patches = self.geometry.patches(self.inputs[part]).flatten(0, 1)
        return torch.bmm(patches.transpose(1, 2), patches)

    def _pixel_gram(self, part: slice) -> Tensor:
        """Inner products of raw pixels, added up over the kernel's elements: no patch is ever copied.

        A place of the kernel moves both pixels alike, so the sums can be taken along one axis after the other.
        """
        padded = self.geometry.padded(self.inputs[part])
        sizes, places = padded.shape[2:], self.outputs.shape[2:]
        pixels = self._by_group(padded)
        gram = torch.bmm(pixels.transpose(1, 2), pixels).view(-1, *sizes, *sizes)
        for axis, length in enumerate(places):
            first, *others = [_both(gram, axis, window) for window in self.geometry.windows(axis, length)]
            gram = first + others.pop() if others else first
            for other in others:
                gram += other
        return gram.reshape(len(gram), self._places, self._places)

    def rows(self, chosen: slice) -> Tensor:
        return self.geometry.weight_gradients(self.inputs[chosen], self.outputs[chosen])

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        bytes_each = max(self.outputs[0].numel(), self.inputs[0].numel()) * self.outputs.element_size()
        for part in chunks(len(self.inputs), bytes_each):
            scaled = self.outputs[part] * weights[part].view(-1, *(1,) * (self.outputs.dim() - 1))
            total += self.geometry.weight_gradient(self.inputs[part], scaled, self.weight)

    def without(self, dead: Tensor) -> Gradient:
        mask = dead.view(-1, *(1,) * (self.inputs.dim() - 1))
        inputs, outputs = self.inputs.masked_fill(mask, 0.0), self.outputs.masked_fill(mask, 0.0)
        return Convolved(inputs, outputs, self.geometry, self.weight)

    @classmethod
    def join(cls, uses: Sequence[Convolved]) -> Gradient:
        return Mixed(tuple(uses), len(uses[0].inputs))


def _both(gram: Tensor, axis: int, window: slice) -> Tensor:
    """The part of a Gram matrix [rows, sizes…, sizes…] whose pixels both lie in ``window`` along ``axis``."""
    whole = (slice(None),)
    here = whole * axis + (window,)
    return gram[whole + here + whole * (gram.dim() // 2 - axis - 1) + here]
