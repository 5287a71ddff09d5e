"""A linear fingerprint of a vector: tag(u) = Σ α_i·β_c·u_ic mod p, with u laid out in rows of 1024 columns.

Guarantees: for a vector e ≠ 0 (mod p) fixed before the seed, tag(e) = 0 has probability ≤ 2/p: either every row's β-sum
vanishes (≤ 1/p for one nonzero row) or the α-sum of the rows' sums does (≤ 1/p). Linear: tag(u + v) = tag(u) + tag(v).
With a seed that can be predicted it guarantees nothing.

Only d/1024 + 1024 elements are expanded. Rows are summed exactly by float64 matrix products: β is cut into limbs so
narrow that 1024 products of a limb and a coordinate stay within 2^53, in whatever order the library adds them. Sums of
many updates, too wide for that, are cut into two halves first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import mul

import numpy as np
from numpy.typing import NDArray

from lrdp.errors import InvalidInput
from lrdp.integrity.field import MERSENNE_127, Field
from lrdp.integrity.fixed_point import LARGE, SMALL, Whole, vector

COLUMNS = 1024
_ROWS_AT_ONCE = 128
_EXACT_BITS = 53
_COLUMN_BITS = 10
_HALF_BITS = 24


@dataclass(frozen=True, eq=False)
class Challenge:
    """The vector r = α⊗β."""

    field: Field
    size: int
    alphas: tuple[int, ...]
    betas: tuple[int, ...]

    def tag(self, values: Whole) -> int:
        """⟨r, values⟩ mod p."""
        if values.size != self.size:
            raise InvalidInput(f"the challenge is for {self.size} coordinates, got {values.size}.")
        if values.dtype == SMALL:
            return self._sum(vector(values, SMALL), _magnitude_bits(values), _as_they_are)
        vector(values, LARGE)
        high = self._sum(values, max(_magnitude_bits(values) - _HALF_BITS, 1), _high_half)
        return (self._sum(values, _HALF_BITS, _low_half) + (high << _HALF_BITS)) % self.field.prime

    def _sum(self, values: Whole, magnitude_bits: int, part: Callable[[Whole], Whole]) -> int:
        """Σ α_i·β_c·part(values)_ic, where every |part(values)_ic| ≤ 2^magnitude_bits."""
        limb_bits = _EXACT_BITS - _COLUMN_BITS - magnitude_bits
        limbs = self._limbs(limb_bits)
        scratch = np.empty((min(_ROWS_AT_ONCE, len(self.alphas)), COLUMNS))
        total = 0
        for first in range(0, len(self.alphas), _ROWS_AT_ONCE):
            alphas = self.alphas[first : first + _ROWS_AT_ONCE]
            rows = _rows(values[first * COLUMNS : (first + len(alphas)) * COLUMNS], len(alphas))
            np.copyto(scratch[: len(alphas)], part(rows))
            sums = np.matmul(scratch[: len(alphas)], limbs).astype(np.int64)
            for limb, column in enumerate(sums.T):
                total += sum(map(mul, alphas, column.tolist())) << (limb_bits * limb)
        return total % self.field.prime

    def _limbs(self, bits: int) -> NDArray[np.float64]:
        betas, low = np.array(self.betas, object), (1 << bits) - 1
        return np.stack(
            [(betas >> shift & low).astype(np.float64) for shift in range(0, self.field.bits, bits)], axis=1
        )


def challenge(seed: bytes, size: int, field: Field = MERSENNE_127) -> Challenge:
    """The challenge that ``seed`` stands for."""
    return Challenge(
        field=field,
        size=size,
        alphas=tuple(field.expand(b"alpha", seed, -(-size // COLUMNS))),
        betas=tuple(field.expand(b"beta", seed, COLUMNS)),
    )


def _magnitude_bits(values: Whole) -> int:
    return max(int(values.max()), -int(values.min()), 1).bit_length()


def _rows(values: Whole, count: int) -> Whole:
    missing = count * COLUMNS - values.size
    return (np.pad(values, (0, missing)) if missing else values).reshape(count, COLUMNS)


def _as_they_are(rows: Whole) -> Whole:
    return rows


def _low_half(rows: Whole) -> Whole:
    return rows & ((1 << _HALF_BITS) - 1)


def _high_half(rows: Whole) -> Whole:
    return rows >> _HALF_BITS
