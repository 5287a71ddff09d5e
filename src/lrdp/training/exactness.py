"""Do the layers' rules give what torch gives? Compared in float64, for each parameter by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lrdp.training.chance import same_chance, without_chance
from lrdp.training.clipping import WIDE
from lrdp.training.engine import Engine, Totals
from lrdp.training.probes import some_rows

_CLOSE = 1e-9
_NOTHING = 1e-13  # of the whole gradient: what is zero but for rounding, as the gradient of an attention's key bias
_WEIGHTS = (1.0, -0.6, 0.35)
Gradients = dict[str, Tensor]


def gradients_of_each(engine: Engine, batch: Any, rows: int) -> Iterator[Gradients]:
    """Each example's gradients by torch alone, with zeros where it has none; one after the other, to hold one only."""
    for row in range(rows):
        with same_chance(engine.device):
            own = engine.plain_gradients(some_rows(batch, slice(row, row + 1)))
        pairs = zip(engine.parameters.items(), own, strict=True)
        yield {name: torch.zeros_like(p).detach() if g is None else g.detach() for (name, p), g in pairs}


def square(gradients: Gradients) -> float:
    """The squared length over all parameters."""
    return sum(float(values.square().sum()) for values in gradients.values())


def disagreement(engine: Engine, batch: Any, rows: Sequence[int]) -> str:
    """Where the rules and torch differ, for batches of so many ``rows``; empty if they agree.

    ``engine`` is of a copy in float64. Without chance, examples in a batch are compared with each of them alone; in the
    modes that will be trained in, a batch with torch's gradient of the same batch, under the same random numbers.
    """
    try:
        with without_chance(engine.model):
            found = list(_against_singles(engine, batch, rows))
        with _expressions_without_chance(engine):
            found.append(_differs(engine, batch, rows[-1], _of_batch(engine, batch, rows[-1])))
    except Exception as problem:  # noqa: BLE001 - whatever a rule makes of a model it was not written for
        return f"the rules do not fit it ({problem})"
    return next(filter(None, found), "")


def _against_singles(engine: Engine, batch: Any, rows: Sequence[int]) -> Iterator[str]:
    squares: list[float] = []
    truth = {name: torch.zeros_like(p).detach() for name, p in engine.parameters.items()}
    for weight, gradients in zip(_WEIGHTS, gradients_of_each(engine, batch, rows[-1]), strict=True):
        squares.append(square(gradients))
        for name, values in gradients.items():
            truth[name].add_(values, alpha=weight)
        if len(squares) in rows:
            yield _differs(engine, some_rows(batch, slice(0, len(squares))), len(squares), truth)
    yield _too_short(engine, batch, rows[-1], squares)


def _differs(engine: Engine, batch: Any, rows: int, truth: Gradients) -> str:
    totals: Totals = {}
    with same_chance(engine.device):
        engine.accumulate(batch, rows, lambda _: _weights(engine, rows), totals)
    whole = square(truth) ** 0.5
    for name, parameter in engine.parameters.items():
        allowed = _CLOSE * float(truth[name].norm()) + _NOTHING * whole
        given = totals.pop(parameter, None)
        differs = truth[name] if given is None else given.sub_(truth[name])
        if not float(differs.norm()) <= allowed:
            return f"the rules' gradient of {name} is not torch's"
    return ""


def _too_short(engine: Engine, batch: Any, rows: int, truth: list[float]) -> str:
    with same_chance(engine.device):
        squares = engine.sweep(batch, rows).lengths.squares.tolist()
    holds = all(found >= true * (1.0 - _CLOSE) for found, true in zip(squares, truth, strict=True))
    return "" if holds else "the rules' norm of an example's gradient lies below torch's"


def _of_batch(engine: Engine, batch: Any, rows: int) -> Gradients:
    """Torch's gradient of the weighted sum of a batch's losses: that of its examples, if none feels the others."""
    with same_chance(engine.device), torch.enable_grad():
        value = (engine.losses(batch, rows) * _weights(engine, rows)).sum()
        found: Sequence[Tensor | None] = torch.autograd.grad(value, [*engine.parameters.values()], allow_unused=True)
    pairs = zip(engine.parameters.items(), found, strict=True)
    return {name: torch.zeros_like(p).detach() if g is None else g for (name, p), g in pairs}


def _weights(engine: Engine, rows: int) -> Tensor:
    return torch.tensor(_WEIGHTS[:rows], dtype=WIDE, device=engine.device)


@contextmanager
def _expressions_without_chance(engine: Engine) -> Iterator[None]:
    """Layers that are written anew draw their random numbers in another order than torch's kernels do."""
    modes = [(part, part.training) for layer in engine.expressed for part in layer.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
