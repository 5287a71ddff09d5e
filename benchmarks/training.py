"""One private step against plain SGD, Opacus and torch.func: time and live bytes.

Every figure is a ratio to plain SGD in the same run. Time is processor time on one thread, the median over rounds in
which all contestants take turns. Memory is the peak of live bytes within a step, from the allocator, without weights.
A long run can be split by model, part and baseline into several, whose last lines ``--join`` makes one.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import re
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile
from training_baselines import BASELINES, CLIP, RATE, SIGMA, Build, Step, plain
from training_models import WORKLOADS, Workload

from lrdp.accounting import FixedSizeGaussian, SampledGaussian, TruncatedPoissonGaussian
from lrdp.training import (
    Constant,
    CrossEntropy,
    Execution,
    PublicConstants,
    Sgd,
    Task,
    TensorRecords,
    return_large_blocks,
)
from lrdp.training.clipping import coefficients
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, Randomness, prepared
from lrdp.training.noise import Noise
from lrdp.training.rounding import clip_target
from lrdp.training.sampling import sampler_for, uniform_subset

PARTS = ("steps", "padding", "pieces", "headroom", "flatness")
QUICK = ("opacus hooks",)
Figures = dict[str, float]


def peak_bytes(step: Step) -> int:
    """The most bytes that lived at once within a step, beyond those before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    results: Any = recorded.profiler
    events = [event for event in results.kineto_results.events() if event.name() == "[memory]"]
    live = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        live += event.nbytes()
        most = max(most, live)
    return most


def seconds(step: Step) -> float:
    start = time.process_time()
    step()
    return time.process_time() - start


def private_step(ready: LocalSteps) -> Step:
    """One step of the local loop: sampling, reading, clipping, secure noise and the optimiser."""
    randomness = Randomness(sampling=Keystream.from_system(), noise=Keystream.from_system())
    trained = [parameter.detach() for parameter in ready.engine.parameters.values()]
    stepper = ready.task.constants.optimiser.start(trained)
    return lambda: ready._release(
        0, ready.clipped_sum(ready.sampler.draw(randomness.sampling)), randomness.noise, stepper
    )


def task(work: Workload, model: nn.Module, micro_batch: int | None = None) -> Task:
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(rate=Constant(rate=RATE)))
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


def measure(work: Workload, rounds: int, baselines: dict[str, Build]) -> Figures:
    model, batch = work.model(), work.records(work.batch_size)
    steps: dict[str, Step] = {"plain": plain(copy.deepcopy(model), *batch)}
    with (
        prepared(fixed(work), task(work, copy.deepcopy(model))) as whole,
        prepared(fixed(work), task(work, copy.deepcopy(model), work.micro_batch)) as parts,
    ):
        steps |= {"ours": private_step(whole), "ours in micro-batches": private_step(parts)}
        steps |= {name: build(copy.deepcopy(model), *batch) for name, build in baselines.items()}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(rounds + 1):
            for name, step in steps.items():
                if turn <= 2 or name not in baselines:  # a baseline that takes ten times as long needs fewer turns
                    spent = seconds(step)
                    times[name] += [spent] if turn else []
        peaks = {name: peak_bytes(step) for name, step in steps.items()}
    return report(work.name, {name: statistics.median(spent) for name, spent in times.items()}, peaks)


def report(name: str, times: Figures, peaks: dict[str, int]) -> Figures:
    print(f"\n{name}: plain SGD {times['plain']:.3f} s, {peaks['plain'] / 1e6:.0f} MB")
    found = {"plain_s": times["plain"], "plain_mb": peaks["plain"] / 1e6}
    prefixes = {"ours": "", "ours in micro-batches": "micro_batch_", "opacus hooks": "opacus_"}
    for contestant, spent in times.items():
        time_ratio, memory_ratio = spent / times["plain"], peaks[contestant] / peaks["plain"]
        ratios = f"time ×{time_ratio:5.2f}   memory ×{memory_ratio:5.2f}"
        print(f"  {contestant:28} {ratios} ({peaks[contestant] / 1e6:.0f} MB)")
        if contestant != "plain":
            prefix = prefixes.get(contestant, contestant.replace(" ", "_") + "_")
            found |= {f"{prefix}time_ratio": time_ratio, f"{prefix}memory_ratio": memory_ratio}
    return found


def process_peak() -> int:
    """The most memory this process ever had resident, in kB, since it last forgot."""
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path("/proc/self/status").read_text(encoding="ascii"), re.MULTILINE)
    return int(found[1]) if found else 0


