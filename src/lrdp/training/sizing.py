"""Is the same done with many examples as with few? Few are tried closely, and many are what is trained with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from lrdp.errors import Unsupported
from lrdp.training.chance import same_chance
from lrdp.training.engine import Engine
from lrdp.training.exactness import why_not
from lrdp.training.looking import Watching, is_view
from lrdp.training.marking import filled, marked
from lrdp.training.probes import PROBE_ROWS, some_rows
from lrdp.training.shapes import Shapes

_FEW = PROBE_ROWS[-1]
_PUBLIC_SEED = 19
_CROWD = 16  # among this many, examples that are shuffled do not all return to their places by chance
_PLAIN = (float, bool, str, torch.dtype)


def depends_on_size(engine: Engine, batch: Any, rows: int) -> str:
    """Why a pass over this many rows is not like those over the few of ``batch``; empty if it is."""
    places = torch.arange(rows, device=engine.device) % _FEW
    many = tree_map(lambda leaf: leaf.index_select(0, places), batch)
    try:
        if not _same_operations(engine, batch, many, rows):
            return f"something else is done with {rows} examples than with {_FEW}"
        turns = range(max(1, _CROWD // rows))
        if not all(_apart(engine, many, rows, _PUBLIC_SEED + turn) for turn in turns):
            return f"what is computed for one of {rows} examples depends on the others beside it, though not for {_FEW}"
    except Exception as problem:  # noqa: BLE001 - whatever a model does with this many rows
        return why_not(problem)
    return ""


def lengths_of(engine: Engine, batch: Any, rows: int, seed: int = _PUBLIC_SEED) -> Tensor:
    """Everything that an example's coefficient is made of, by row."""
    with same_chance(engine.device, seed):
        lengths = engine.sweep(batch, rows).lengths
    return torch.stack([lengths.squares, lengths.roundings], 1)


def flow_of(engine: Engine, batch: Any, rows: int) -> list[Tensor]:
    """Forward and backward by the very pass that is trained with: rows may meet in the backward pass alone."""
    with same_chance(engine.device):
        return engine.flow(batch, rows)


def _same_operations(engine: Engine, batch: Any, many: Any, rows: int) -> bool:
    """The same ones in the same order, on what grows with the rows as it does for few."""
    few, more = (_operations(partial(flow_of, engine, some_rows(batch, slice(0, n)), n)) for n in PROBE_ROWS)
    found = _operations(partial(flow_of, engine, many, rows))
    if not [one.kind for one in few] == [one.kind for one in more] == [one.kind for one in found]:
        return False
    known = zip(PROBE_ROWS, ([one.numbers for one in each] for each in (few, more)), strict=True)
    try:
        Shapes(*known).demand(rows, [one.numbers for one in found])
    except Unsupported:
        return False
    return True


def _apart(engine: Engine, many: Any, rows: int, seed: int) -> bool:
    """Whether half of the rows stay as they are when the others are not numbers, and the other way round."""
    source = torch.Generator().manual_seed(seed)
    half = (torch.randperm(rows, generator=source) < rows // 2).to(engine.device)
    plain = lengths_of(engine, many, rows, seed)
    for own in (half, ~half):
        with marked(engine.model, engine.rows_of(own, many), torch.nan):
            found = lengths_of(engine, filled(many, own, torch.nan), rows, seed)
        if not torch.equal(found[~own], plain[~own]):
            return False
    return True


@dataclass(frozen=True)
class _Operation:
    """What is done, with which constants; and the whole numbers in it, such as sizes."""

    kind: str
    numbers: tuple[int, ...]


def _operations(one_pass: Callable[[], Any]) -> Sequence[_Operation]:
    naming: Any = _Naming()
    with naming:
        one_pass()
    found: Sequence[_Operation] = naming.operations
    return found


class _Naming(Watching):  # type: ignore[no-untyped-call]
    """Keeps every operation but views."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[_Operation] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if not is_view(func):
            self.operations.append(_described(func, tree_leaves((args, kwargs)), tree_leaves(made)))
        return made


def _described(kind: Any, given: list[Any], made: list[Any]) -> _Operation:
    constants = [str(leaf) for leaf in given if isinstance(leaf, _PLAIN)]
    numbers = [leaf for leaf in given if isinstance(leaf, int) and not isinstance(leaf, bool)]
    sizes = [size for leaf in made if isinstance(leaf, Tensor) for size in leaf.shape]
    return _Operation(" ".join((str(kind), *constants)), (*numbers, *sizes))
