"""Do the layers' rules give what torch gives? Compared in float64, for each parameter by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from lrdp.errors import LrdpError, OutOfReach
from lrdp.training.chance import same_chance, without_chance
from lrdp.training.clipping import WIDE
from lrdp.training.digests import PLACES, Digests
from lrdp.training.engine import Engine
from lrdp.training.probes import some_rows

_CLOSE = 1e-9
_NOTHING = 1e-13  # of the whole gradient: zero but for rounding, such as the gradient of an attention's key bias
_WEIGHTS = (1.0, -0.6, 0.35)


def digests_of_each(engine: Engine, batch: Any, rows: int) -> Iterator[Digests]:
    """Each example's gradients by torch alone."""
    for row in range(rows):
        yield _by_torch(engine, some_rows(batch, slice(row, row + 1)), torch.ones(1, device=engine.device))


def disagreement(engine: Engine, batch: Any, rows: Sequence[int]) -> str:
    """Where the rules and torch differ, for batches of these numbers of ``rows``; empty if they agree.

    ``engine`` runs a copy in float64. Without chance, examples in a batch are compared with each of them alone; in the
    modes that will be trained in, a batch with torch's gradient of the same batch, under the same random numbers.
    """
    try:
        with without_chance(engine.model):
            singles = list(digests_of_each(engine, batch, rows[-1]))
            found = [_differs(engine, some_rows(batch, slice(0, count)), singles[:count]) for count in rows]
            found.append(_too_short(engine, batch, singles))
        with _expressions_without_chance(engine):
            whole = _by_torch(engine, batch, _weights(engine, rows[-1]))
            found.append(_differs(engine, batch, [whole], rows[-1]))
    except Exception as problem:  # noqa: BLE001 - whatever a rule makes of a model it was not written for
        return why_not(problem)
    return next(filter(None, found), "")


def why_not(problem: Exception) -> str:
    """Why the rules do not fit a model, from the error; but running out of memory says nothing about the model."""
    if isinstance(problem, MemoryError | torch.OutOfMemoryError) or "allocate memory" in str(problem):
        raise OutOfReach(
            f"the check of the model ran out of memory ({problem}): for a few seconds it takes four times what the "
            f"weights take; nothing was charged."
        ) from problem
    kind = "" if isinstance(problem, LrdpError) else f"{type(problem).__name__}: "
    return f"the rules do not fit it ({kind}{problem})"


def _by_torch(engine: Engine, batch: Any, weights: Tensor) -> Digests:
    found = Digests()
    with same_chance(engine.device):
        engine.backward(batch, weights, found.take)
    return found


def _by_rules(engine: Engine, batch: Any, rows: int) -> Digests:
    """One parameter's sum is held at a time."""
    names = {parameter: name for name, parameter in engine.parameters.items()}
    found, totals = Digests(), dict[Parameter, Tensor]()
    with same_chance(engine.device):
        tape = engine.sweep(batch, rows)
    for parameter in tape.releasing(_weights(engine, rows), totals):
        found.take(names[parameter], totals.pop(parameter))
    return found


def _differs(engine: Engine, batch: Any, singles: Sequence[Digests], rows: int = 0) -> str:
    """The first parameter for which the rules' weighted sum is not that of these examples, or not that batch's."""
    weights = [1.0] if rows else _WEIGHTS[: len(singles)]
    found = _by_rules(engine, batch, rows or len(singles))
    nothing = torch.zeros(PLACES, dtype=WIDE, device=engine.device)
    truth = {
        name: sum((w * one.digests.get(name, nothing) for w, one in zip(weights, singles, strict=True)), nothing)
        for name in engine.parameters
    }
    whole = sum(float(values.norm()) ** 2 for values in truth.values()) ** 0.5
    for name, values in truth.items():
        allowed = _CLOSE * float(values.norm()) + _NOTHING * whole
        if not float((found.digests.get(name, nothing) - values).norm()) <= allowed:
            return f"the rules' gradient of {name} is not torch's"
    return ""


def _too_short(engine: Engine, batch: Any, singles: Sequence[Digests]) -> str:
    with same_chance(engine.device):
        squares = engine.sweep(batch, len(singles)).lengths.squares.tolist()
    holds = all(found >= one.square * (1.0 - _CLOSE) for found, one in zip(squares, singles, strict=True))
    return "" if holds else "the rules' norm of an example's gradient lies below torch's"


def _weights(engine: Engine, rows: int) -> Tensor:
    return torch.tensor(_WEIGHTS[:rows], dtype=WIDE, device=engine.device)


@contextmanager
def _expressions_without_chance(engine: Engine) -> Iterator[None]:
    """Re-expressed layers draw their random numbers in another order than torch's kernels do."""
    modes = [(part, part.training) for layer in engine.expressed for part in layer.modules()]
    for part, _ in modes:
        part.training = False
    try:
        yield
    finally:
        for part, mode in modes:
            part.training = mode
