"""Does an example feel the others of its batch? Each is changed in turn, and the others are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lrdp.errors import Unsupported
from lrdp.training.chance import same_chance
from lrdp.training.engine import Engine
from lrdp.training.lineage import Pass, where_rows_meet
from lrdp.training.looking import looking
from lrdp.training.probes import made_up, with_row

_OTHER_SEED = 12
_NO_ROW = -1
_HUGE = 1e6  # passes a threshold that no made-up record would


def refuse_mixing(engine: Engine, batch: Any, rows: int, close: float) -> None:
    """Refuse a model in which some example's loss is not its own, beyond what rounding does to it."""
    with torch.no_grad():
        plain = _losses(engine, batch, rows)
        for row in range(rows):
            for other in (tree_map(torch.zeros_like, batch), made_up(batch, _OTHER_SEED)):
                moved = (_losses(engine, with_row(batch, row, other), rows) - plain).abs()
                moved[row] = 0.0
                if not bool((moved <= close * (1.0 + plain.abs())).all()):
                    raise Unsupported(_mixes(engine, batch, rows))
        if not torch.equal(_losses(engine, batch, rows).nan_to_num(), plain.nan_to_num()):
            raise Unsupported(
                "the same records have another loss in a later pass: the model or the loss keeps something of the "
                "records before them; make every pass start anew."
            )


def _mixes(engine: Engine, batch: Any, rows: int) -> str:
    place = _where_rows_meet(engine, batch, rows)
    return (
        "an example's loss changes with the other examples of its batch, so no example's gradient is its own"
        + (f": they meet in {place}" if place else "")
        + ". Keep examples along the first dimension, take statistics over each example's own values (GroupNorm or "
        "LayerNorm in place of BatchNorm), and let the loss return one value per example (reduction='none')."
    )


def _losses(engine: Engine, batch: Any, rows: int) -> Tensor:
    with same_chance(engine.device):
        return engine.losses(batch, rows)


def feels_others(engine: Engine, batch: Any, rows: int) -> str:
    """Why what is computed for a row may hang on other rows, if only by a bit; empty if it does not.

    Weights can be chosen that turn a bit into anything. Others are replaced by zeros, by other numbers, by huge ones
    and by what is not a number, which taints whatever it touches, however small its share.
    """
    with looking() as watched:
        _of_batch(engine, batch, rows)
    if watched.place:
        return f"what is done with an example hangs on values in its batch ({watched.place})"
    if place := _where_rows_meet(engine, batch, rows):
        return f"something is computed from several examples of a batch ({place})"
    plain = _lengths(engine, batch, rows)
    others = torch.arange(rows, device=engine.device)
    for row in range(rows):
        found = [_lengths(engine, with_row(batch, row, made_up(batch, _OTHER_SEED)), rows)]
        with _marked(engine.model, row, rows, torch.nan):
            found.append(_lengths(engine, with_row(batch, row, _filled(batch, torch.nan)), rows))
        if not all(torch.equal(lengths[others != row], plain[others != row]) for lengths in found):
            return "what is computed for an example hangs on the others beside it, if only in its last bits"
    return ""


def _of_batch(engine: Engine, batch: Any, rows: int) -> None:
    """A plain backward pass too: a function may have its own way back."""
    with torch.enable_grad():
        losses = _losses(engine, batch, rows)
        torch.autograd.grad(losses.sum(), [*engine.parameters.values()], allow_unused=True)


def _where_rows_meet(engine: Engine, batch: Any, rows: int) -> str:
    replaced = [list(_replacing(engine, batch, rows, row)) for row in range(rows)]
    return where_rows_meet(partial(_marked_losses, engine, batch, rows), replaced)


def _replacing(engine: Engine, batch: Any, rows: int, row: int) -> Iterator[Pass]:
    """Passes in which one row is another."""
    for other in (tree_map(torch.zeros_like, batch), made_up(batch, _OTHER_SEED)):
        yield partial(_marked_losses, engine, with_row(batch, row, other), rows)
    for value in (_HUGE, torch.nan):
        yield partial(_marked_losses, engine, with_row(batch, row, _filled(batch, value)), rows, row, value)


def _marked_losses(engine: Engine, batch: Any, rows: int, row: int = _NO_ROW, value: float = 0.0) -> Tensor:
    """Marked or not, so that the same operations are run."""
    with _marked(engine.model, row, rows, value):
        return _losses(engine, batch, rows)


def _lengths(engine: Engine, batch: Any, rows: int) -> Tensor:
    """Everything that an example's coefficient is made of, by row."""
    with same_chance(engine.device):
        lengths = engine.sweep(batch, rows).lengths
    return torch.stack([lengths.squares, lengths.roundings], 1)


def _filled(batch: Any, value: float) -> Any:
    return tree_map(lambda leaf: torch.full_like(leaf, value) if leaf.is_floating_point() else leaf, batch)


@contextmanager
def _marked(model: nn.Module, row: int, rows: int, value: float) -> Iterator[None]:
    """One row of what is looked up by number is ``value``: token ids themselves cannot be huge or undefined."""

    def mark(_: nn.Module, args: Any, output: Tensor) -> Tensor:  # noqa: ARG001 - a hook's signature
        own = (torch.arange(rows, device=output.device) == row).view(-1, *(1,) * (output.dim() - 1))
        return torch.where(own, value, output) if len(output) == rows else output

    handles = [part.register_forward_hook(mark) for part in model.modules() if isinstance(part, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
