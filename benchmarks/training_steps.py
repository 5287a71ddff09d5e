"""A private step of this project, ready to call, and how its time and memory are taken."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest.mock import patch

from torch import nn
from training_baselines import CLIP, RATE, SIGMA, Step
from training_models import Workload

from lrdp.accounting import FixedSizeGaussian, SampledGaussian, TruncatedPoissonGaussian
from lrdp.experiments.memory.measuring import live_peaks, recorded
from lrdp.training import CrossEntropy, Execution, PublicConstants, Sgd, Task, TensorRecords
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, Randomness

Figures = dict[str, float]


def peak_bytes(step: Step) -> int:
    """The most bytes that lived at once within a step, beyond those before it."""

    def run(done: Callable[[int], None]) -> None:
        step()
        done(0)

    return live_peaks(recorded(run)[1])[0]


def processor_seconds(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def wall_seconds(step: Step) -> float:
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def private_step(ready: LocalSteps) -> Step:
    """One step of the local loop: sampling, reading, clipping, secure noise and the optimiser."""
    randomness = Randomness(sampling=Keystream.from_system(), noise=Keystream.from_system())
    trained = [parameter.detach() for parameter in ready.engine.parameters.values()]
    stepper = ready.task.constants.optimiser.start(trained)
    return lambda: ready._release(
        0, ready.clipped_sum(ready.sampler.draw(randomness.sampling)), randomness.noise, stepper
    )


def without_accelerator(step: Step) -> Step | None:
    """The same step with noise made the plain way; None where there is no accelerator to do without."""
    try:
        accelerator: Any = import_module("lrdp.training.noise.accelerator")
    except ModuleNotFoundError:
        return None
    if accelerator.kernel() is None:
        return None

    def plainly() -> None:
        with patch.object(accelerator, "kernel", lambda: None):
            step()

    return plainly


def task(work: Workload, model: nn.Module, micro_batch: int | None = None) -> Task:
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=RATE))
    dataset = TensorRecords(*work.records(2 * work.batch_size))
    execution = Execution(micro_batch=micro_batch)
    return Task(model=model, dataset=dataset, loss=CrossEntropy(classes=10), constants=constants, execution=execution)


def fixed(work: Workload) -> SampledGaussian:
    return FixedSizeGaussian(dataset_size=2 * work.batch_size, batch_size=work.batch_size, noise_multiplier=SIGMA)


def padded(work: Workload, rows: int) -> SampledGaussian:
    """Truncated Poisson batches of three quarters of the rows on average: the rest is padding."""
    return TruncatedPoissonGaussian(
        dataset_size=2 * work.batch_size, batch_size=rows * 3 // 4, cap=rows, noise_multiplier=SIGMA
    )
