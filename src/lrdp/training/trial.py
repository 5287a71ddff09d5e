"""What training a task privately costs beside plain training: measured in this very process, on a public record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from lrdp.accounting import TruncatedPoissonGaussian
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, Randomness, prepared
from lrdp.training.memory import LiveBytes
from lrdp.training.sampling import EMPTY, Draw
from lrdp.training.task import Task

_ROUNDS = 3
_ANY_NOISE = 1.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task that passed the gate; ``alone`` says why its examples run one by one, and is empty if they do not.

    Seconds and peak bytes are those of one step, of private training and of plain SGD on the same rows.
    """

    rows: int
    alone: str
    seconds_to_check: float
    private_seconds: float
    plain_seconds: float
    private_bytes: int
    plain_bytes: int


def trial(task: Task, rows: int) -> Trial:
    """Check ``task``, then take a step of so many rows a few times; nothing is read, charged or released.

    Raises whatever an update would be refused for.
    """
    room = max(rows, len(task.dataset)) + 1
    mechanism = TruncatedPoissonGaussian(noise_multiplier=_ANY_NOISE, dataset_size=room, batch_size=rows, cap=rows)
    started = time.monotonic()
    with prepared(mechanism, task) as ready:
        checked = time.monotonic() - started
        nobody = replace(ready, sampler=_Nobody(rows))
        kinds = (lambda: _private_step(nobody), lambda: _plain_step(ready, rows))
        private, plain = map(_peak, kinds)
        seconds = [[_seconds(step) for step in kinds] for _ in range(_ROUNDS)]
    own, other = map(min, zip(*seconds, strict=True))
    return Trial(
        rows=rows,
        alone=ready.checked.alone,
        seconds_to_check=checked,
        private_seconds=own,
        plain_seconds=other,
        private_bytes=private,
        plain_bytes=plain,
    )


@dataclass(frozen=True)
class _Nobody:
    """Draws no record into any slot: a step costs the same whoever is in it."""

    rows: int

    def draw(self, _: Keystream) -> Draw:
        return Draw(np.full(self.rows, EMPTY, dtype=np.int64))


def _private_step(ready: LocalSteps) -> None:
    ready.run(1, Randomness(sampling=Keystream.from_system(), noise=Keystream.from_system()))


def _plain_step(ready: LocalSteps, rows: int) -> None:
    """The weights stay: what they would become is written over the gradient, at the same cost."""
    gradients: dict[str, Tensor] = {}
    ready.engine.backward(
        ready.reader.blank(rows), torch.full((rows,), 1 / rows, device=ready.engine.device), gradients.__setitem__
    )
    with torch.no_grad():
        for name, gradient in gradients.items():
            gradient.add_(ready.engine.parameters[name])


def _peak(step: Callable[[], None]) -> int:
    with LiveBytes() as meter:
        step()
    return int(meter.peak)


def _seconds(step: Callable[[], None]) -> float:
    started = time.monotonic()
    step()
    return time.monotonic() - started
