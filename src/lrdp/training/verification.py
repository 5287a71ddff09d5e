"""One gate for every model: what passes it has exact per-example gradients, for all weights and all records.

Tried on public records and stirred weights, so that the outcome is a matter of code and holds for later rounds too. An
example must not feel the others beside it, or the model is refused. The layers' rules are used where they agree with
torch's own gradients in float64, parameter by parameter, and where nothing computed for one row depends on other
rows, to the last bit. Everything else runs example by example, by plain backward passes, which is exact by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import InvalidInput
from lrdp.training.checked import CheckedGradients, Peaks
from lrdp.training.clipping import WIDE
from lrdp.training.engine import Engine
from lrdp.training.evidence import demand_gradients, demand_runs, telling
from lrdp.training.exactness import disagreement, why_not
from lrdp.training.independence import feels_others, hazards, looks_at_values, refuse_mixing, whole_pass
from lrdp.training.memory import LiveBytes
from lrdp.training.probes import PROBE_ROWS, Probes, around, as_weights, some_rows, stirred, twin
from lrdp.training.records import RecordReader
from lrdp.training.remembering import demand_unchanged, refuse_memory, weights_and_buffers
from lrdp.training.shapes import Shapes
from lrdp.training.sizing import depends_on_size
from lrdp.training.task import Task
from lrdp.training.torch_losses import as_loss
from lrdp.training.unlooking import unlooking
from lrdp.training.widening import Widening

_LOG = logging.getLogger("lrdp.training")
_MOST = PROBE_ROWS[-1]
_CLOSE = {torch.float64: 1e-9, torch.float32: 1e-4}


def verified(engine: Engine, task: Task, reader: RecordReader) -> CheckedGradients:
    """What ``task`` brings along from an earlier check of the same code, or else the outcome of one made now.

    ``engine`` is not entered yet: the model is copied as its owner made it.
    """
    subject = _subject(engine, task, reader)
    if task.checked is not None and task.checked.subject == subject:
        engine.batched, engine.shapes = task.checked.batched, task.checked.shapes
        return task.checked
    before = weights_and_buffers(task.model)
    with _exactly(engine, task, reader) as (exact, batch):
        tried = around(batch).where(partial(_runs, exact))
        alone = _why_inexact(exact, task, reader, tried)
        if not alone:
            alone, engine.shapes = _shapes(exact, as_weights(batch, exact.dtype))
    with engine:  # a copy in float64 may take what the model itself does not
        demand_runs(engine, task, reader, batch)
    with engine, stirred(task.model):
        alone = alone or _why_tied(engine, tried)
    with engine:
        peaks, least_meeting = _alone_peaks(engine, batch) if alone else _peaks(engine, batch)
    demand_unchanged(task.model, before)
    engine.batched.settle()
    return CheckedGradients(subject, peaks, least_meeting, engine.batched, engine.shapes, alone, batch)


def verified_at(engine: Engine, checked: CheckedGradients, sizes: Collection[int]) -> CheckedGradients:
    """``checked``, if passes over these numbers of rows do what the checked ones did; else with ``alone`` set."""
    for rows in sizes:
        if checked.alone or rows in checked.sizes:
            continue
        with engine, stirred(engine.model), unlooking():
            if why := depends_on_size(engine, checked.probes, rows):
                return replace(checked, alone=why)
        checked.sizes.add(rows)
    return checked


def _subject(engine: Engine, task: Task, reader: RecordReader) -> tuple[Any, ...]:
    """What decides how gradients come about, apart from the weights: the modules, their modes, the records' shapes."""
    modules = tuple((module, module.training) for module in task.model.modules())
    trained = tuple((name, parameter.dtype) for name, parameter in engine.parameters.items())
    return modules, trained, engine.forward_dtype, task.loss, reader.form


@contextmanager
def _exactly(engine: Engine, task: Task, reader: RecordReader) -> Iterator[tuple[Engine, Any]]:
    """An engine on a copy in float64, or ``engine`` if the copy does not run; and records that it learns from."""
    exact = _widened(task)
    if exact is not None:
        with exact, Widening():
            try:
                batch = _telling_only(exact, task, reader)
            except InvalidInput as problem:
                _LOG.info("the model does not run in float64: %s", problem)
            else:
                yield exact, batch
                return
    with engine, stirred(task.model):
        yield engine, _telling_only(engine, task, reader)


