"""Do the layers' rules give what torch gives? Compared in float64, for each parameter by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lrdp.training.chance import same_chance, without_chance
from lrdp.training.clipping import WIDE
from lrdp.training.engine import Engine
from lrdp.training.probes import some_rows

_CLOSE = 1e-9
_NOTHING = 1e-13  # of the whole gradient: what is zero but for rounding, as the gradient of an attention's key bias
_WEIGHTS = (1.0, -0.6, 0.35)
Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class _Truth:
    """Each example's gradients, by plain backward passes."""

    examples: list[Gradients]

    @property
    def squares(self) -> list[float]:
        return [sum(float(values.square().sum()) for values in found.values()) for found in self.examples]

    def sum(self, count: int) -> Gradients:
        """Σ weight_i · gradient_i over the first ``count`` examples."""
        names = self.examples[0]
        pairs = list(zip(_WEIGHTS, self.examples[:count], strict=False))
        return {name: torch.stack([weight * found[name] for weight, found in pairs]).sum(0) for name in names}


def gradients_of_each(engine: Engine, batch: Any, rows: int) -> list[Gradients]:
    """Each example's gradients by torch alone, with zeros where it has none."""
    found = []
    for row in range(rows):
        with same_chance(engine.device):
            own = engine.plain_gradients(some_rows(batch, slice(row, row + 1)))
        pairs = zip(engine.parameters.items(), own, strict=True)
        found.append({name: torch.zeros_like(p).detach() if g is None else g.detach() for (name, p), g in pairs})
    return found


def disagreement(engine: Engine, batch: Any, rows: Sequence[int]) -> str:
    """Where the rules and torch differ, for batches of so many ``rows``; empty if they agree.

    ``engine`` is of a copy in float64. Without chance, examples in a batch are compared with each of them alone; in the
    modes that will be trained in, a batch with torch's gradient of the same batch, under the same random numbers.
    """
    most = rows[-1]
    try:
        with without_chance(engine.model):
            truth = _Truth(gradients_of_each(engine, batch, most))
            found = [_differs(engine, some_rows(batch, slice(0, count)), count, truth.sum(count)) for count in rows]
            found.append(_too_short(engine, batch, most, truth.squares))
        with _expressions_without_chance(engine):
            found.append(_differs(engine, batch, most, _of_batch(engine, batch, most)))
    except Exception as problem:  # noqa: BLE001 - whatever a rule makes of a model it was not written for
        return f"the rules do not fit it ({problem})"
    return next(filter(None, found), "")


def _differs(engine: Engine, batch: Any, rows: int, truth: Gradients) -> str:
    totals = {parameter: torch.zeros_like(parameter).detach() for parameter in engine.parameters.values()}
    with same_chance(engine.device):
        engine.accumulate(batch, rows, lambda _: _weights(engine, rows), totals)
    whole = sum(float(values.square().sum()) for values in truth.values()) ** 0.5
    for name, parameter in engine.parameters.items():
        allowed = _CLOSE * float(truth[name].norm()) + _NOTHING * whole
        if not float((totals[parameter] - truth[name]).norm()) <= allowed:
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
