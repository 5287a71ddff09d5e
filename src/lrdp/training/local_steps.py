"""The local steps of one update: sample, clip, add noise, and only then let the optimiser look."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lrdp.accounting import SizedGaussian
from lrdp.errors import InvalidInput
from lrdp.training.checked import CheckedGradients
from lrdp.training.checked_records import records_for
from lrdp.training.clipping import WIDE
from lrdp.training.engine import Engine, Totals
from lrdp.training.keystream import Keystream
from lrdp.training.memory import Footprint, MemoryPlan, choose, either, footprint, parse_bytes
from lrdp.training.noise import Noise, accelerator, make_ready
from lrdp.training.optimisers import Moments, Stepper
from lrdp.training.passes import Clip, one_by_one, together
from lrdp.training.probes import some_rows
from lrdp.training.progress import StepDone
from lrdp.training.reading import in_turn, one_ahead
from lrdp.training.records import RecordReader
from lrdp.training.rounding import additions_of, can_add_up
from lrdp.training.sampling import Draw, Sampler, rows_of, sampler_for
from lrdp.training.task import Task
from lrdp.training.verification import check_finite, verified, verified_at

_ROOMY = 10**9
_SCRATCH = 4  # a convolution kernel's hidden scratch was seen to reach this many times its weight
_READ_AHEAD = 2  # a batch that is read meanwhile, one record after the other and then stacked


@dataclass(frozen=True)
class Randomness:
    """Two independent private streams. Only tests make them from anything but the operating system."""

    sampling: Keystream
    noise: Keystream


@dataclass(frozen=True)
class LocalSteps:
    """A task that passed every check, ready to run."""

    mechanism: SizedGaussian
    task: Task
    engine: Engine
    sampler: Sampler
    reader: RecordReader
    checked: CheckedGradients
    memory: MemoryPlan

    def run(self, steps: int, randomness: Randomness) -> dict[str, Tensor]:
        """The difference that ``steps`` steps make to the trained weights, which come back as they were."""
        return self.ran(steps, randomness).delta

    def ran(self, steps: int, randomness: Randomness) -> Ran:
        """The same, and the optimiser's moments where they are kept from round to round and are finite."""
        trained, optimiser = self.engine.parameters, self.task.constants.optimiser
        initial = {name: parameter.detach().clone() for name, parameter in trained.items()}
        weights = [parameter.detach() for parameter in trained.values()]
        before = self.task.moments if optimiser.over_rounds else None
        stepper = optimiser.start(weights, before)
        started = time.monotonic()
        slots = rows_of(self.mechanism)
        draws = (_of_size(slots, self.sampler.draw(randomness.sampling)) for _ in range(steps))
        reading = one_ahead if self.task.execution.read_ahead else in_turn
        try:
            with reading(self.reader.slots, (part for draw in draws for part in self._parts(draw))) as batches:
                for step in range(steps):
                    totals = self._summed(islice(batches, self._passes(slots)), slots)
                    self._release(self.task.constants.first_step + step, totals, randomness.noise, stepper)
                    done = StepDone(step=step + 1, steps=steps, seconds=time.monotonic() - started)
                    self.task.execution.observe(done)
            delta = {name: _finite((parameter - initial[name]).detach()) for name, parameter in trained.items()}
            moments = stepper.moments() if optimiser.over_rounds else None
            return Ran(delta, moments if moments and moments.finite else None)
        finally:
            with torch.no_grad():
                for name, parameter in trained.items():
                    parameter.copy_(initial[name])

    def clipped_sum(self, draw: Draw) -> Totals:
        """Σ clipped gradients over the drawn records. Private: no noise yet.

        Guarantees: with one slot's record removed or replaced, the sum as it is computed, over all parameters together,
        moves by at most the clip norm, or twice that (docs/training.md). Whatever a record makes the data set, the
        model or the loss do, it ends here as a weight of 0.
        """
        return self._summed(map(self.reader.slots, self._parts(draw)), len(draw.slots))

    def _parts(self, draw: Draw) -> Iterator[NDArray[np.int64]]:
        """The slots that are read and computed together."""
        rows = self.memory.micro_batch
        return (draw.slots[start : start + rows] for start in range(0, len(draw.slots), rows))

    def _passes(self, slots: int) -> int:
        return -(-slots // self.memory.micro_batch)

    def _summed(self, batches: Iterable[tuple[Any, Tensor]], slots: int) -> Totals:
        totals: Totals = {}
        constants = self.task.constants
        clip = Clip(constants.clip_norm, self.engine.dtype, slots, self._passes(slots), constants.clipping)
        add_clipped = one_by_one if self.checked.alone else together
        for batch, live in batches:
            add_clipped(self.engine, batch, live, clip, totals)
        return totals

    def _release(self, number: int, totals: Totals, stream: Keystream, stepper: Stepper) -> None:
        """Noise on the sum, then the public normaliser, then the optimiser: all parameters get noise."""
        noise = Noise(self._deviation, stream, _kernel_for(self.task))
        for place, parameter in enumerate(self.engine.parameters.values()):
            total = totals.pop(parameter, None)
            noisy = torch.zeros_like(parameter).detach() if total is None else total
            noise.add_to(noisy)
            stepper.step(number, place, noisy.to(parameter.dtype).div_(self._normaliser))

    @property
    def _deviation(self) -> float:
        """Of the noise in each element of the sum."""
        return self.mechanism.noise_multiplier * self.task.constants.clip_norm

    @property
    def _normaliser(self) -> float:
        """Public, whatever was drawn."""
        given = self.task.constants.normaliser
        return self.mechanism.normaliser if given is None else given


class Ran(NamedTuple):
    """What some steps came to: the difference to be sent, and the moments to be kept."""

    delta: dict[str, Tensor]
    moments: Moments | None


def _of_size(slots: int, draw: Draw) -> Draw:
    """Steps are told apart by counting passes: with fewer slots, one step would take the next one's records too."""
    if len(draw.slots) != slots:
        raise InvalidInput(f"a draw must have the mechanism's {slots} slots, got {len(draw.slots)}.")
    return draw


def _kernel_for(task: Task) -> Callable[[], accelerator.NoiseKernel | None]:
    """Loading the compiled way takes about 40 MB: where every megabyte counts, noise is made the plain way."""
    limit = task.execution.memory_limit
    scarce = limit is not None and parse_bytes(limit) < _ROOMY
    return (lambda: None) if scarce else accelerator.kernel


def _finite(delta: Tensor) -> Tensor:
    """Weights may run away, as with a large learning rate. It follows from noised steps alone, and stops no reply."""
    return torch.nan_to_num_(delta, nan=0.0)


@contextmanager
def prepared(mechanism: SizedGaussian, task: Task) -> Iterator[LocalSteps]:
    """Everything that can be refused is refused here: nothing has been drawn or charged yet."""
    rows = rows_of(mechanism)
    records = records_for(task.dataset, task.loss)
    sampler = sampler_for(mechanism, len(records))
    check_finite(task.model)
    engine = Engine(task.model, task.loss, task.constants.forward_dtype)
    _check_totals(rows, engine.dtype)
    if task.moments is not None:
        task.moments.demand_fit([*engine.parameters.values()], task.constants.optimiser.moments)
    reader = RecordReader(records.dataset, engine.device, records.blank, records.left_out)
    checked = verified(engine, task, reader)
    # Empty slots hold a public record that the model takes: on zeros it may raise, which would cost time in every step.
    public = some_rows(checked.probes, slice(0, 1))
    reader = RecordReader(records.dataset, engine.device, public, records.left_out)
    make_ready(engine.device, _kernel_for(task))  # what it loads counts as the process's own memory
    memory = _memory(checked, rows, task, engine, ahead=_READ_AHEAD * reader.row_bytes * task.execution.read_ahead)
    checked = verified_at(engine, checked, {memory.micro_batch, rows % memory.micro_batch} - {0, 1})
    task.execution.announce(memory)
    with engine:
        yield LocalSteps(mechanism, task, engine, sampler, reader, checked, memory)


def _check_totals(rows: int, dtype: torch.dtype) -> None:
    """Refuse a step of more rows than can be added up closely enough, however they are split."""
    if not can_add_up(rows, rows * additions_of(1, 1), dtype, WIDE):
        raise InvalidInput(
            f"a step of {rows} rows cannot be added up closely enough for weights of type {dtype}: rounding would "
            f"exceed what is kept free for it; take smaller batches, or weights in float32."
        )


def _memory(checked: CheckedGradients, rows: int, task: Task, engine: Engine, ahead: int) -> MemoryPlan:
    """What a step will take; where memory is short, in passes of a size for which totals need not be wide."""
    given, limit = task.execution.micro_batch, task.execution.memory_limit
    most = min(given or rows, rows)
    room = None if limit is None or given is not None else parse_bytes(limit)
    footprints = partial(_footprint, checked, task, engine, ahead)
    narrow = footprints(wide=False)
    plan = choose(narrow, most, room)
    least = plan.micro_batch if room is None else 1
    for micro_batch in range(plan.micro_batch, least - 1, -1):
        additions = -(-rows // micro_batch) * additions_of(micro_batch, checked.least_meeting)
        if can_add_up(rows, additions, engine.dtype, engine.dtype):
            return replace(plan, micro_batch=micro_batch, peak_bytes=narrow.at(micro_batch))
    return choose(footprints(wide=True), most, room)


def _footprint(checked: CheckedGradients, task: Task, engine: Engine, ahead: int, *, wide: bool) -> Footprint:
    """The weights as they were, the sum and the optimiser's moments; and the scratch of the largest convolution."""
    trained, peaks = engine.parameters.values(), checked.peaks
    moments = task.constants.optimiser.moments * (1 if task.moments is None else 2)
    kept = sum(parameter.nbytes for parameter in trained) * (2 + wide + moments)
    scratch = max((_SCRATCH * parameter.nbytes for parameter in trained if parameter.dim() > 2), default=0)
    found = either(footprint(peaks.swept, kept=kept + scratch), footprint(peaks.whole, kept=kept + scratch))
    return replace(found, per_row=found.per_row + ahead)
