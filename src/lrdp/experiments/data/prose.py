"""Public texts: those of another task, which are nobody's records in this one.

QNLI's sentences are from Wikipedia, and its questions and QQP's were published for all to use. None of them is a record
of the task that they condition.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, cast

import numpy as np

from lrdp.experiments.data.loading import TASKS

PHRASES: Final = 600
PAIRS: Final = 500
_WORDS: Final = 8  # of a phrase, beyond the first, on average


def other_task(task: str) -> str:
    """Whose pairs are public for this task: QQP's for QNLI, QNLI's for all others."""
    return "qqp" if "qnli" in task else "qnli"


def pairs(task: str, data: Path, count: int = PAIRS, seed: int = 0) -> list[tuple[str, str]]:
    """Some of a task's pairs, by lot."""
    every = cast(list[tuple[str, str]], TASKS[task].read(data).texts)
    return [every[number] for number in np.random.default_rng(seed).permutation(len(every))[:count]]


def phrases(data: Path, count: int = PHRASES, seed: int = 0) -> list[str]:
    """Pieces of Wikipedia's sentences, some words each, as SST-2's are pieces of reviews."""
    random = np.random.default_rng(seed)
    found = []
    for _, sentence in pairs("qnli", data, count, seed):
        words = sentence.lower().replace(",", " ,").split()
        length = 1 + int(random.geometric(1 / _WORDS))
        first = int(random.integers(0, max(1, len(words) - length + 1)))
        found.append(" ".join(words[first : first + length]))
    return found
