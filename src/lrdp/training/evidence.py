"""Do the records that a model is tried on prove anything? Of what fails, is flat or not finite nothing is seen."""

from __future__ import annotations

from typing import Any

import torch

from lrdp.errors import InvalidInput, LrdpError, Unsupported
from lrdp.training.engine import Engine
from lrdp.training.exactness import Gradients, gradients_of_each, square
from lrdp.training.probes import PROBE_ROWS, made_up, some_rows
from lrdp.training.records import Reader
from lrdp.training.task import Task

_MOST = PROBE_ROWS[-1]
_SEEDS = range(12, 20)
_NAMED = 8


def demand_losses(engine: Engine, batch: Any, task: Task, reader: Reader) -> None:
    """Refuse a model that does not run at all, or gives no number, before anything is said about its gradients."""
    kind = "the public probes" if task.probes else "made-up records"
    try:
        losses = [engine.losses(some_rows(batch, slice(0, rows)), rows).detach() for rows in (1, _MOST)]
    except LrdpError:
        raise
    except Exception as problem:
        raise InvalidInput(
            f"the model or the loss fails on {kind} of the form {reader.form} ({type(problem).__name__}: {problem}): "
            f"pass three or more public records that it takes, Task(probes=…); nothing was charged."
        ) from problem
    if not bool(torch.cat(losses).isfinite().all()):
        raise Unsupported(_proves_nothing("losses", losses[1].tolist()))


def demand_gradients(engine: Engine, batch: Any, own_probes: bool) -> None:
    """Refuse what proves nothing: an example without gradient, or a parameter that none of many examples reaches."""
    sizes, untouched = [], set(engine.parameters)
    for gradients in gradients_of_each(engine, batch, _MOST):
        sizes.append(square(gradients))
        untouched = _untouched(gradients, untouched)
    if not all(0.0 < size < float("inf") for size in sizes):
        raise Unsupported(_proves_nothing("gradients of the squared lengths", sizes))
    for seed in () if own_probes else _SEEDS:
        if untouched:
            for gradients in gradients_of_each(engine, made_up(batch, seed), _MOST):
                untouched = _untouched(gradients, untouched)
    if untouched:
        raise Unsupported(
            f"{len(untouched)} trained parameters get no gradient from any record that the model was tried on: "
            f"{_some(sorted(untouched))}. They would get noise and nothing else: freeze them (requires_grad_(False)), "
            f"or pass public records that reach them, Task(probes=…)."
        )


def _proves_nothing(what: str, values: list[float]) -> str:
    return (
        f"the records that the model was tried on have {what} {', '.join(f'{value:.3g}' for value in values)}, and "
        f"from what is zero or not finite nothing is seen: pass three or more public records that it learns from, "
        f"Task(probes=…)."
    )


def _untouched(gradients: Gradients, names: set[str]) -> set[str]:
    return {name for name in names if not bool(gradients[name].any())}


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
