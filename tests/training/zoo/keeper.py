"""What the gate says about an entry, and whether it trains exactly: by separate backward passes in float64.

The truth shares no code with the engine: one example, one plain backward pass, clipped by hand. It is asked at the
weights that were checked and at others, on records that nobody was shown before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import LrdpError
from lrdp.training import PublicConstants, Sgd, Task, TensorRecords
from lrdp.training.local_steps import LocalSteps, prepared
from lrdp.training.records import RecordReader
from lrdp.training.sampling import EMPTY, Draw
from training.zoo.entry import Batch, Entry

RECORDS, ROWS = 64, 5
UNBOUNDED = 1e6
HEADROOM = {torch.float32: 2.0**-7, torch.float64: 2.0**-16}
CLOSE = {torch.float32: 2e-3, torch.float64: 1e-6}
SCALES = (1.0, 0.5, 2.0)
PROBE_SEED, RECORD_SEED = 5, 1


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``alone`` and ``refused`` are sentences; ``error`` is the largest of all that was tried, where 1 is allowed.

    ``task`` is what passed, with its check: whoever measures it need not check again.
    """

    alone: str = ""
    refused: str = ""
    error: float = 0.0
    tried: int = 0
    task: Task | None = None

    @property
    def word(self) -> str:
        return "refused" if self.refused else "one by one" if self.alone else "together"

    @property
    def exact(self) -> bool:
        """Whether it trains, and all that was tried was right."""
        return not self.refused and self.tried > 0 and self.error <= 1.0


def judge(entry: Entry, scales: tuple[float, ...] = SCALES) -> Verdict:
    """The gate's word on the entry as people bring it, in float32 and with dropout, and the largest error there is.

    Errors are looked for in float32, and then in float64 with what the gate found for float32: it is about the code.
    """
    try:
        with admitted(entry, entry.model(), UNBOUNDED) as ready:
            errors = list(_errors(entry, ready, scales[:1]))
            if not entry.narrow:
                errors += _errors(entry, _widened(entry, ready), scales)
    except LrdpError as problem:
        return Verdict(refused=str(problem))
    ready.task.model.load_state_dict(entry.model().state_dict())
    ready.task.model.float().train()
    task = replace(ready.task, checked=ready.checked)
    return Verdict(alone=ready.checked.alone, error=max(errors), tried=len(errors), task=task)


def _widened(entry: Entry, ready: LocalSteps) -> LocalSteps:
    """The same in float64: modules, rules and verdict stay."""
    ready.task.model.double()
    ready.engine.dtype = torch.float64
    records = TensorRecords(*of_type(entry.batch(RECORDS, RECORD_SEED), torch.float64))
    blank = of_type(ready.reader.blank(1), torch.float64)
    return replace(ready, reader=RecordReader(records, ready.engine.device, blank))


@contextmanager
def admitted(entry: Entry, model: nn.Module, clip_norm: float) -> Iterator[LocalSteps]:
    """Through the gate, ready to run."""
    records = TensorRecords(*entry.batch(3, PROBE_SEED))
    probes = [records[number] for number in range(3)] if entry.probes else ()
    with prepared(mechanism(ROWS), _task(entry, model, clip_norm, probes)) as ready:
        yield ready


def unprobed(entry: Entry) -> str:
    """What is said about an entry that needs probes if there are none; empty if it needs none."""
    try:
        with prepared(mechanism(ROWS), _task(entry, entry.model(), 1.0, ())):
            return ""
    except LrdpError as problem:
        return str(problem)


def mechanism(rows: int) -> FixedSizeGaussian:
    return FixedSizeGaussian(dataset_size=RECORDS, batch_size=rows, noise_multiplier=1.0)


def _task(entry: Entry, model: nn.Module, clip_norm: float, probes: Sequence[Batch]) -> Task:
    return Task(
        model=model,
        dataset=TensorRecords(*entry.batch(RECORDS, RECORD_SEED)),
        loss=entry.loss,
        constants=PublicConstants(clip_norm=clip_norm, optimiser=Sgd(lr=0.1)),
        probes=probes,
    )


def of_type(batch: Batch, dtype: torch.dtype) -> Batch:
    return tuple(column.to(dtype) if column.is_floating_point() else column for column in batch)


def _errors(entry: Entry, ready: LocalSteps, scales: tuple[float, ...]) -> Iterator[float]:
    """Of each gradient by itself, and of sums of clipped ones, at other weights than those checked. Without dropout."""
    model, wide = ready.task.model, torch.float32 if entry.narrow else torch.float64
    twin = entry.model().to(wide).eval()
    model.eval()
    for number, scale in enumerate(scales):
        _other_weights(model, number, scale)
        twin.load_state_dict(model.state_dict())
        truth = _truth(entry, twin, wide)
        yield from _gap_of_each(ready, truth)
        for share in (0.3, 1.0):
            yield _gap_of_sum(ready, truth, share * float(truth.norm(dim=1).median()))


def _gap_of_each(ready: LocalSteps, truth: Tensor) -> Iterator[float]:
    close = CLOSE[ready.engine.dtype]
    for number, gradient in enumerate(truth):
        slots = [EMPTY] * ROWS
        slots[number] = number
        yield float((summed(ready, slots, UNBOUNDED) - gradient).norm() / gradient.norm()) / close


def _gap_of_sum(ready: LocalSteps, truth: Tensor, bound: float) -> float:
    """The engine aims a little below the clip norm, by what it keeps free for rounding."""
    dtype = ready.engine.dtype
    target = bound * (1.0 - HEADROOM[dtype])
    clipped = truth * (target / truth.norm(dim=1, keepdim=True)).clamp(max=1.0)
    gap = (summed(ready, list(range(ROWS)), bound) - clipped.sum(0)).norm()
    return float(gap / bound) / (ROWS * (CLOSE[dtype] + HEADROOM[dtype]))


def summed(ready: LocalSteps, slots: list[int], clip_norm: float) -> Tensor:
    """What the engine adds up with that clip norm, as one vector."""
    constants = replace(ready.task.constants, clip_norm=clip_norm)
    clipping = replace(ready, task=replace(ready.task, constants=constants))
    totals = clipping.clipped_sum(Draw(torch.tensor(slots).numpy()))
    parts = (totals.get(p, torch.zeros_like(p)) for p in ready.engine.parameters.values())
    return torch.cat([part.detach().double().flatten() for part in parts])


def _truth(entry: Entry, twin: nn.Module, dtype: torch.dtype) -> Tensor:
    """[rows, elements]: one example, one backward pass."""
    batch = of_type(entry.batch(RECORDS, RECORD_SEED), dtype)
    trained = [parameter for parameter in twin.parameters() if parameter.requires_grad]
    found = []
    for row in range(ROWS):
        twin.zero_grad(set_to_none=True)
        entry.loss(twin, tuple(column[row : row + 1] for column in batch)).sum().backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in trained]
        found.append(torch.cat([part.double().flatten() for part in parts]))
    return torch.stack(found)


def _other_weights(model: nn.Module, seed: int, scale: float) -> None:
    """New ones for all that is trained: drawn around those there were, and scaled."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                drawn = torch.randn(parameter.shape, generator=source).to(parameter)
                size = max(0.05, float(parameter.square().mean().sqrt()))
                parameter.add_(drawn, alpha=0.2 * size).mul_(scale)
