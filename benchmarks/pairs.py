"""How long one ε takes for each of the newer mechanisms and pairs: by Rényi orders, and by loss distributions.

Every question is asked anew, nothing being remembered from the last time. Times are of the processor, in one thread,
and the least of several counts: what else a machine does can only add to it.
Run: make bench-pairs ARGS="--out docs/results/pairs.json"
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from lrdp.accounting import (
    Accountant,
    Adjacency,
    FixedSizeGaussian,
    FullBatchGaussian,
    GroupAccountant,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    TruncatedPoissonGaussian,
)
from lrdp.accounting.mechanisms.cut_batches import cuts
from lrdp.experiments.study.surroundings import surroundings

DELTA: Final = 1e-5
USUAL: Final = Adjacency.ADD_REMOVE
LEAST_TIMES: Final = 15
MOST_MS: Final = {"rdp": 5.0, "pld": 500.0}

Question = tuple[str, Mechanism, int, int]


def truncated(size: int, batch: int, cap: int, noise: float) -> TruncatedPoissonGaussian:
    return TruncatedPoissonGaussian(dataset_size=size, batch_size=batch, cap=cap, noise_multiplier=noise)


def fixed(size: int, batch: int, noise: float) -> FixedSizeGaussian:
    return FixedSizeGaussian(dataset_size=size, batch_size=batch, noise_multiplier=noise)


QUESTIONS: Final[tuple[Question, ...]] = (
    ("truncated Poisson, cap at the batch", truncated(5000, 128, 128, 3.0), 10_000, 1),
    ("truncated Poisson, generous cap", truncated(5399, 512, 626, 2.0), 60, 1),
    ("truncated Poisson, large batch", truncated(30_000, 2048, 2275, 2.0), 122, 1),
    ("truncated Poisson, a few records", truncated(1000, 1, 1, 1.0), 1000, 1),
    ("full batch", FullBatchGaussian(dataset_size=304, noise_multiplier=20.0), 100, 1),
    ("fixed size, 3 rows of one person", fixed(5000, 128, 6.0), 10_000, 3),
    ("fixed size, 8 rows of one person", fixed(30_000, 512, 6.0), 300, 8),
    ("truncated Poisson, 3 rows of one person", truncated(5000, 96, 128, 6.0), 10_000, 3),
    (
        "Poisson, 5 rows of one person",
        PoissonGaussian(dataset_size=5399, batch_size=512, noise_multiplier=6.0),
        60,
        5,
    ),
    ("full batch, 3 rows of one person", FullBatchGaussian(dataset_size=304, noise_multiplier=60.0), 100, 3),
)


def least_ms(action: Callable[[], Any], enough: float) -> float:
    """The least processor time of one call, over ``enough`` seconds and no fewer than fifteen calls."""
    times: list[float] = []
    while len(times) < LEAST_TIMES or sum(times) < enough:
        cuts.cache_clear()
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return 1e3 * min(times)


def accountants(rows: int) -> dict[str, Callable[[dict[Mechanism, int]], float]]:
    """By the pair's loss distribution; and by Rényi orders, which for several rows are the formula's."""
    tight: Accountant = PldAccountant(adjacency=USUAL, rows=rows)
    quick, group = RenyiAccountant(adjacency=USUAL), GroupAccountant(adjacency=USUAL, rows=rows)
    return {
        "rdp": lambda history: (quick.epsilon if rows == 1 else group.by_formula)(history, DELTA).epsilon,
        "pld": lambda history: tight.epsilon(history, DELTA).epsilon,
    }


def timed(question: Question, enough: float) -> dict[str, Any]:
    """A row of the record."""
    title, step, steps, rows = question
    row: dict[str, Any] = {"question": title, "steps": steps, "rows": rows}
    for name, epsilon in accountants(rows).items():
        row[f"{name}_epsilon"] = epsilon({step: steps})
        row[f"{name}_ms"] = round(least_ms(partial(epsilon, {step: steps}), enough), 3)
    row["kept"] = all(row[f"{name}_ms"] <= most for name, most in MOST_MS.items())
    return row


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--out", type=Path, default=Path("build/pairs.json"))
    asked.add_argument("--seconds", type=float, default=1.0, help="to spend on each time")
    given = asked.parse_args()
    rows = []
    for question in QUESTIONS:
        rows.append(timed(question, given.seconds))
        print(json.dumps(rows[-1]), flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"made": surroundings(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
