"""Random vectors of the kinds that rounding goes wrong on."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor


class Chance:
    """All that is random in a search, from one seed."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._plain, self._tensors, self.dtype = random.Random(seed), torch.Generator().manual_seed(seed), dtype

    def pick(self, *options):
        return self._plain.choice(options)

    def uniform(self, low: float, high: float) -> float:
        return self._plain.uniform(low, high)

    def power(self, low: float, high: float) -> float:
        """A power of ten: any order of magnitude is as likely as any other."""
        return 10.0 ** self.uniform(low, high)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._tensors, dtype=self.dtype)

    def whole(self, below: int, *shape: int) -> Tensor:
        return torch.randint(0, below, shape, generator=self._tensors)


def _mantissas(chance: Chance, count: int, width: int) -> Tensor:
    """One number to a term: products all round the same way, and the errors add up instead of averaging out."""
    return torch.full((count, width), 1.0 + chance.uniform(0.0, 1.0), dtype=chance.dtype)


def _alternating(chance: Chance, count: int, width: int) -> Tensor:
    return (1.0 - 2.0 * (torch.arange(width) % 2)).to(chance.dtype).expand(count, width)


def _spike(chance: Chance, count: int, width: int) -> Tensor:
    return torch.zeros(count, width, dtype=chance.dtype).index_fill_(1, chance.whole(width, 1), 1.0)


def _alike(chance: Chance, count: int, width: int) -> Tensor:
    return chance.normal(1, width).expand(count, width)


def vectors(chance: Chance, spread: float, count: int, width: int) -> Tensor:
    """Nearly the same vector ``count`` times: the terms differ by ``spread``, as a whole or in each element."""
    base = chance.pick(*[_mantissas] * 6, _alternating, _spike, _alike)(chance, count, width)
    return base * (1.0 + spread * chance.normal(count, chance.pick(1, 1, 1, width)))


def sign_pattern(chance: Chance) -> Callable[[int], Tensor]:
    """Signs of the terms whose sum is, mostly, zero; the same kind for any number of terms."""
    kind = chance.pick(*["ends"] * 2, *["neighbours"] * 2, *["by turns"] * 2, "halves", "random", "same")
    tilt, start = chance.pick(0.0, 0.0, 0.0, 1.0, -1.0), chance.uniform(0.0, 1.0)

    def signs(count: int) -> Tensor:
        places = torch.arange(count)
        first = int(start * max(1, count - 1))
        found = {
            "ends": lambda: 1.0 * (places == 0) - 1.0 * (places == count - 1),
            "neighbours": lambda: 1.0 * (places == first) - 1.0 * (places == first + 1),
            "by turns": lambda: 1.0 - 2.0 * (places % 2),
            "halves": lambda: 1.0 - 2.0 * (places >= count / 2),
            "random": lambda: 1.0 - 2.0 * chance.whole(2, count),
            "same": lambda: torch.ones(count),
        }[kind]()
        return (found * 2.0 ** (tilt * places.clamp(max=8))).to(chance.dtype)

    return signs
