"""Trust, but verify: the engine's gradients of this very model against plain backward passes, before training.

The records are made up: of real ones only shapes and types are looked at. Else whoever chooses the weights could choose
them so that rounding makes this check fail on one certain record, and would learn from the refusal that it is there.
What is checked is the model's code and not its weights, which are stirred, so the outcome holds for later rounds too.
What is caught: a model that mixes examples, a loss that averages, positions counted along the wrong dimension, weights
used behind their module's back, buffers that remember.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.checked import CheckedGradients, Peaks
from lrdp.training.clipping import WIDE, Lengths, row_squares
from lrdp.training.engine import Engine, Loss, Totals, check_losses
from lrdp.training.memory import LiveBytes
from lrdp.training.records import Reader
from lrdp.training.task import Task

# Sizes that share no factor: a dimension that only happens to be as long as the batch is found out.
PROBE_ROWS = (2, 3)
_TOLERANCE = {None: 1e-3, torch.bfloat16: 5e-2}
_WEIGHTS = (1.0, -0.6, 0.35)
_NOTHING = 1e-7
_PUBLIC_SEED = 11
_STIR, _LEAST_SIZE = 0.1, 0.1
_CAUSES = (
    "the model mixes examples, has them along another dimension than the first, or uses a weight outside the module "
    "that holds it; or the loss averages over the batch. `lrdp check` shows the rule of each layer."
)


def verified(engine: Engine, task: Task, reader: Reader) -> CheckedGradients:
    """What ``task`` brings along from an earlier check of the same code, or else the outcome of one made now."""
    subject = _subject(engine, task, reader)
    if task.checked is not None and task.checked.subject == subject:
        engine.batched = task.checked.batched
        return task.checked
    found = CheckedGradients(subject, *_verify(engine, task.model, task.loss, reader), engine.batched)
    engine.batched.settle()
    return found


def _subject(engine: Engine, task: Task, reader: Reader) -> tuple[Any, ...]:
    """All that decides how gradients come about but the weights: the modules, their modes, the records' shapes."""
    modules = tuple((module, module.training) for module in task.model.modules())
    return modules, tuple(engine.parameters), engine.forward_dtype, task.loss, reader.form


def _verify(engine: Engine, model: nn.Module, loss: Loss, reader: Reader) -> tuple[Peaks, int]:
    """Refuse a model or loss whose per-example gradients cannot be trusted; a pass's peaks and least meeting."""
    batch = _made_up(reader.blank(PROBE_ROWS[-1]))
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    with _stirred(engine):
        _check_influence(engine, batch)
        with _without_chance(model):
            found = _compare(engine, model, loss, batch)
    _check_buffers(model, before)
    return found


def _compare(engine: Engine, model: nn.Module, loss: Loss, batch: Any) -> tuple[Peaks, int]:
    """All examples at once against one by one."""
    peaks, meetings = Peaks({}, {}), []
    few, many = PROBE_ROWS
    truth = _one_by_one(engine, model, loss, [_rows(batch, slice(row, row + 1)) for row in range(many)])
    for rows in (few, many):
        totals = {parameter: torch.zeros_like(parameter).detach() for parameter in engine.parameters.values()}
        given = sum(leaf[:rows].nbytes for leaf in tree_leaves(batch))
        with LiveBytes() as meter:
            tape = engine.sweep(_rows(batch, slice(0, rows)), rows)
            peaks.swept[rows] = meter.peak + given
            tape.release(_weights(engine, tape.lengths), totals)
        peaks.whole[rows] = meter.peak + given
        meetings.append(tape.least_meeting)
        _compare_norms(engine, truth, tape.lengths.squares)
        if rows == many:
            _compare_totals(engine, truth, totals)
        totals.clear()
    return peaks, min(meetings)


def _made_up(batch: Any) -> Any:
    """Public numbers of the same shapes and types: in [0, 1], where pictures lie, and 0 or 1, labels that all have."""
    source = torch.Generator().manual_seed(_PUBLIC_SEED)

    def drawn(leaf: Tensor) -> Tensor:
        if leaf.is_floating_point() or leaf.is_complex():
            return torch.rand(leaf.shape, generator=source).to(leaf)
        return torch.randint(0, 2, leaf.shape, generator=source).to(leaf)

    return tree_map(drawn, batch)


