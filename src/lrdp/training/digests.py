"""Gradients in short: compared by their digests instead of whole, so that a check needs no copies of the model.

A digest adds up the elements, each times a public normal number of its own, into ``PLACES`` places. It is linear, and
gradients that differ have digests that do: in each place, what is left of a difference D is normal, with the length of
D's part there as its deviation. So the chance that it falls below a share s of that length is at most s for each place
hit, and all of them must.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

PLACES = 512
_CHUNK = PLACES << 11
_PUBLIC_SEED = 17


def digest(values: Tensor) -> Tensor:
    """``PLACES`` numbers, in the type of the values."""
    source = torch.Generator(values.device).manual_seed(_PUBLIC_SEED)
    found = values.new_zeros(PLACES)
    flat = values.reshape(-1)
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        weighed = torch.randn(part.shape, generator=source, device=part.device).to(part.dtype).mul_(part)
        whole = len(part) // PLACES * PLACES
        found += weighed[:whole].view(-1, PLACES).sum(0)
        found[: len(part) - whole] += weighed[whole:]
    return found


@dataclass
class Digests:
    """One example's or one batch's gradients: each parameter's squared length and digest, by name."""

    squares: dict[str, float] = field(default_factory=dict)
    digests: dict[str, Tensor] = field(default_factory=dict)

    def take(self, name: str, gradient: Tensor) -> None:
        """Add one parameter's gradient, or a part of it."""
        self.squares[name] = self.squares.get(name, 0.0) + float(gradient.norm()) ** 2
        found = digest(gradient)
        self.digests[name] = self.digests[name] + found if name in self.digests else found

    @property
    def square(self) -> float:
        """The squared length over all parameters."""
        return sum(self.squares.values())
