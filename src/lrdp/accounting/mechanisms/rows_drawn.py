"""How many of one person's rows are in a batch: the weights of the pairs that hold for all of them together."""

from __future__ import annotations

import numpy as np

from lrdp.accounting.renyi import FloatArray
from lrdp.errors import Unsupported

_LEAST_LOG_WEIGHT = -50.0  # rarer than 2e-22: far below the rounding that a loss distribution charges to δ anyway
_LEAST_REST = 1e-6  # of the chance that no row is drawn: above it, doubles hold what is left of 1 to ten digits
_ROUND_UP = 1 + 1e-12  # above the error of a product of a few thousand factors


def among_subsets(rows: int, dataset_size: int, batch_size: int) -> tuple[float, ...]:
    """P(j of the rows are in a uniform subset), j ≥ 1: hypergeometric.

    Without the rows the data set must still fill a batch, or there is no neighbour to compare with.
    """
    others = dataset_size - rows
    if others < batch_size:
        raise Unsupported(
            f"a group of {rows} rows of {dataset_size} leaves {others}, too few for a batch of {batch_size}: no pair "
            f"is proved for it."
        )
    index = np.arange(rows, dtype=np.float64)
    none = np.log1p(-batch_size / (dataset_size - index)).sum()
    possible = index[: min(rows, batch_size)]
    ratios = (rows - possible) * (batch_size - possible) / ((possible + 1) * (others - batch_size + possible + 1))
    return _kept(none + np.cumsum(np.log(ratios)), none)


def among_draws(rows: int, probability: float) -> tuple[float, ...]:
    """P(j of the rows are drawn), j ≥ 1, each on its own: binomial."""
    none = rows * np.log1p(-probability)
    index = np.arange(rows, dtype=np.float64)
    ratios = (rows - index) / (index + 1) * probability / (1 - probability)
    return _kept(none + np.cumsum(np.log(ratios)), none)


def _kept(log_weights: FloatArray, log_rest: float) -> tuple[float, ...]:
    """The weights up to the last that counts; rounded up, at the expense of the weight for no row at all."""
    if not log_rest > np.log(_LEAST_REST):
        raise Unsupported(
            f"a group of {len(log_weights)} rows or more has one in nearly every batch: no pair is resolved for it."
        )
    held = np.flatnonzero(log_weights > _LEAST_LOG_WEIGHT)
    return tuple((np.exp(log_weights[: held[-1] + 1]) * _ROUND_UP).tolist())
