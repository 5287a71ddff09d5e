"""Does an example feel the others of its batch? Each is changed in turn, and the others are watched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lrdp.errors import Unsupported
from lrdp.training.chance import drawn_so_far, elsewhere, same_chance
from lrdp.training.engine import Engine
from lrdp.training.lineage import Pass, where_rows_meet
from lrdp.training.looking import looking
from lrdp.training.marking import filled, marked
from lrdp.training.probes import PROBE_ROWS, Probes
from lrdp.training.sizing import flow_of, lengths_of

_ROWS = PROBE_ROWS[-1]
_NO_ROW = -1
_HUGE = 1e6  # passes a threshold that no made-up record would


def hazards(engine: Engine, probes: Probes) -> str:
    """Why one example's random numbers depend on others' values; empty if they do not.

    Rejection sampling draws until a value fits, so the next example gets other numbers; alone, each has its own.
    """
    seen = {_drawn(engine, batch) for row in range(_ROWS) for batch in (probes.batch, *probes.replacing(row))}
    return "" if len(seen) == 1 else "how many random numbers are drawn depends on values in the batch"


def _drawn(engine: Engine, batch: Any) -> bytes:
    with same_chance(engine.device):
        engine.losses(batch, _ROWS)
        return drawn_so_far(engine.device)


def refuse_mixing(engine: Engine, probes: Probes, close: float) -> None:
    """Refuse a model in which some example's loss is not its own, beyond what rounding does to it."""
    plain = _losses(engine, probes.batch).detach()
    for row in range(_ROWS):
        for batch in probes.replacing(row):
            moved = (_losses(engine, batch).detach() - plain).abs()
            moved[row] = 0.0
            if not bool((moved <= close * (1.0 + plain.abs())).all()):
                raise Unsupported(_mixes(engine, probes))


def _mixes(engine: Engine, probes: Probes) -> str:
    place = ""
    with suppress(Exception):  # not every model takes what is not a number; that it mixes is already known
        place = _where_rows_meet(engine, probes)
    return (
        "an example's loss changes with the other examples of its batch, so no example's gradient is its own"
        + (f": they meet in {place}" if place else "")
        + ". Keep examples along the first dimension, take statistics over each example's own values (GroupNorm or "
        "LayerNorm in place of BatchNorm), and let the loss return one value per example (reduction='none')."
    )


def _losses(engine: Engine, batch: Any) -> Tensor:
    with same_chance(engine.device):
        return engine.losses(batch, _ROWS)


def feels_others(engine: Engine, probes: Probes) -> str:
    """Why what is computed for a row may depend on other rows, if only by a bit; empty if it does not.

    Weights can be chosen that turn a bit into anything. Others are replaced by other records, by huge numbers and by
    what is not a number, which taints whatever it touches, however small its share.
    """
    if place := looks_at_values(partial(_losses, engine, probes.batch)):
        return place
    if _draws_elsewhere(engine, probes.batch):
        return "it draws random numbers from numpy or from Python, on which much may depend that was not tried"
    if place := _where_rows_meet(engine, probes):
        return f"something is computed from several examples of a batch ({place})"
    plain = lengths_of(engine, probes.batch, _ROWS)
    for row in range(_ROWS):
        own = _only(engine, row)
        found = [lengths_of(engine, batch, _ROWS) for batch in probes.replacing(row)]
        with marked(engine.model, engine.rows_of(own, probes.batch), torch.nan):
            found.append(lengths_of(engine, filled(probes.batch, own, torch.nan), _ROWS))
        if not all(torch.equal(lengths[~own], plain[~own]) for lengths in found):
            return "what is computed for an example depends on the others beside it, if only in its last bits"
    return ""


def looks_at_values(run: Callable[[], Any]) -> str:
    """Where what ``run`` does depends on values; empty if nowhere."""
    with looking() as watched:
        run()
    return f"what is done with an example depends on values in its batch ({watched.place})" if watched.place else ""


def whole_pass(engine: Engine, batch: Any) -> None:
    """Forward and backward by torch alone: a function may have its own backward pass."""
    with torch.enable_grad():
        losses = _losses(engine, batch)
        torch.autograd.grad(losses.sum(), [*engine.parameters.values()], allow_unused=True)


def _draws_elsewhere(engine: Engine, batch: Any) -> bool:
    with same_chance(engine.device):
        before = elsewhere()
        engine.losses(batch, _ROWS)
        return elsewhere() != before


def _where_rows_meet(engine: Engine, probes: Probes) -> str:
    replaced = [_replacing(engine, probes, row) for row in range(_ROWS)]
    return where_rows_meet(partial(_marked_flow, engine, probes.batch), replaced)


def _replacing(engine: Engine, probes: Probes, row: int) -> Iterator[Pass]:
    """Passes in which one row is replaced."""
    own = _only(engine, row)
    for batch in probes.replacing(row):
        yield partial(_marked_flow, engine, batch)
    for value in (_HUGE, torch.nan):
        yield partial(_marked_flow, engine, filled(probes.batch, own, value), row, value)


def _marked_flow(engine: Engine, batch: Any, row: int = _NO_ROW, value: float = 0.0) -> list[Tensor]:
    """With the hooks that mark rows even where none is marked, so that the same operations are run."""
    with marked(engine.model, engine.rows_of(_only(engine, row), batch), value):
        return flow_of(engine, batch, _ROWS)


def _only(engine: Engine, row: int) -> Tensor:
    return torch.arange(_ROWS, device=engine.device) == row
