"""How far float arithmetic can err, from shapes alone, and the share of the clip norm that is kept free for it.

Everything here holds for sums taken in any order and with or without fused operations, so it does not depend on how a
matrix product is cut up or threaded. The proof that the clip norm holds is in docs/training.md, *Certified clipping*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch

from lrdp.accounting import CLIP_HEADROOM

# Gradients are clipped to one minus this share of the clip norm. It is spent as follows; what is left covers the
# coefficients' own rounding, underflow, and sums in float64, which are smaller by orders of magnitude.
HEADROOM = {getattr(torch, name): share for name, share in CLIP_HEADROOM.items()}
_SHARE_OF_MEETINGS = 5 / 8
_SHARE_OF_ADDITIONS = 2 / 8
_LARGEST = 512
# What is expected of ordinary examples, to choose how many may meet: partial sums up to 2·T^¼ times the gradient, and
# four different sizes of meetings in a model. Where it does not hold, signal is lost and never privacy.
_EXPECTED = 2.0 * 2.0


def unit(dtype: torch.dtype) -> float:
    """u: one rounding errs by at most this share of its result."""
    return torch.finfo(dtype).eps / 2


def inflation(length: int, dtype: torch.dtype) -> float:
    """What a computed sum of ``length`` non-negative products is multiplied by so as not to be below the true one."""
    lost = 2.0 * (length + 4) * unit(dtype)
    return 1.0 / (1.0 - lost) if lost < 1.0 else float("inf")


def meeting_limit(clip_norm: float, dtype: torch.dtype) -> float:
    """The most that rounding may add to the sum, over all parameters, because of the examples that meet one another."""
    return _SHARE_OF_MEETINGS * HEADROOM[dtype] * clip_norm


def clip_target(clip_norm: float, dtype: torch.dtype) -> float:
    """The norm to clip to, so that after all rounding no example moves the sum by more than ``clip_norm``.

    >>> clip_target(1.0, torch.float32)
    0.9921875
    """
    return clip_norm * (1.0 - HEADROOM[dtype])


def can_add_up(rows: int, additions: int, weights: torch.dtype, totals: torch.dtype) -> bool:
    """Whether totals of type ``totals`` can take this many partial sums of ``rows`` clipped gradients in all.

    Each addition errs by at most u times what was added up so far, which is at most ``rows`` clip norms; twice for the
    cast that may come before it, and twice for the two data sets that are compared.
    """
    return 4.0 * unit(totals) * additions * rows <= _SHARE_OF_ADDITIONS * HEADROOM[weights]


def additions_of(rows: int, together: int) -> int:
    """How many partial sums a pass over ``rows`` examples adds to a total: its meetings, one left over, and itself."""
    return -(-rows // together) + 2


@dataclass(frozen=True)
class Meeting:
    """``rows`` examples of ``terms`` outer products each, added up together in ``dtype``."""

    rows: int
    terms: int
    dtype: torch.dtype

    @property
    def radius(self) -> float:
        """What one example's partial sums are multiplied by to bound its part in the rounding of both data sets' sums.

        A sum of n terms errs by at most u for each of its partial sums, of which there are n - 1; scaling and
        multiplying err once for each term, which adds at most 2·T^¼ (docs/training.md). Every one of the examples that
        meet may be the worst, hence the factor ``rows``; two data sets, hence the factor 2.
        """
        length = self.rows * self.terms
        roundings = length + 2.0 * _fourth_root(self.terms) + 2.0
        return 2.0 * self.rows * roundings * unit(self.dtype) * inflation(length, self.dtype)


@lru_cache(maxsize=1024)
def meeting(terms: int, dtype: torch.dtype) -> Meeting:
    """As many examples as may meet without the rounding of ordinary ones coming near its limit: a power of two."""
    rows = _LARGEST
    while rows > 1 and _expected(Meeting(rows, terms, dtype)) > meeting_limit(1.0, dtype):
        rows //= 2
    return Meeting(rows, terms, dtype)


def _expected(given: Meeting) -> float:
    return given.radius * _fourth_root(given.terms) * _EXPECTED


def _fourth_root(terms: int) -> float:
    return math.sqrt(math.sqrt(terms))
