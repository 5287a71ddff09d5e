"""The local steps of one update: sample, clip, add noise, and only then let the optimiser look."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from lrdp.accounting import SampledGaussian
from lrdp.errors import InvalidInput
from lrdp.training.checked import CheckedGradients
from lrdp.training.clipping import WIDE
from lrdp.training.engine import Engine, Totals
from lrdp.training.keystream import Keystream
from lrdp.training.losses import CheckedRecords, check_records
from lrdp.training.memory import MemoryPlan, choose, either, footprint, parse_bytes
from lrdp.training.noise import Noise
from lrdp.training.optimisers import Stepper
from lrdp.training.passes import Clip, one_by_one, together
from lrdp.training.progress import StepDone
from lrdp.training.records import Reader
from lrdp.training.rounding import additions_of, can_add_up
from lrdp.training.sampling import Draw, Sampler, rows_of, sampler_for
from lrdp.training.task import Task
from lrdp.training.verification import check_finite, verified, verified_at

_SMALL_PASS = 8  # rows of a pass, to guess before it is planned whether sums must be wide
_SCRATCH = 4  # a convolution kernel's hidden scratch was seen to reach this many times its weight


@dataclass(frozen=True)
class Randomness:
    """Two independent private streams. Only tests make them from anything but the operating system."""

    sampling: Keystream
    noise: Keystream


@dataclass(frozen=True)
class LocalSteps:
    """A task that passed every check, ready to run."""

    mechanism: SampledGaussian
    task: Task
    engine: Engine
    sampler: Sampler
    reader: Reader
    checked: CheckedGradients
    memory: MemoryPlan

    def run(self, steps: int, randomness: Randomness) -> dict[str, Tensor]:
        """The difference that ``steps`` steps make to the trained weights, which come back as they were."""
        trained = self.engine.parameters
        initial = {name: parameter.detach().clone() for name, parameter in trained.items()}
        stepper = self.task.constants.optimiser.start([parameter.detach() for parameter in trained.values()])
        started = time.monotonic()
        try:
            for step in range(steps):
                totals = self.clipped_sum(self.sampler.draw(randomness.sampling))
                self._release(self.task.constants.first_step + step, totals, randomness.noise, stepper)
                done = StepDone(step=step + 1, steps=steps, seconds=time.monotonic() - started)
                self.task.execution.observe(done)
            return {name: _finite((parameter - initial[name]).detach()) for name, parameter in trained.items()}
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
        totals: Totals = {}
        slots, rows = len(draw.slots), self.memory.micro_batch
        clip = Clip(self.task.constants.clip_norm, self.engine.dtype, slots, passes=-(-slots // rows))
        add_clipped = one_by_one if self.checked.alone else together
        for start in range(0, slots, rows):
            batch, live = self.reader.slots(draw.slots[start : start + rows])
            add_clipped(self.engine, batch, live, clip, totals)
        return totals

    def _release(self, number: int, totals: Totals, stream: Keystream, stepper: Stepper) -> None:
        """Noise on the sum, then the public normaliser, then the optimiser: all parameters get noise."""
        noise = Noise(self.mechanism.noise_multiplier * self.task.constants.clip_norm, stream)
        for place, parameter in enumerate(self.engine.parameters.values()):
            total = totals.pop(parameter, None)
            noisy = torch.zeros_like(parameter).detach() if total is None else total
            noise.add_to(noisy)
            stepper.step(number, place, noisy.to(parameter.dtype).div_(self.mechanism.batch_size))


def _finite(delta: Tensor) -> Tensor:
    """Weights may run away, as with a large learning rate. That follows from noised steps alone, and ends no reply."""
    return torch.nan_to_num_(delta, nan=0.0)


@contextmanager
def prepared(mechanism: SampledGaussian, task: Task) -> Iterator[LocalSteps]:
    """Everything that can be refused is refused here: nothing has been drawn or charged yet."""
    rows = rows_of(mechanism)
    records = check_records(task.dataset, task.loss)
    if not isinstance(task.dataset, CheckedRecords):
        records.demand()
    sampler = sampler_for(mechanism, len(records))
    check_finite(task.model)
    engine = Engine(task.model, task.loss, task.constants.forward_dtype)
    _check_totals(rows, engine.dtype)
    reader = Reader(records.dataset, engine.device, records.blank, records.left_out)
    checked = verified(engine, task, reader)
    memory = _memory(checked, rows, task, engine)
    checked = verified_at(engine, checked, {memory.micro_batch, rows % memory.micro_batch} - {0, 1})
    task.execution.announce(memory)
    with engine:
        yield LocalSteps(mechanism, task, engine, sampler, reader, checked, memory)


def _check_totals(rows: int, dtype: torch.dtype) -> None:
    """Refuse a step of more rows than can be added up without error, however they are parted."""
    if not can_add_up(rows, rows * additions_of(1, 1), dtype, WIDE):
        raise InvalidInput(
            f"a step of {rows} rows cannot be added up closely enough for weights of type {dtype}: rounding would "
            f"exceed what is kept free for it; take smaller batches, or weights in float32."
        )


def _memory(checked: CheckedGradients, rows: int, task: Task, engine: Engine) -> MemoryPlan:
    trained, peaks = engine.parameters.values(), checked.peaks
    # The weights as they were, the sum and the optimiser's moments; and the scratch of the largest convolution.
    additions = rows // _SMALL_PASS * additions_of(_SMALL_PASS, checked.least_meeting)
    wide = not can_add_up(rows, additions, engine.dtype, engine.dtype)
    kept = sum(parameter.nbytes for parameter in trained) * (2 + wide + task.constants.optimiser.moments)
    scratch = max((_SCRATCH * parameter.nbytes for parameter in trained if parameter.dim() > 2), default=0)
    found = either(footprint(peaks.swept, kept=kept + scratch), footprint(peaks.whole, kept=kept + scratch))
    given, limit = task.execution.micro_batch, task.execution.memory_limit
    if given is None:
        return choose(found, rows, None if limit is None else parse_bytes(limit))
    if given > rows:
        raise InvalidInput(f"micro_batch must be at most the {rows} rows of a step, got {given}.")
    return choose(found, given, None)
