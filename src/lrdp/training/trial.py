"""A step that nobody pays for, on records that nobody has: what private training takes compared with plain SGD."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.accounting import TruncatedPoissonGaussian
from lrdp.training.checked_records import unread_records
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, Randomness, prepared
from lrdp.training.memory import LiveBytes, MemoryPlan
from lrdp.training.probes import some_rows
from lrdp.training.records import RecordReader
from lrdp.training.sampling import Draw
from lrdp.training.task import Task

_ROUNDS = 3
_ANY_NOISE = 1.0


@dataclass(frozen=True, kw_only=True)
class Trial:
    """A task that passed the gate; ``alone`` says why its examples run one by one, and is empty if they do not.

    Seconds and peak bytes are those of one step, of private training and of plain SGD on the same rows; ``memory`` is
    what a step was predicted to take.
    """

    rows: int
    alone: str
    seconds_to_check: float
    private_seconds: float
    plain_seconds: float
    private_bytes: int
    plain_bytes: int
    memory: MemoryPlan


def trial(task: Task, rows: int) -> Trial:
    """Check ``task``, then take a step of ``rows`` made-up records a few times; nothing is charged or released.

    Only the data set's number of records and the form of the first few are looked at.
    Raises whatever an update would be refused for.
    """
    task = replace(task, dataset=unread_records(task.dataset, task.loss))
    room = max(rows, len(task.dataset)) + 1
    mechanism = TruncatedPoissonGaussian(noise_multiplier=_ANY_NOISE, dataset_size=room, batch_size=rows, cap=rows)
    started = time.monotonic()
    with prepared(mechanism, task) as ready:
        checked = time.monotonic() - started
        public = _on_public_records(ready, rows)
        kinds = (lambda: _private_step(public), lambda: _plain_step(public, rows))
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
        memory=ready.memory,
    )


@dataclass(frozen=True)
class _InTurn:
    """Draws a few records over and over."""

    rows: int
    records: int

    def draw(self, _: Keystream) -> Draw:
        return Draw(np.arange(self.rows, dtype=np.int64) % self.records)


def _on_public_records(ready: LocalSteps, rows: int) -> LocalSteps:
    """The same steps, on the records that the task was checked with."""
    found = ready.checked.probes
    count = len(tree_leaves(found)[0])
    probes = [tree_map(itemgetter(row), found) for row in range(count)]
    reader = RecordReader(probes, ready.engine.device, some_rows(found, slice(0, 1)))
    return replace(ready, sampler=_InTurn(rows, count), reader=reader)


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
