"""Means over seeds, gaps between methods, and how sure one can be of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Final

from scipy.stats import t as student

_TWO_SIDED: Final = 0.975
Interval = tuple[float, float] | tuple[None, None]


@dataclass(frozen=True, kw_only=True)
class Gap:
    """How much better one method is than another, in points, with 95% intervals.

    ``paired``: both had the same batches and noise for the same seed, which shows the methods' own difference.
    ``independent``: each seed of one is compared with the next seed of the other, as if two people had run them.
    """

    mean: float
    paired: Interval
    independent: Interval


def gap(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Gap:
    """Of accuracies in percent by seed, over the seeds that both have."""
    seeds = sorted(set(ours) & set(theirs))
    following = seeds[1:] + seeds[:1]
    same = [ours[seed] - theirs[seed] for seed in seeds]
    other = [ours[seed] - theirs[after] for seed, after in zip(seeds, following, strict=True)]
    return Gap(mean=fmean(same), paired=interval(same), independent=interval(other))


def interval(values: list[float]) -> Interval:
    """Student's 95% interval of the mean; none of fewer than two values."""
    if len(values) < 2:
        return None, None
    mean, half = fmean(values), float(student.ppf(_TWO_SIDED, len(values) - 1)) * stdev(values) / math.sqrt(len(values))
    return mean - half, mean + half


def spread(values: list[float]) -> float | None:
    """The standard deviation; none of one value."""
    return stdev(values) if len(values) > 1 else None


def error_of_test_set(percent: float, records: int) -> float:
    """√(p(1−p)/n) in points: what another test set of the same size would change."""
    share = percent / 100
    return 100 * math.sqrt(share * (1 - share) / records)
