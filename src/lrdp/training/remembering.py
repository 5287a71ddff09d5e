"""Does a pass leave anything behind? A later one would then depend on records that are not its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import Unsupported
from lrdp.training.chance import same_chance
from lrdp.training.engine import Engine
from lrdp.training.exactness import digests_of_each
from lrdp.training.marking import filled
from lrdp.training.probes import PROBE_ROWS, Probes, some_rows

_ROWS = PROBE_ROWS[-1]
_EXTREMES = (1e6, torch.nan)  # what a running maximum keeps, and what any statistic does
_NOTHING = 1e-4  # of the whole gradient, times what is close: zero but for rounding, as for an attention's key bias
_REMEMBERS = (
    "the same records have a different {what} in a later pass: the model or the loss keeps something of the records "
    "before them, or draws random numbers of its own; make every pass start from the same state, and "
    "draw from torch's generators."
)


def weights_and_buffers(model: nn.Module) -> dict[str, str]:
    """A digest of each, by name."""
    parameters = ((f"the parameter {name}", value) for name, value in model.named_parameters())
    buffers = ((f"the buffer {name}", value) for name, value in model.named_buffers())
    return {name: sha256(_bytes(value)).hexdigest() for name, value in (*parameters, *buffers)}


def demand_unchanged(model: nn.Module, before: Mapping[str, str]) -> None:
    """Refuse a model that changes itself as it runs. Making a table of its own at first is no change."""
    after = weights_and_buffers(model)
    for name, value in before.items():
        if after.get(name) != value:
            raise Unsupported(
                f"{name} is changed by a pass itself, without noise and maybe by the data it sees: remove what changes "
                f"it (max_norm, running statistics, an optimiser in a hook), or freeze it (eval())."
            )


def refuse_memory(engine: Engine, probes: Probes, close: float) -> None:
    """Refuse a model or a loss that depends on the records of an earlier pass, in its backward pass too."""
    _refuse_overwriting(engine, probes.batch)
    losses, gradients = _seen(engine, probes.batch, (0, 1))
    for others in _others(probes):
        with suppress(Exception, SystemExit):  # not every model takes every record; what they leave is what counts
            _losses(engine, others)
            _seen(engine, others, (_ROWS - 1,))
    later, gradients_later = _seen(engine, probes.batch, (1, 0))
    if not torch.equal(losses, later):
        raise Unsupported(_REMEMBERS.format(what="loss"))
    for row, found in gradients.items():
        if not _same(found, gradients_later[row], close):
            raise Unsupported(_REMEMBERS.format(what="gradient"))


def _same(found: Mapping[str, Tensor], again: Mapping[str, Tensor], close: float) -> bool:
    """But for the last digits: on some devices sums are taken in any order."""
    nothing = _NOTHING * sum(float(one.norm()) ** 2 for one in found.values()) ** 0.5
    return found.keys() == again.keys() and all(
        float((again[name] - one).norm()) <= close * (float(one.norm()) + nothing) for name, one in found.items()
    )


def _others(probes: Probes) -> Iterator[Any]:
    everyone = torch.ones(_ROWS, dtype=torch.bool, device=tree_leaves(probes.batch)[0].device)
    yield from (filled(probes.batch, everyone, value) for value in _EXTREMES)
    yield from probes.others


def _seen(engine: Engine, batch: Any, rows: tuple[int, ...]) -> tuple[Tensor, dict[int, dict[str, Tensor]]]:
    """The losses of some rows, each alone, in that order, with all of the batch between; and their gradients."""
    losses, gradients = [], {}
    for row in rows:
        single = some_rows(batch, slice(row, row + 1))
        (found,) = digests_of_each(engine, single, 1)
        gradients[row] = found.digests
        losses.append(_losses(engine, single))
    order = torch.tensor(rows, device=engine.device).argsort()
    return torch.cat([torch.cat(losses)[order], _losses(engine, batch)]), gradients


def _losses(engine: Engine, batch: Any) -> Tensor:
    with same_chance(engine.device):
        return engine.losses(batch, len(tree_leaves(batch)[0])).detach()


def _refuse_overwriting(engine: Engine, batch: Any) -> None:
    given = tree_map(torch.clone, batch)
    _losses(engine, given)
    if not all(map(torch.equal, tree_leaves(given), tree_leaves(batch))):
        raise Unsupported(
            "the model or the loss overwrites the records that it is given, which a second look would find changed: "
            "work on a copy (inputs = inputs.clone())."
        )


def _bytes(values: Tensor) -> Any:
    return values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