def check_finite(model: nn.Module) -> None:
    """Refuse a model with an infinite or undefined weight: no clip norm bounds what it makes of a record."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise InvalidInput(f"the model's weights must be finite, but {name} is not: refuse it and ask for another.")


@dataclass(frozen=True)
class _Truth:
    """What plain backward passes say: Σ weight_i · gradient_i, and each gradient's norm."""

    totals: Totals
    norms: list[float]


def _one_by_one(engine: Engine, model: nn.Module, loss: Loss, singles: list[Any]) -> _Truth:
    totals: Totals = {}
    norms = []
    for weight, single in zip(_WEIGHTS, singles, strict=True):
        with torch.enable_grad(), engine.precision():
            value = loss(model, single)
        check_losses(value, 1)
        parameters = list(engine.parameters.values()) if value.requires_grad else []
        found = torch.autograd.grad(value.sum(), parameters, allow_unused=True) if parameters else ()
        square = 0.0
        for parameter, gradient in zip(parameters, found, strict=True):
            if gradient is not None:
                square += float(row_squares(gradient.reshape(1, -1)))
                before = totals.get(parameter)
                totals[parameter] = gradient.mul_(weight) if before is None else before.add_(gradient, alpha=weight)
        norms.append(square**0.5)
    return _Truth(totals, norms)


def _weights(engine: Engine, lengths: Lengths) -> Tensor:
    weights = torch.tensor(_WEIGHTS[: len(lengths.squares)], dtype=WIDE, device=engine.device)
    return torch.where(torch.isfinite(lengths.squares), weights, 0.0)


def _compare_norms(engine: Engine, truth: _Truth, squares: Tensor) -> None:
    """A record that is not finite contributes nothing, and proves nothing."""
    tolerance = _TOLERANCE[engine.forward_dtype]
    for norm, square in zip(truth.norms, squares.tolist(), strict=False):
        if np.isfinite(norm) and not abs(square**0.5 - norm) <= tolerance * norm + _NOTHING:
            raise Unsupported(f"an example's gradient in a batch differs from its gradient alone: {_CAUSES}")


def _compare_totals(engine: Engine, truth: _Truth, totals: Totals) -> None:
    if not np.isfinite(truth.norms).all():
        return
    allowed = _TOLERANCE[engine.forward_dtype] * sum(truth.norms) + _NOTHING
    for name, parameter in engine.parameters.items():
        zero = parameter.new_zeros(()).expand_as(parameter)
        gap = totals.get(parameter, zero) - truth.totals.get(parameter, zero)
        if not float(row_squares(gap.reshape(1, -1))) ** 0.5 <= allowed:
            raise Unsupported(f"the gradient of {name} in a batch differs from that of its examples alone: {_CAUSES}")


def _check_influence(engine: Engine, batch: Any) -> None:
    """In the model's own mode, dropout included: an example's loss must not change when the others do."""
    others = tree_map(lambda leaf: torch.cat([leaf[:1], torch.zeros_like(leaf[1:])]), batch)
    values = []
    for given in (batch, others):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(0)
            values.append(float(engine.losses(given, PROBE_ROWS[-1])[0]))
    first, second = values
    if np.isfinite(first) and not abs(first - second) <= _TOLERANCE[engine.forward_dtype] * abs(first) + _NOTHING:
        raise Unsupported(f"an example's loss changes with the other examples of its batch: {_CAUSES}")


def _check_buffers(model: nn.Module, before: dict[str, Tensor]) -> None:
    for name, buffer in model.named_buffers():
        if name not in before or not torch.equal(before[name], buffer):
            raise Unsupported(
                f"the buffer {name} changes with the data it sees, without noise: remove it or freeze it."
            )


@contextmanager
def _without_chance(model: nn.Module) -> Iterator[None]:
    """Dropout off, so that two passes can be compared; every module's own mode comes back afterwards."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


@contextmanager
def _stirred(engine: Engine) -> Iterator[None]:
    """Every trained weight moved a little by public chance, and put back: a zero would hide what it multiplies."""
    source = torch.Generator().manual_seed(_PUBLIC_SEED)
    parameters = engine.parameters.values()
    initial = [parameter.detach().clone() for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, weights in zip(parameters, initial, strict=True):
                size = max(_LEAST_SIZE, float(weights.square().mean().sqrt()))
                parameter.add_(torch.randn(parameter.shape, generator=source).to(parameter), alpha=_STIR * size)
        yield
    finally:
        with torch.no_grad():
            for parameter, weights in zip(parameters, initial, strict=True):
                parameter.copy_(weights)


def _rows(batch: Any, chosen: slice) -> Any:
    return tree_map(lambda leaf: leaf[chosen], batch)