def _telling_only(engine: Engine, task: Task, reader: RecordReader) -> Any:
    """Records that it learns from, if they leave it as it was."""
    before = weights_and_buffers(engine.model)
    batch = telling(engine, task, reader)
    demand_unchanged(engine.model, before)
    return batch


def _widened(task: Task) -> Engine | None:
    try:
        return Engine(twin(task.model), as_loss(task.loss).in_float64())
    except Exception as problem:  # noqa: BLE001 - whatever a model does when it is copied
        _LOG.info("there is no copy in float64: %s", why_not(problem))
        return None


def _why_inexact(exact: Engine, task: Task, reader: RecordReader, tried: Probes) -> str:
    """Why the layers' rules are not exact; empty if they are. Refuses what cannot be trained in any way."""
    given = tried.as_weights(exact.dtype)
    refuse_memory(exact, given, _CLOSE[exact.dtype])
    chance = hazards(exact, given)
    if not chance:
        refuse_mixing(exact, given, _CLOSE[exact.dtype])
    demand_gradients(exact, task, reader)
    if chance:
        return chance
    if exact.model is task.model and exact.dtype != torch.float64:
        return "it does not run in float64, so its rules cannot be checked"
    with unlooking():
        problem = disagreement(exact, given.batch, PROBE_ROWS)
        return problem or looks_at_values(partial(whole_pass, exact, given.batch))


def _why_tied(engine: Engine, tried: Probes) -> str:
    """Why examples might not be apart in one pass of the rules; empty if they are."""
    try:
        with unlooking():
            return feels_others(engine, tried)
    except Exception as problem:  # noqa: BLE001 - whatever a rule makes of a model it was not written for
        return why_not(problem)


def _runs(engine: Engine, batch: Any) -> bool:
    """Whether the model takes these records; it always takes the first ones in other places."""
    try:
        engine.losses(as_weights(batch, engine.dtype), _MOST)
    except Exception:  # noqa: BLE001 - as there
        return False
    return True


def _shapes(engine: Engine, batch: Any) -> tuple[str, Shapes | None]:
    """Those inside a pass, learnt from two numbers of rows and tried on a third; or why that fails."""
    both = tree_map(lambda leaf: torch.cat([leaf, leaf]), batch)
    try:
        with unlooking():
            known = [(rows, engine.sweep(some_rows(batch, slice(0, rows)), rows).shapes) for rows in PROBE_ROWS]
            shapes = Shapes(*known)
            shapes.demand(2 * _MOST, engine.sweep(both, 2 * _MOST).shapes)
    except Exception as problem:  # noqa: BLE001 - as there
        return why_not(problem), None
    return "", shapes


def _peaks(engine: Engine, batch: Any) -> tuple[Peaks, int]:
    """What a pass over few rows and over more takes, and the fewest examples that are added up together."""
    peaks, meetings = Peaks({}, {}), []
    for rows in PROBE_ROWS:
        totals = {parameter: torch.zeros_like(parameter).detach() for parameter in engine.parameters.values()}
        given = sum(leaf[:rows].nbytes for leaf in tree_leaves(batch))
        with LiveBytes() as meter:
            tape = engine.sweep(some_rows(batch, slice(0, rows)), rows)
            peaks.swept[rows] = meter.peak + given
            tape.release(torch.ones(rows, dtype=WIDE, device=engine.device), totals)
        peaks.whole[rows] = meter.peak + given
        meetings.append(tape.least_meeting)
    return peaks, min(meetings)


def _alone_peaks(engine: Engine, batch: Any) -> tuple[Peaks, int]:
    """One example's pass; no more is held, however many there are."""
    with LiveBytes() as meter:
        engine.plain_gradients(some_rows(batch, slice(0, 1)))
    each = sum(leaf[:1].nbytes for leaf in tree_leaves(batch))
    peaks = {rows: meter.peak + rows * each for rows in PROBE_ROWS}
    return Peaks(peaks, dict(peaks)), 1


def check_finite(model: nn.Module) -> None:
    """Refuse a model with an infinite or undefined weight: no clip norm bounds what it makes of a record."""
    for name, parameter in model.named_parameters():
        if not bool(torch.isfinite(parameter).all()):
            raise InvalidInput(f"the model's weights must be finite, but {name} is not: refuse it and ask for another.")
