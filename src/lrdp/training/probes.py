"""Records and weights to try a model on. All are public: of private records only shapes and types are looked at.

Otherwise whoever chooses the weights could choose them so that a check fails on one certain record, and would learn
from the refusal that it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from lrdp.errors import InvalidInput
from lrdp.training.checked_records import check_records
from lrdp.training.records import RecordReader
from lrdp.training.task import Task
from lrdp.training.tensors import stacked

# Sizes that share no factor: a dimension that only happens to be as long as the batch is found out.
PROBE_ROWS = (2, 3)
_PUBLIC_SEED, _OTHER_SEED = 11, 13
_SEEDS = (_PUBLIC_SEED, *range(14, 24))
_STIR, _LEAST_SIZE = 0.1, 0.1
_NUMBERS = (7, -7)


@dataclass(frozen=True)
class Probes:
    """As many records as the largest trial takes, and others to put in their places."""

    batch: Any
    others: tuple[Any, ...]

    def replacing(self, row: int) -> Iterator[Any]:
        """The batch with another record in that place."""
        return (with_row(self.batch, row, other) for other in self.others)

    def as_weights(self, dtype: torch.dtype) -> Probes:
        """As a model with weights of this type takes them."""
        return Probes(as_weights(self.batch, dtype), tuple(as_weights(other, dtype) for other in self.others))

    def where(self, runs: Callable[[Any], bool]) -> Probes:
        """Without those others that the model does not take, and with larger and smaller numbers where it takes any."""
        numbers = (_with_number(self.batch, number, runs) for number in _NUMBERS)
        further = tuple(other for other in numbers if other is not self.batch)
        return Probes(self.batch, (*filter(runs, self.others), *further))


def around(batch: Any) -> Probes:
    """These records, and others: the same in other places, zeros, and made-up ones."""
    moved = tree_map(lambda leaf: leaf.roll(1, 0), batch)
    return Probes(batch, (tree_map(torch.zeros_like, batch), made_up(batch, _OTHER_SEED), moved))


def _with_number(batch: Any, number: int, runs: Callable[[Any], bool]) -> Any:
    """``batch`` with ``number`` in the record's first field, if that has whole numbers and the model takes it.

    The largest of some zeros and ones is 1, and the least is 0, whichever is replaced. Not in other fields, which are
    targets: ``ctc_loss`` writes wherever an index points. On a processor only: elsewhere a number that is in no table
    ends the process.
    """
    leaves, form = tree_flatten(batch)
    first = leaves[0]
    if not _holds(first, number) or first.device.type != "cpu":
        return batch
    tried = tree_unflatten([torch.full_like(first, number), *leaves[1:]], form)
    return tried if runs(tried) else batch


def _holds(leaf: Tensor, number: int) -> bool:
    if leaf.is_floating_point() or leaf.is_complex() or leaf.dtype is torch.bool:
        return False
    return torch.iinfo(leaf.dtype).min <= number


def public_records(task: Task) -> Any:
    """Some public records of the task's form, stacked: those that it brings along, or else made-up ones."""
    if task.probes:
        return stacked(task.probes)
    blank = check_records(task.dataset, task.loss).blank
    return made_up(tree_map(lambda leaf: leaf.expand(PROBE_ROWS[-1], *leaf.shape[1:]), blank), _PUBLIC_SEED)


def candidates(task: Task, reader: RecordReader) -> Iterator[Any]:
    """Records to choose from, one by one: those that the task brings along, or else made-up ones."""
    rows = PROBE_ROWS[-1]
    if not task.probes:
        batches = (made_up(reader.blank(rows), seed) for seed in _SEEDS)
        yield from (some_rows(batch, slice(row, row + 1)) for batch in batches for row in range(rows))
        return
    if len(task.probes) < rows:
        raise InvalidInput(f"probes must be at least {rows} public records, got {len(task.probes)}.")
    blank, form = tree_flatten(reader.blank(1))
    for probe in task.probes:
        given = tree_leaves(stacked([probe]))
        if [(leaf.shape, leaf.dtype) for leaf in given] != [(leaf.shape, leaf.dtype) for leaf in blank]:
            raise InvalidInput(f"probes must have the form of the data set's records, {reader.form}.")
        yield tree_unflatten([leaf.to(reader.device) for leaf in given], form)


def made_up(batch: Any, seed: int) -> Any:
    """Public numbers of the same shapes and types: in [0, 1], where pictures lie, and 0 or 1, which all labels include.

    Rows of whole numbers begin with 1: a mask that hides the first word would hide all that it looks at.
    For even seeds, a record's single numbers are −1 or 1: some losses take nothing else.
    """
    source = torch.Generator().manual_seed(seed)

    def drawn(leaf: Tensor) -> Tensor:
        if leaf.is_floating_point() and leaf.dim() == 1 and seed % 2 == 0:
            return torch.rand(leaf.shape, generator=source).sub(0.5).sign().to(leaf)
        if leaf.is_floating_point() or leaf.is_complex():
            return torch.rand(leaf.shape, generator=source).to(leaf)
        whole = torch.randint(0, 2, leaf.shape, generator=source).to(leaf)
        if whole.dim() > 1 and whole.shape[1] > 1:
            whole[:, :1] = 1
        return whole

    return tree_map(drawn, batch)


def some_rows(batch: Any, chosen: slice) -> Any:
    """Those rows of every leaf."""
    return tree_map(lambda leaf: leaf[chosen], batch)


def with_row(batch: Any, row: int, other: Any) -> Any:
    """``batch`` with one row taken from ``other``."""

    def replaced(leaf: Tensor, source: Tensor) -> Tensor:
        leaf = leaf.clone()
        leaf[row] = source[row]
        return leaf

    return tree_map(replaced, batch, other)


def as_weights(batch: Any, dtype: torch.dtype) -> Any:
    """For a copy in float64 the same in float64; for the model itself as it is."""
    wide = dtype == torch.float64
    return tree_map(lambda leaf: leaf.double() if wide and leaf.is_floating_point() else leaf, batch)


def twin(model: nn.Module) -> nn.Module:
    """A copy in float64, its trained weights stirred."""
    copied = deepcopy(model).double()
    stir(copied)
    return copied


@contextmanager
def stirred(model: nn.Module) -> Iterator[None]:
    """Every trained weight moved a little, and put back: a zero would hide what it multiplies."""
    initial = [(p, p.detach().clone()) for p in model.parameters() if p.requires_grad]
    try:
        stir(model)
        yield
    finally:
        with torch.no_grad():
            for parameter, weights in initial:
                parameter.copy_(weights)


def stir(model: nn.Module) -> None:
    """Move every trained weight a little, by public chance."""
    source = torch.Generator().manual_seed(_PUBLIC_SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                size = max(_LEAST_SIZE, float(parameter.square().mean().sqrt()))
                parameter.add_(torch.randn(parameter.shape, generator=source).to(parameter), alpha=_STIR * size)
