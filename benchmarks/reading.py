"""What reading ahead saves: steps on a data set that waits, in turn and ahead, alternating in one process."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.training import (
    CheckedRecords,
    CrossEntropy,
    Execution,
    PublicConstants,
    Sgd,
    Task,
    check_records,
    unaccounted_private_update,
)

RECORDS, BATCH, STEPS = 512, 128, 6
LOSS = CrossEntropy(classes=10)


@dataclass(frozen=True)
class Waiting:
    """Records that take ``seconds`` to arrive, a batch at a time, as from a disk or over a network."""

    seconds: float

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, number: int) -> tuple[Tensor, int]:
        return torch.full((3, 16, 16), number / RECORDS), number % 10

    def __getitems__(self, numbers: Sequence[int]) -> list[tuple[Tensor, int]]:
        time.sleep(self.seconds * len(numbers) / BATCH)
        return [self[number] for number in numbers]


def seconds_a_step(dataset: CheckedRecords, model: nn.Module, read_ahead: bool) -> float:
    """Between the first step's end and the last one's: the check before them is the same for both."""
    ends: list[float] = []
    task = Task(
        model=model,
        dataset=dataset,
        loss=LOSS,
        constants=PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1)),
        execution=Execution(read_ahead=read_ahead, observe=lambda done: ends.append(done.seconds)),
    )
    step = FixedSizeGaussian(dataset_size=RECORDS, batch_size=BATCH, noise_multiplier=1.0)
    unaccounted_private_update(step, STEPS, task)
    return (ends[-1] - ends[0]) / (STEPS - 1)


def compared(model: nn.Module, wait: float, repeat: int) -> dict[str, float]:
    records = check_records(Waiting(wait), LOSS)
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(repeat):
        for read_ahead, measured in times.items():
            measured.append(seconds_a_step(records, model, read_ahead))
    in_turn, ahead = (1e3 * statistics.median(times[kind]) for kind in (False, True))
    return {"wait_ms": 1e3 * wait, "in_turn_ms": in_turn, "ahead_ms": ahead}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--repeat", type=int, default=5)
    asked.add_argument("--json", action="store_true")
    given = asked.parse_args()
    torch.set_num_threads(1)
    first, second, head = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 32, 3, stride=2), nn.Linear(1152, 10)
    model = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), head)
    found = [compared(model, wait, given.repeat) for wait in (0.0, 0.02, 0.05)]
    if given.json:
        print(json.dumps(found))
        return
    for row in found:
        print("  ".join(f"{name} {value:.1f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
