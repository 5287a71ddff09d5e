"""Does an example feel the others of its batch? Each is changed in turn, and the others are watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from lrdp.errors import Unsupported
from lrdp.training.engine import Engine
from lrdp.training.looking import Looking
from lrdp.training.probes import made_up, same_chance, with_row
from lrdp.training.unlooking import unlooking

_OTHER_SEED = 12
_MIXES = (
    "an example's loss changes with the other examples of its batch: the model mixes examples, has them along another "
    "dimension than the first, or the loss averages over the batch; no example's gradient is its own then"
)


def refuse_mixing(engine: Engine, batch: Any, rows: int, close: float) -> None:
    """Refuse a model in which some example's loss is not its own, beyond what rounding does to it."""
    with torch.no_grad():
        plain = _losses(engine, batch, rows)
        for row in range(rows):
            for other in (tree_map(torch.zeros_like, batch), made_up(batch, _OTHER_SEED)):
                moved = (_losses(engine, with_row(batch, row, other), rows) - plain).abs()
                moved[row] = 0.0
                if not bool((moved <= close * (1.0 + plain.abs())).all()):
                    raise Unsupported(f"{_MIXES}.")


def _losses(engine: Engine, batch: Any, rows: int) -> Tensor:
    with same_chance():
        return engine.losses(batch, rows)


def feels_others(engine: Engine, batch: Any, rows: int) -> str:
    """Why what is computed for a row may hang on other rows, if only by a bit; empty if it does not.

    Weights can be chosen that turn a bit into anything. Others are replaced by zeros, by other numbers and by what is
    not a number, which taints whatever it touches, however small its share.
    """
    with Looking() as looking, torch.no_grad(), unlooking():
        _losses(engine, batch, rows)
    if looking.place is not None:
        return f"what is done with an example hangs on values in its batch ({looking.place})"
    plain = _lengths(engine, batch, rows)
    others = torch.arange(rows, device=engine.device)
    for row in range(rows):
        zeros, another = tree_map(torch.zeros_like, batch), made_up(batch, _OTHER_SEED)
        changed = [_lengths(engine, with_row(batch, row, other), rows) for other in (zeros, another)]
        with _tainted(engine.model, row, rows):
            changed.append(_lengths(engine, with_row(batch, row, tree_map(_undefined, batch)), rows))
        if not all(torch.equal(found[others != row], plain[others != row]) for found in changed):
            return "what is computed for an example hangs on the others beside it, if only in its last bits"
    return ""


def _lengths(engine: Engine, batch: Any, rows: int) -> Tensor:
    """Everything that an example's coefficient is made of, by row."""
    with same_chance():
        lengths = engine.sweep(batch, rows).lengths
    return torch.stack([lengths.squares, lengths.roundings], 1)


def _undefined(leaf: Tensor) -> Tensor:
    return torch.full_like(leaf, torch.nan) if leaf.is_floating_point() else leaf


@contextmanager
def _tainted(model: nn.Module, row: int, rows: int) -> Iterator[None]:
    """One row of what is looked up by number is no number: token ids themselves cannot be undefined."""

    def taint(_: nn.Module, args: Any, output: Tensor) -> Tensor:  # noqa: ARG001 - a hook's signature
        own = (torch.arange(rows, device=output.device) == row).view(-1, *(1,) * (output.dim() - 1))
        return torch.where(own, torch.nan, output) if len(output) == rows else output

    handles = [part.register_forward_hook(taint) for part in model.modules() if isinstance(part, nn.Embedding)]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
