"""Which learning rate a line of a study takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any

from lrdp.errors import InvalidInput
from lrdp.experiments.study import Cell


def best_rate(tried: Iterable[tuple[Cell, Mapping[str, Any]]], rates: Sequence[float]) -> float:
    """The best on validation data on average over the tuning seeds, of equals the smallest; a single one as it is."""
    if len(rates) == 1:
        return rates[0]
    scores = {rate: list[float]() for rate in sorted(rates)}
    for cell, result in tried:
        if cell["rate"] in scores:
            scores[cell["rate"]].append(result["validation"])
    return max(scores, key=lambda rate: fmean(scores[rate]))


def check_tuning_seeds(tuning: Sequence[int], seeds: Sequence[int]) -> None:
    """Refuse to choose rates on the very randomness that they are judged by, and to choose them by nothing."""
    both = sorted({*tuning} & {*seeds})
    if both or not tuning:
        raise InvalidInput(
            f"tuning_seeds must be one or more that are none of seeds, got {list(tuning)}"
            f"{f' of which {both} are' if both else ''}: nothing was run."
        )