def forget_process_peak() -> None:
    """What ran before in this process, such as a baseline, must not hide growth."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


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
    print(f"  process peak {before / 1e3:.1f} MB after 10 steps, {after / 1e3:.1f} MB after {steps}")
    return {
        "memory_flatness": max(peaks) / min(peaks),
        "flatness_steps": steps,
        "flatness_rows": rows,
        "process_peak_growth": after / before,
    }


def padding(work: Workload, rounds: int) -> Figures:
    """Time of a padded truncated Poisson step over that of a fixed batch of the cap's size, on the same model.

    The two take turns in going first, and the median is over the ratios of pairs: drift touches both alike.
    """
    model = work.model()
    ratios = []
    with prepared(fixed(work), task(work, model)) as whole:
        steps = [private_step(whole)]
        with prepared(padded(work, work.batch_size), task(work, copy.deepcopy(model))) as cut:
            steps.append(private_step(cut))
            for turn in range(rounds + 1):
                order = (0, 1) if turn % 2 else (1, 0)
                spent = {place: seconds(steps[place]) for place in order}
                ratios += [spent[1] / spent[0]] if turn else []
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"  {work.name}, padded over fixed: median ×{middle:.3f}, quartiles {low:.3f} to {high:.3f}")
    return {"padding_time_ratio": middle}


def pieces() -> Iterator[tuple[str, float]]:
    """Noise for VGG11's 9.2 million weights, and one draw of 1024 from ten million records, in milliseconds."""
    stream = Keystream.from_system()
    noise, total = Noise(1.0, stream), torch.zeros(9_231_114)
    yield "noise_vgg11_ms", 1e3 * statistics.median(seconds(lambda: noise.add_to(total)) for _ in range(7))
    yield "fixed_draw_ms", 1e3 * min(seconds(lambda: uniform_subset(10**7, 1024, stream)) for _ in range(50))
    poisson = TruncatedPoissonGaussian(dataset_size=10**7, batch_size=1024, cap=1200, noise_multiplier=SIGMA)
    sampler = sampler_for(poisson, 10**7)
    yield "truncated_poisson_draw_ms", 1e3 * min(seconds(lambda: sampler.draw(stream)) for _ in range(50))


def headroom(work: Workload, steps: int) -> Figures:
    """How much of the signal is lost to norms that err upwards and to what is kept free for rounding, while training.

    Signal is the sum of the clipped gradients' norms, beside that of gradients clipped exactly; ``limited`` is the
    share of examples that are shortened because of their rounding and not of their norm.
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


def run(given: argparse.Namespace) -> dict[str, Figures]:
    """Flatness last: it has the C library return freed blocks, which takes time that is not to be measured."""
    works = [work for work in WORKLOADS if work.name in given.models]
    baselines = {name: BASELINES[name] for name in given.baselines if name in QUICK or not given.quick}
    quick = given.quick
    parts: dict[str, Callable[[Workload], Figures]] = {
        "steps": lambda work: measure(work, given.rounds or (3 if quick else 7), baselines),
        "padding": lambda work: padding(work, 4 if quick else 20),
        "headroom": lambda work: headroom(work, 5 if quick else 40),
        "flatness": lambda work: flatness(work, 20 if quick else 500, given.rows or work.batch_size),
    }
    found: dict[str, Figures] = {work.name: {} for work in works}
    if "pieces" in given.parts:
        found["pieces"] = dict(pieces())
        print("\n" + "  ".join(f"{name} {value:.3f}" for name, value in found["pieces"].items()))
    for part in (part for part in parts if part in given.parts):
        for work in works:
            found[work.name] |= parts[part](work)
    return found


def joined(paths: list[Path]) -> dict[str, Figures]:
    """The last lines of several runs as one; where two have the same figure, the first is taken."""
    found: dict[str, Figures] = {}
    for path in paths:
        for name, figures in json.loads(path.read_text(encoding="utf-8").splitlines()[-1]).items():
            found[name] = figures | found.get(name, {})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, Opacus hooks as the only baseline")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    names = [work.name for work in WORKLOADS]
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--baselines", nargs="*", choices=BASELINES, default=list(BASELINES), metavar="NAME")
    parser.add_argument("--rounds", type=int, help="rounds of the part steps, after one to warm up")
    parser.add_argument("--rows", type=int, help="rows of a step in the part flatness, if not the model's batch")
    parser.add_argument("--join", nargs="+", type=Path, metavar="FILE", help="measure nothing: join saved outputs")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found = joined(given.join) if given.join else run(given)
    if given.json or given.join:
        print(json.dumps({key: {k: round(v, 4) for k, v in value.items()} for key, value in found.items()}))


if __name__ == "__main__":
    main()
