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
from lrdp.training.checked import CheckedGradients, Peaks
from lrdp.training.clipping import coefficients, safe_bound
from lrdp.training.engine import Engine, Totals
from lrdp.training.keystream import Keystream
from lrdp.training.losses import check_records
from lrdp.training.memory import MemoryPlan, choose, either, footprint, parse_bytes
from lrdp.training.noise import Noise
from lrdp.training.optimisers import Stepper
from lrdp.training.progress import StepDone
from lrdp.training.records import Reader
from lrdp.training.sampling import Draw, Sampler, rows_of, sampler_for
from lrdp.training.task import Task
from lrdp.training.verification import check_finite, verified

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
            check_finite(self.task.model)
            return {name: (parameter - initial[name]).detach() for name, parameter in trained.items()}
        finally:
            with torch.no_grad():
                for name, parameter in trained.items():
                    parameter.copy_(initial[name])

    def clipped_sum(self, draw: Draw) -> Totals:
        """Σ clipped gradients over the drawn records. Private: no noise yet.

        Guarantees: each record's share has norm at most the clip norm over all parameters together; padding has none.
        """
        totals: Totals = {}
        bound = safe_bound(self.task.constants.clip_norm, self.engine.dtype)
        for start in range(0, draw.rows, self.memory.micro_batch):
            rows = min(self.memory.micro_batch, draw.rows - start)
            numbers = draw.records[start : start + rows]
            live = torch.arange(rows, device=self.engine.device) < len(numbers)
            batch = self.reader.rows(numbers, rows)
            self.engine.accumulate(batch, rows, lambda s, live=live: coefficients(s, bound) * live, totals)  # type: ignore[misc]
        return totals

    def _release(self, number: int, totals: Totals, stream: Keystream, stepper: Stepper) -> None:
        """Noise on the sum, then the public normaliser, then the optimiser: all parameters get noise."""
        noise = Noise(self.mechanism.noise_multiplier * self.task.constants.clip_norm, stream)
        for place, parameter in enumerate(self.engine.parameters.values()):
            total = totals.pop(parameter, None)
            noisy = torch.zeros_like(parameter) if total is None else total
            noisy = noisy.detach()
            noise.add_to(noisy)
            stepper.step(number, place, noisy.div_(self.mechanism.batch_size))


@contextmanager
def prepared(mechanism: SampledGaussian, task: Task) -> Iterator[LocalSteps]:
    """Everything that can be refused is refused here: nothing has been drawn or charged yet."""
    rows = rows_of(mechanism)
    records = check_records(task.dataset, task.loss)
    sampler = sampler_for(mechanism, len(records))
    check_finite(task.model)
    with Engine(task.model, task.loss, task.constants.forward_dtype) as engine:
        reader = Reader(records.dataset, engine.device)
        checked = verified(engine, task, reader)
        memory = _memory(checked.peaks, rows, task, engine)
        task.execution.announce(memory)
        yield LocalSteps(mechanism, task, engine, sampler, reader, checked, memory)


def _memory(peaks: Peaks, rows: int, task: Task, engine: Engine) -> MemoryPlan:
    trained = engine.parameters.values()
    # The weights as they were, the sum and the optimiser's moments; and the scratch of the largest convolution.
    kept = sum(parameter.nbytes for parameter in trained) * (2 + task.constants.optimiser.moments)
    scratch = max((_SCRATCH * parameter.nbytes for parameter in trained if parameter.dim() > 2), default=0)
    found = either(footprint(peaks.swept, kept=kept + scratch), footprint(peaks.whole, kept=kept + scratch))
    given, limit = task.execution.micro_batch, task.execution.memory_limit
    if given is None:
        return choose(found, rows, None if limit is None else parse_bytes(limit))
    if given > rows:
        raise InvalidInput(f"micro_batch must be at most the {rows} rows of a step, got {given}.")
    return choose(found, given, None)
