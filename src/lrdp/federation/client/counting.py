"""Accuracy on a client's own data, as a noised and charged count; off unless server and policy both ask for it.

One step of the policy's own mechanism is spent on it: a batch is drawn, each record adds at most the clip norm, and the
noise is that of the policy. So the count is exactly as private as one training step, and is accounted as one.
"""

from __future__ import annotations

import copy
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lrdp.errors import InvalidInput
from lrdp.federation.wire.shares import pack_share
from lrdp.ledger import Receipt
from lrdp.training import PublicConstants, Sgd, Task, clip_target, private_update, public_records


class _Counter(nn.Module):
    """One weight, whose gradient by a record is a fixed step if the record is classified correctly, and else zero."""

    def __init__(self, model: nn.Module, clip_norm: float) -> None:
        super().__init__()
        self.judged = copy.deepcopy(model).requires_grad_(False).eval()
        self.total = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.total.weight)
        self._step = _step(clip_norm)

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        right = (self.judged(inputs).argmax(-1) == labels).to(self.total.weight.dtype)
        counted: Tensor = self.total(self._step * right[:, None])
        return counted[:, 0]


def _step(clip_norm: float) -> float:
    """Just below what gradients are clipped to, so that a count is not shortened."""
    return clip_target(clip_target(clip_norm, torch.float32), torch.float32)


def _counted(model: nn.Module, batch: Any) -> Tensor:
    inputs, labels = batch
    value: Tensor = model(inputs, labels)
    return value


def counting(task: Task, clip_norm: float) -> Task:
    """What is trained, for one step, to count the records that ``task``'s model classifies correctly."""
    counter = _Counter(task.model, clip_norm)
    return Task(
        model=counter,
        dataset=task.dataset,
        loss=_counted,
        constants=PublicConstants(clip_norm=clip_norm, optimiser=Sgd(lr=1.0)),
        probes=_correct(counter.judged, public_records(task)),
    )


def _correct(judged: nn.Module, batch: Any) -> list[Any]:
    """Public records with the labels that the model gives them: of one that is not correct nothing is seen."""
    place = next(judged.parameters()).device
    inputs, labels = tree_map(lambda leaf: leaf.to(place), batch)
    with torch.no_grad():
        said = judged(inputs).argmax(-1).to(labels)
    return [(tree_map(itemgetter(row), inputs), said[row]) for row in range(len(said))]


def private_accuracy(receipt: Receipt, task: Task) -> bytes:
    """The noised share of correct records among a batch, of a task for ``counting``; it may lie below 0 or above 1."""
    if receipt.steps != 1:
        raise InvalidInput(f"a count is one step, got {receipt.steps}: nothing was counted.")
    (moved,) = private_update(receipt, task).delta.values()
    return pack_share(-float(moved) / _step(receipt.clip_norm))
