"""Per-example gradients of a convolution's weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from lrdp.training.gradients import gram
from lrdp.training.gradients.dense import multiplied_out
from lrdp.training.gradients.geometry import Geometry
from lrdp.training.gradients.mixed import Mixed
from lrdp.training.gradients.protocol import KEPT_BYTES, Gradient, Measured, chunks, live, meetings
from lrdp.training.gradients.weighted import add_up
from lrdp.training.rounding import Meeting, meeting

# Memory traffic in units of one multiplication: writing, reading and adding up one element of a per-example gradient.
# Estimated from a few kernel timings on one core of a server; it decides speed only, never the result.
_TRAFFIC = 100.0


@dataclass(frozen=True)
class Convolved:
    """``inputs`` and ``outputs`` (a gradient) are [rows, channels, places…]."""

    inputs: Tensor
    outputs: Tensor
    geometry: Geometry

    def measure(self) -> Measured:
        """By the cheapest of three ways for this shape: multiplied out, Gram of patches, Gram of pixels."""
        kept = self._bytes_each * len(self.inputs) <= KEPT_BYTES
        product = _TRAFFIC * self.geometry.elements + (0 if kept else self._product_cost)
        if product <= min(self._patch_cost, self._pixel_cost):
            return self._multiplied_out()
        channels, kernel = self.geometry.shape[1], prod(self.geometry.kernel)
        if self._patch_cost <= self._pixel_cost:
            return self._by_gram(self._patch_gram, self._patch_size, channels * kernel)
        return self._by_gram(self._pixel_gram, self._pixel_size, channels + kernel)

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
        copied = self._pixels * self.inputs.shape[1] + self._places * width
        return (copied + 2 * self.geometry.groups * self._places**2) * self.inputs.element_size()

    @property
    def _pixel_size(self) -> int:
        return self.geometry.groups * (self._pixels**2 + 2 * self._places**2) * self.inputs.element_size()

    def _multiplied_out(self) -> Measured:
        patches = prod(self.geometry.shape[1:]) * self.geometry.groups * self._places * self.inputs.element_size()
        return multiplied_out(self, len(self.inputs), self.geometry.elements, self.inputs.dtype, patches)

    def _by_gram(self, input_gram: Callable[[slice], Tensor], bytes_each: int, products: int) -> Measured:
        """Groups have weights of their own, so their squares add up."""
        groups, height = self.geometry.groups, self.geometry.shape[0] // self.geometry.groups

        def grams() -> Iterator[tuple[Tensor, Tensor]]:
            for part in chunks(len(self.inputs), bytes_each):
                outputs = self._by_group(self.outputs[part])
                yield input_gram(part), torch.bmm(outputs.transpose(1, 2), outputs)

        squares, reaches = (found.view(-1, groups).sum(1) for found in gram.lengths(grams(), (products, height)))
        return Measured(squares, reaches, self)

    def _by_group(self, values: Tensor) -> Tensor:
        """[rows × groups, channels of the group, places]."""
        rows, channels = values.shape[:2]
        return values.reshape(rows * self.geometry.groups, channels // self.geometry.groups, -1)

    def _patch_gram(self, part: slice) -> Tensor:
        patches = self.geometry.patches_last(self.geometry.channels_last(self.inputs[part])).flatten(0, 1)
        return torch.bmm(patches, patches.transpose(1, 2))

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

    @property
    def meeting(self) -> Meeting:
        return meeting(self._places, self.inputs.dtype)

    def add_to(self, total: Tensor, weights: Tensor) -> None:
        together, geometry = self.meeting.rows, self.geometry
        patches = together * self._places * prod(geometry.shape[1:]) * geometry.groups
        size = max(geometry.elements, patches) * self.inputs.element_size()
        sums = torch.zeros_like(total.movedim(1, -1), memory_format=torch.contiguous_format)
        for part in meetings(len(self.inputs), together, size):
            scale = weights[part].view(-1, *(1,) * (self.outputs.dim() - 1))
            outputs = live(self.outputs[part] * scale, weights[part])
            inputs = live(geometry.channels_last(self.inputs[part]), weights[part])
            add_up(geometry.weight_gradient(inputs, outputs, max(1, len(inputs) // together)), sums)
        total.add_(sums.movedim(-1, 1))

    @classmethod
    def join(cls, uses: Sequence[Convolved]) -> Gradient:
        return Mixed(tuple(uses), len(uses[0].inputs))


def _both(gram: Tensor, axis: int, window: slice) -> Tensor:
    """The part of a Gram matrix [rows, sizes…, sizes…] whose pixels both lie in ``window`` along ``axis``."""
    whole = (slice(None),)
    here = whole * axis + (window,)
    return gram[whole + here + whole * (gram.dim() // 2 - axis - 1) + here]
