"""How much longer a step takes with such a record."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from lrdp.accounting import FixedSizeGaussian
from lrdp.training import (
    Execution,
    PublicConstants,
    Sgd,
    StepDone,
    Task,
    TensorRecords,
    unaccounted_private_update,
)

from .public import source

TIMED_ROWS, TIMED_STEPS = 64, 40


class _TimedRaw(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 256) / 16)

    def forward(self, values: Tensor) -> Tensor:
        return values @ self.weight


TIMED: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 2)), (256,)),
    "convolution": (
        lambda: nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.Flatten(), nn.LazyLinear(2)),
        (3, 16, 16),
    ),
    "fallback": (lambda: nn.Sequential(_TimedRaw(), nn.ReLU(), nn.Linear(256, 2)), (256,)),
}


def seconds_of_a_step(form: str, record: str) -> float:
    """The median time of a step on records of which one is ``finite``, ``undefined``, or makes the loss ``raise``."""
    make, shape = TIMED[form]
    inputs = torch.randn(TIMED_ROWS + 1, *shape, generator=source(1))
    inputs[0] = {"finite": 0.0, "undefined": torch.nan, "raising": 1e6}[record]
    model = make()
    model(inputs[1:2])
    ends: list[float] = []

    def loss(given: nn.Module, batch: Any) -> Tensor:
        if bool((batch[0].amax(tuple(range(1, batch[0].dim()))) > 1e5).any()):
            raise ValueError("a value that nobody expects")
        return functional.cross_entropy(given(batch[0]), batch[1], reduction="none")

    def observe(done: StepDone) -> None:
        ends.append(done.seconds)

    task = Task(
        model=model,
        dataset=TensorRecords(inputs, torch.zeros(TIMED_ROWS + 1, dtype=torch.int64)),
        loss=loss,
        constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=1e-3)),
        execution=Execution(observe=observe),
    )
    mechanism = FixedSizeGaussian(dataset_size=TIMED_ROWS + 1, batch_size=TIMED_ROWS, noise_multiplier=1.0)
    unaccounted_private_update(mechanism, TIMED_STEPS, task)
    return statistics.median(np.diff(ends).tolist())


def slowdowns(records: Sequence[str] = ("undefined", "raising")) -> dict[str, dict[str, float]]:
    """How many times longer a step takes if one of its 64 records is not finite or raises, for each form."""
    return {
        form: {record: seconds_of_a_step(form, record) / seconds_of_a_step(form, "finite") for record in records}
        for form in TIMED
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    json.dump(slowdowns(sys.argv[1:] or ("undefined", "raising")), sys.stdout, indent=1)
