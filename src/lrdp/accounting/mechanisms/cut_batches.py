"""How a cap cuts Poisson batches: what can be said of every data set of at most a given size.

Of n records each is drawn with probability p. With K of the *others* drawn, a record enters freely where K < cap; where
K ≥ cap it takes another's place with probability p·cap/(K+1), and which records were kept tells nothing about K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import betainc

from lrdp.accounting.renyi import FloatArray, IndexArray

_ROUND_UP = 1e-9  # above the relative error of the incomplete beta function: 1e-11 for caps of five million
_ROUND_UP_BY_ROOT = 1e-13  # and above it for larger ones, since it grows with the cap's root: 6e-10 at a cap of 10¹⁰
_LEAST = 1e-300  # where it underflows
_GROWTH = 1.25  # sizes further from the largest are held together in longer runs
_KNOTS = np.array([0.0, 0.25, 1.0])


@dataclass(frozen=True)
class Cuts:
    """For every size up to the largest, what a record does there is no worse than what one row of ``weights`` says.

    A row holds the probabilities that the record enters freely (first), or that it displaces another with each of the
    probabilities ``swaps``.
    """

    swaps: tuple[float, ...]
    weights: tuple[tuple[float, ...], ...]


def filled(others: int, places: int, probability: float) -> float:
    """P(Binomial(others, p) ≥ places), rounded up."""
    if places <= 0:
        return 1.0
    return 0.0 if places > others else float(reached(np.array([others + 1]), probability, places)[0])


def reached(sizes: IndexArray, probability: float, cap: int) -> FloatArray:
    """τ: the chance that the others alone fill the cap, P(Binomial(size - 1, p) ≥ cap), rounded up; for sizes > cap."""
    chances = betainc(cap, sizes - cap, probability)
    return np.minimum(np.maximum(chances, _LEAST) * _rounded_up(cap), 1.0)


def swapped(sizes: IndexArray, probability: float, cap: int) -> FloatArray:
    """q̄: how likely the record is to displace another where they do, rounded up.

    The mean of p·cap/(K+1) over K ≥ cap is (cap/size)·P(Binomial(size, p) > cap)/P(Binomial(size - 1, p) ≥ cap).
    """
    most = probability * cap / (cap + 1) * _rounded_up(cap)
    beyond, full = betainc(cap + 1, sizes - cap, probability), betainc(cap, sizes - cap, probability)
    with np.errstate(divide="ignore", invalid="ignore"):
        swaps = cap / sizes * (beyond / full) * _rounded_up(cap) ** 3
    # What has lost some or all of its digits says nothing: a record that meets a full batch has a chance of at most p.
    return np.where(beyond > _LEAST, np.minimum(swaps, most), most)


@lru_cache(maxsize=1024)
def cuts(largest: int, probability: float, cap: int) -> Cuts:
    """What covers every size up to ``largest``.

    Guarantees: docs/accounting.md, Theorem 3. Sizes up to the cap are never cut. The others are held together in runs;
    in a run the chance of a cut is largest at its last size, and the chance to displace at its first.
    """
    if cap >= largest:
        return Cuts(swaps=(), weights=((1.0,),))
    last = largest - _offsets(largest - cap - 1)
    first = np.append(last[1:] + 1, cap + 1)
    first[0] = largest  # what is usually the worst is computed exactly
    chances, swaps = reached(last, probability, cap), swapped(first, probability, cap)
    knots = np.unique(swaps.min() * (swaps.max() / swaps.min()) ** _KNOTS)
    knots[0], knots[-1] = swaps.min(), swaps.max()
    shares = _between(knots, swaps) * chances[:, None]
    rows = np.column_stack([1 - chances, shares])
    never = (1.0, *(0.0 for _ in knots))
    return Cuts(swaps=tuple(knots.tolist()), weights=(never, *map(tuple, rows.tolist())))


def _rounded_up(cap: int) -> float:
    """The factor that lifts a chance above what the incomplete beta function may have lost of it."""
    return 1 + max(_ROUND_UP, _ROUND_UP_BY_ROOT * math.sqrt(cap))


def _offsets(most: int) -> IndexArray:
    """How far below the largest size each run ends: 0, 1, then ever further."""
    count = int(np.ceil(np.log(max(most, 1)) / np.log(_GROWTH))) + 1
    further = np.floor(_GROWTH ** np.arange(count))
    return np.append(
        0, np.unique(further[further <= most].astype(np.int64))
    )  # the last may be no whole number of 64 bits


def _between(knots: FloatArray, swaps: FloatArray) -> FloatArray:
    """The weights of the two knots next to each: cost is convex in the chance to displace, so the chord is above it."""
    right = np.clip(np.searchsorted(knots, swaps), 1, max(len(knots) - 1, 1))
    weights = np.zeros((len(swaps), len(knots)))
    if len(knots) == 1:
        return weights + 1.0
    share = (swaps - knots[right - 1]) / (knots[right] - knots[right - 1])
    rows = np.arange(len(swaps))
    weights[rows, right - 1], weights[rows, right] = 1 - share, share
    return weights
