"""Do the records that a model is tried on prove anything? What fails, is flat or is not finite shows nothing."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import InvalidInput, LrdpError, Unsupported
from lrdp.figures import AtMost
from lrdp.training.engine import Engine
from lrdp.training.exactness import digests_of_each
from lrdp.training.probes import PROBE_ROWS, as_weights, candidates
from lrdp.training.records import RecordReader
from lrdp.training.task import Task

_NAMED = 8


def telling(engine: Engine, task: Task, reader: RecordReader) -> Any:
    """The first few records that show something: no two alike, all with a gradient that is finite and not zero.

    Raises:
        InvalidInput: if there are too few because the model or the loss raises.
        Unsupported: if there are too few otherwise.
    """
    chosen: list[Any] = []
    seen: list[float] = []
    problem: Exception | None = None
    for record in candidates(task, reader):
        try:
            seen.append(_square(engine, as_weights(record, engine.dtype)))
        except LrdpError:
            raise
        except Exception as reason:  # noqa: BLE001 - whatever a model or a loss does with a record
            problem = reason
            continue
        if 0.0 < seen[-1] < float("inf") and not any(_alike(record, other) for other in chosen):
            chosen.append(record)
        if len(chosen) == PROBE_ROWS[-1]:
            return _in_one(engine, task, reader, chosen)
    if not chosen and _needs_company(engine, task, reader):
        raise Unsupported(
            "an example by itself has no gradient, or no loss at all, though several together do: what is learnt from "
            "one depends on the others in its batch, as in a contrastive loss; compare each with public records."
        )
    raise _too_few(task, reader, seen) if problem is None else _failing(task, reader, problem)


def _needs_company(engine: Engine, task: Task, reader: RecordReader) -> bool:
    """Whether the first records together give a gradient; each by itself gives none."""
    rows = PROBE_ROWS[-1]
    batch = tree_map(lambda *leaves: torch.cat(leaves), *islice(candidates(task, reader), rows))
    with suppress(Exception):  # it does not run together either
        return 0.0 < _square(engine, as_weights(batch, engine.dtype), rows) < float("inf")
    return False


def _in_one(engine: Engine, task: Task, reader: RecordReader, records: list[Any]) -> Any:
    """A batch of these records, if the model takes them together."""
    batch = tree_map(lambda *leaves: torch.cat(leaves), *records)
    demand_runs(engine, task, reader, batch)
    return batch


def demand_runs(engine: Engine, task: Task, reader: RecordReader, batch: Any) -> None:
    """Refuse, in a sentence, a model or a loss that does not take these public records."""
    try:
        own = tree_map(torch.clone, batch)  # a model may mark what it is given, as checkpoints do
        engine.losses(as_weights(own, engine.dtype), len(tree_leaves(own)[0]))
    except LrdpError:
        raise
    except Exception as problem:
        raise _failing(task, reader, problem) from problem


def _square(engine: Engine, record: Any, rows: int = 1) -> float:
    squares: list[float] = []
    engine.backward(record, torch.ones(rows, device=engine.device), lambda _, g: squares.append(float(g.norm()) ** 2))
    return sum(squares)


def _alike(one: Any, other: Any) -> bool:
    return all(map(torch.equal, tree_leaves(one), tree_leaves(other)))


def _failing(task: Task, reader: RecordReader, problem: Exception) -> LrdpError:
    kind = "the public probes" if task.probes else "made-up records"
    found = InvalidInput(
        f"the model or the loss fails on {kind} of the form {reader.form} ({type(problem).__name__}: {problem}): "
        f"{_mend(task, reader)}; nothing was charged."
    )
    found.__cause__ = problem
    return found


def _mend(task: Task, reader: RecordReader) -> str:
    """What is usually amiss: types, or else the numbers themselves."""
    wide = any(leaf.dtype == torch.float64 for leaf in tree_leaves(reader.blank(1)))
    if wide and all(parameter.dtype == torch.float32 for parameter in task.model.parameters()):
        return "records hold float64 and the weights float32, so turn records into float32, as in x.float()"
    return (
        "let records hold what the model takes, in its shape, and leave out every other field; a loss is called as "
        "loss(model, batch), or is one of torch's; if all of that is so, pass three or more public records that it "
        "takes, Task(probes=…)"
    )


def _too_few(task: Task, reader: RecordReader, seen: list[float]) -> LrdpError:
    kind = "public probes" if task.probes else f"made-up records of the form {reader.form}"
    squares = ", ".join(str(AtMost(one)) for one in seen[:_NAMED])
    return Unsupported(
        f"{len(seen)} {kind} have gradients of squared lengths {squares}, and fewer than {PROBE_ROWS[-1]} different "
        f"ones that are finite and not zero show nothing: pass public records that the model learns from, "
        f"Task(probes=…); nothing was charged."
    )


def demand_gradients(engine: Engine, task: Task, reader: RecordReader) -> None:
    """Refuse a model with a parameter that none of many records reaches."""
    untouched = set(engine.parameters)
    for record in candidates(task, reader):
        if not untouched:
            return
        with suppress(Exception):  # enough others were taken
            (found,) = digests_of_each(engine, as_weights(record, engine.dtype), 1)
            untouched = {name for name in untouched if not found.squares.get(name)}
    if untouched:
        raise Unsupported(
            f"{len(untouched)} trained parameters get no gradient from any record that the model was tried on: "
            f"{_some(sorted(untouched))}. They would get noise and nothing else: freeze them (requires_grad_(False)), "
            f"or pass public records that reach them, Task(probes=…)."
        )


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
