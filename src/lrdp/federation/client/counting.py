"""Accuracy on a client's own data, as a noised and charged count; off unless server and policy both ask for it.

One step of the policy's own mechanism is spent on it: a batch is drawn, each record adds at most the clip norm, and the
noise is that of the policy. So the count is exactly as private as one training step, and is accounted as one. Whether
there is anything to count is found out on public records, before the charge.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lrdp.errors import InvalidInput, LrdpError
from lrdp.federation.wire.shares import pack_share
from lrdp.ledger import Receipt
from lrdp.training import (
    ExampleLoss,
    PublicConstants,
    Sgd,
    Task,
    as_loss,
    clip_target,
    is_by_unit,
    private_update,
    public_records,
)

_TABLE: Final = 2  # a row for each example, and a column for each class


class _Counter(nn.Module):
    """One weight, whose gradient by a record is a fixed step if the record is classified correctly, otherwise zero."""

    def __init__(self, model: nn.Module, loss: ExampleLoss, clip_norm: float) -> None:
        super().__init__()
        self.judged = copy.deepcopy(model).requires_grad_(False).eval()
        self.total = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(self.total.weight)
        self._loss, self._step = loss, _step(clip_norm)

    def said(self, batch: Any) -> tuple[Tensor, Tensor]:
        """The class that the model gives to each record, and its label."""
        output: Any = self._loss.parts(batch).output(self.judged)  # whatever a model returns
        labels = self.target(batch)
        if not isinstance(output, Tensor) or output.dim() != _TABLE or output.shape[1] < _TABLE:
            raise InvalidInput(_no_count("the model does not give a logit for each of two or more classes"))
        if labels.is_floating_point() or labels.numel() != len(output):
            raise InvalidInput(_no_count("the label of a record is not one whole number"))
        return output.argmax(1), labels.reshape(len(output))

    def target(self, batch: Any) -> Tensor:
        """The labels, as they lie in the batch."""
        return self._loss.parts(batch).target

    def forward(self, batch: Any) -> Tensor:
        classes, labels = self.said(batch)
        right = (classes == labels).to(self.total.weight.dtype)
        counted: Tensor = self.total(self._step * right[:, None])
        return counted[:, 0]


def _no_count(why: str) -> str:
    return f"the metric 'correct' counts records of the right class, and {why}: nothing was counted or spent."


def _step(clip_norm: float) -> float:
    """Just below what gradients are clipped to, so that no count is scaled down."""
    return clip_target(clip_target(clip_norm, torch.float32), torch.float32)


@dataclass(frozen=True)
class _Counted(ExampleLoss):
    """The counter's output is itself the loss."""

    @property
    def words(self) -> str:
        return "the number of correct records"

    def __call__(self, model: nn.Module, batch: Any) -> Tensor:
        value: Tensor = model(batch)
        return value


def counting(task: Task, clip_norm: float) -> Task:
    """What is trained, for one step, to count the records that ``task``'s model classifies correctly.

    Raises:
        InvalidInput: where there is nothing to count: the records have no label, or the model gives no classes.
    """
    if is_by_unit(task.dataset):
        raise InvalidInput(_no_count("here a record is a unit, with a label for each of its rows"))
    counter = _Counter(task.model, as_loss(task.loss), clip_norm)
    counter.total.to(next(counter.judged.parameters()).device)
    return Task(
        model=counter,
        dataset=task.dataset,
        loss=_Counted(),
        constants=PublicConstants(clip_norm=clip_norm, optimiser=Sgd(lr=1.0)),
        probes=_correct(counter, public_records(task)),
    )


def _correct(counter: _Counter, batch: Any) -> list[Any]:
    """Public records with the labels that the model gives them: one that is not correct would show nothing."""
    place = next(counter.parameters()).device
    batch = tree_map(lambda leaf: leaf.to(place), batch)
    try:
        with torch.no_grad():
            classes, labels = counter.said(batch)
    except LrdpError:
        raise
    except Exception as problem:
        reason = f"the model fails on public records ({type(problem).__name__}: {problem})"
        raise InvalidInput(_no_count(reason)) from problem
    old = counter.target(batch)
    said = classes.to(labels.dtype).reshape(old.shape)
    told = tree_map(lambda leaf: said if leaf is old else leaf, batch)
    return [tree_map(itemgetter(row), told) for row in range(len(said))]


def private_accuracy(receipt: Receipt, task: Task) -> bytes:
    """The noised share of correct records among a batch, of a task for ``counting``; it may lie below 0 or above 1."""
    if receipt.steps != 1:
        raise InvalidInput(f"a count is one step, got {receipt.steps}: nothing was counted.")
    (moved,) = private_update(receipt, task).delta.values()
    return pack_share(-float(moved) / _step(receipt.clip_norm))
