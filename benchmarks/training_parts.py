"""What else is measured of private steps: flat memory, padding, single pieces, and the signal that rounding costs."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Iterator
from typing import Any

import torch
from training_baselines import CLIP, SIGMA
from training_models import Workload
from training_steps import Figures, fixed, padded, peak_bytes, private_step, processor_seconds, task

from lrdp.accounting import TruncatedPoissonGaussian
from lrdp.experiments.memory.measuring import forget_process_peak, process_peak
from lrdp.training import return_large_blocks
from lrdp.training.clipping import coefficients
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, prepared
from lrdp.training.noise import Noise
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import sampler_for, uniform_subset


def flatness(work: Workload, steps: int, rows: int) -> Figures:
    """Padded batches, whose true sizes vary: largest over smallest peak of live bytes, and the process's growth.

    The process is watched first and over as many steps of its own: the profiler that sees live bytes grows by itself.
    """
    return_large_blocks()
    with prepared(padded(work, rows), task(work, work.model())) as ready:
        step = private_step(ready)
        forget_process_peak()
        residents = []
        for _ in range(steps):
            step()
            residents.append(process_peak())
        peaks = [peak_bytes(step) for _ in range(steps)]
    before, after = residents[9], residents[-1]
    print(f"  {work.name}, {steps} steps of {rows} rows: live {min(peaks) / 1e6:.2f} to {max(peaks) / 1e6:.2f} MB")
    print(f"  process peak {before / 1e6:.1f} MB after 10 steps, {after / 1e6:.1f} MB after {steps}")
    return {
        "memory_flatness": max(peaks) / min(peaks),
        "flatness_steps": steps,
        "flatness_rows": rows,
        "process_peak_growth": after / before,
    }


def padding(work: Workload, rounds: int) -> Figures:
    """Time of a padded truncated Poisson step over that of a fixed batch of the cap's size, on the same model.

    The two take turns in going first, and the median is over the ratios of pairs: drift affects both.
    """
    model = work.model()
    ratios = []
    with prepared(fixed(work), task(work, model)) as whole:
        steps = [private_step(whole)]
        with prepared(padded(work, work.batch_size), task(work, copy.deepcopy(model))) as cut:
            steps.append(private_step(cut))
            for turn in range(rounds + 1):
                order = (0, 1) if turn % 2 else (1, 0)
                spent = {place: processor_seconds(steps[place]) for place in order}
                ratios += [spent[1] / spent[0]] if turn else []
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"  {work.name}, padded over fixed: median ×{middle:.3f}, quartiles {low:.3f} to {high:.3f}")
    return {"padding_time_ratio": middle}


def pieces() -> Iterator[tuple[str, float]]:
    """Noise for VGG11's 9.2 million weights, and one draw of 1024 from ten million records, in milliseconds."""
    stream = Keystream.from_system()
    noise, total = Noise(1.0, stream), torch.zeros(9_231_114)
    yield "noise_vgg11_ms", 1e3 * statistics.median(processor_seconds(lambda: noise.add_to(total)) for _ in range(7))
    yield "fixed_draw_ms", 1e3 * min(processor_seconds(lambda: uniform_subset(10**7, 1024, stream)) for _ in range(50))
    poisson = TruncatedPoissonGaussian(dataset_size=10**7, batch_size=1024, cap=1200, noise_multiplier=SIGMA)
    sampler = sampler_for(poisson, 10**7)
    yield "truncated_poisson_draw_ms", 1e3 * min(processor_seconds(lambda: sampler.draw(stream)) for _ in range(50))


def headroom(work: Workload, steps: int) -> Figures:
    """How much of the signal is lost to norms that err upwards and to what is kept free for rounding, while training.

    Signal is the sum of the clipped gradients' norms, over that of gradients clipped exactly; ``limited`` is the
    share of examples that are shortened because of their rounding and not because of their norm.
    """
    with prepared(fixed(work), task(work, work.model())) as ready:
        step = private_step(ready)
        lost, limited = [], []
        for turn in range(5):
            numbers = ready.sampler.draw(Keystream.from_system()).slots[:32]
            batch = ready.reader.read(numbers)
            lengths = ready.engine.sweep(batch, len(numbers)).lengths
            norms = torch.tensor([exact_norm(ready, row, batch) for row in range(len(numbers))])
            given = coefficients(lengths, CLIP, ready.engine.dtype)
            kept = (CLIP / norms).clamp(max=1.0) * norms
            lost.append(1.0 - float((given * norms).sum() / kept.sum()))
            by_norm = (clip_target(CLIP, ready.engine.dtype) / lengths.squares.sqrt()).clamp(max=1.0)
            limited.append(float((given < by_norm).double().mean()))
            for _ in range(steps // 5 if turn < 4 else 0):
                step()
    print(f"  {work.name}: signal lost {min(lost):.4%} to {max(lost):.4%}, limited by rounding {max(limited):.1%}")
    return {"signal_lost": max(lost), "limited_by_rounding": max(limited)}


def exact_norm(ready: LocalSteps, row: int, batch: Any) -> float:
    """One example's gradient norm by a plain backward pass, added up in float64."""
    loss = ready.task.loss(ready.task.model, tuple(leaf[row : row + 1] for leaf in batch))
    found = torch.autograd.grad(loss.sum(), list(ready.engine.parameters.values()))
    return math.sqrt(sum(float(part.double().square().sum()) for part in found))
