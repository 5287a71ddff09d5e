"""How well a score tells patients apart: concordance, which for a yes or no is the area under the ROC curve."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from lrdp.experiments.hospitals.columns import Floats


def concordance(happened: NDArray[np.bool_], days: Floats, scores: Floats) -> float:
    """The share of pairs in which whoever came to harm first has the higher score (C-index); NaN without a pair.

    A pair counts where one had the event at a day when the other was still seen without it. Equal scores count half.
    """
    first = happened[:, None] & (days[:, None] < days[None, :])
    return _share(first, scores)


def area(happened: NDArray[np.bool_], scores: Floats) -> float:
    """The area under the ROC curve: the share of pairs with and without the outcome in the right order."""
    return _share(happened[:, None] & ~happened[None, :], scores)


def _share(pairs: NDArray[np.bool_], scores: Floats) -> float:
    count = int(pairs.sum())
    if count == 0:
        return math.nan
    right = (scores[:, None] > scores[None, :]) + 0.5 * (scores[:, None] == scores[None, :])
    return float(right[pairs].sum() / count)
