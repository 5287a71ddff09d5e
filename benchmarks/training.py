"""One private step against plain SGD, Opacus and torch.func: time and live bytes.

Every figure is a ratio to plain SGD in the same run. Time is processor time on one thread, the median over rounds in
which all contestants take turns. Memory is the peak of live bytes within a step, from the allocator, without weights.
"""

from __future__ import annotations

import argparse
import copy
import json
import resource
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from lrdp.accounting import FixedSizeGaussian, SampledGaussian, TruncatedPoissonGaussian
from lrdp.training import Constant, CrossEntropy, Execution, PublicConstants, Sgd, Task, TensorRecords
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, Randomness, prepared
from lrdp.training.noise import add_noise
from lrdp.training.sampling import sampler_for, uniform_subset

RATE, CLIP, SIGMA = 0.01, 1.0, 1.0
Step = Callable[[], object]


class BertMini(nn.Module):
    def __init__(self, entries: int = 30522, width: int = 256, steps: int = 64, blocks: int = 4) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(entries, width), nn.Embedding(steps, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, 10)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1]).repeat(len(tokens), 1)  # Opacus ghost fails on an expanded view
        hidden = self.norm(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            hidden = block(hidden)
        out: Tensor = self.head(hidden[:, 0])
        return out


class Block(nn.Module):
    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.heads = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), heads

    def forward(self, hidden: Tensor) -> Tensor:
        parts = (layer(hidden) for layer in (self.query, self.key, self.value))
        query, key, value = (p.view(*p.shape[:2], self.heads, -1).transpose(1, 2) for p in parts)
        attended = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        hidden = self.first(hidden + self.out(attended))
        normed: Tensor = self.second(hidden + self.down(functional.gelu(self.up(hidden))))
        return normed


def vgg11() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(32, width), nn.ReLU()] if width else []
        layers += [] if width else [nn.MaxPool2d(2)]
        channels = width or channels
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10))


def small_cnn() -> nn.Module:
    first = [nn.Conv2d(1, 16, 8, 2, padding=2), nn.ReLU(), nn.MaxPool2d(2, 1)]
    second = [nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))


@dataclass(frozen=True)
class Workload:
    name: str
    model: Callable[[], nn.Module]
    batch_size: int
    inputs: Callable[[int], Tensor]
    micro_batch: int

    def records(self, count: int) -> tuple[Tensor, Tensor]:
        torch.manual_seed(1)
        return self.inputs(count), torch.randint(0, 10, (count,))


WORKLOADS = (
    Workload("vgg11", vgg11, 128, lambda n: torch.randn(n, 3, 32, 32), 32),
    Workload("cnn", small_cnn, 256, lambda n: torch.randn(n, 1, 28, 28), 32),
    Workload("bert_mini", BertMini, 32, lambda n: torch.randint(0, 30522, (n, 64)), 8),
)


def plain(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    optimiser = torch.optim.SGD(model.parameters(), RATE)

    def step() -> None:
        optimiser.zero_grad()
        torch.autograd.backward(functional.cross_entropy(model(inputs), labels))
        optimiser.step()

    return step


def opacus(mode: str, micro_batch: int | None = None) -> Callable[[nn.Module, Tensor, Tensor], Step]:
    def build(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
        from opacus import PrivacyEngine

        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), batch_size=len(inputs))
        settings = {
            "noise_multiplier": SIGMA,
            "max_grad_norm": CLIP,
            "poisson_sampling": False,
            "grad_sample_mode": mode,
        }
        given = {"module": model, "optimizer": torch.optim.SGD(model.parameters(), RATE), "data_loader": loader}
        private, optimiser, *others = PrivacyEngine().make_private(**given, **settings, criterion=nn.CrossEntropyLoss())
        criterion = others[0] if mode == "ghost" else functional.cross_entropy
        size = micro_batch or len(inputs)

        def step() -> None:
            for start in range(0, len(inputs), size):
                if micro_batch:
                    optimiser.signal_skip_step(do_skip=start + size < len(inputs))
                optimiser.zero_grad()
                criterion(private(inputs[start : start + size]), labels[start : start + size]).backward()
                optimiser.step()
            optimiser.zero_grad()

        return step

    return build


def vectorised(model: nn.Module, inputs: Tensor, labels: Tensor) -> Step:
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(given: dict[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(model, given, (one[None],)), label[None])

    def step() -> None:
        gradients, _ = vmap(grad_and_value(loss), in_dims=(None, 0, 0))(weights, inputs, labels)
        norms = torch.stack([part.flatten(1).norm(dim=1) for part in gradients.values()]).norm(dim=0)
        shares = (CLIP / norms).clamp(max=1.0)
        for name, part in gradients.items():
            total = torch.einsum("b...,b->...", part, shares)
            weights[name] -= RATE / len(inputs) * (total + SIGMA * CLIP * torch.randn_like(total))

    return step


BASELINES: dict[str, Callable[[nn.Module, Tensor, Tensor], Step]] = {
    "opacus hooks": opacus("hooks"),
    "opacus ghost": opacus("ghost"),
    "opacus functorch": opacus("functorch"),
    "opacus BatchMemoryManager": opacus("hooks", micro_batch=32),
    "torch.func vmap": vectorised,
}


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


def task(work: Workload, model: nn.Module, micro_batch: int | None) -> Task:
    constants = PublicConstants(clip_norm=CLIP, optimiser=Sgd(rate=Constant(rate=RATE)))
    dataset = TensorRecords(*work.records(2 * work.batch_size))
    execution = Execution(micro_batch=micro_batch)
    return Task(model=model, dataset=dataset, loss=CrossEntropy(classes=10), constants=constants, execution=execution)


def mechanism(work: Workload) -> SampledGaussian:
    return FixedSizeGaussian(dataset_size=2 * work.batch_size, batch_size=work.batch_size, noise_multiplier=SIGMA)


def measure(work: Workload, rounds: int, baselines: dict[str, Any]) -> dict[str, float]:
    model, batch = work.model(), work.records(work.batch_size)
    steps: dict[str, Step] = {"plain": plain(copy.deepcopy(model), *batch)}
    with (
        prepared(mechanism(work), task(work, copy.deepcopy(model), None)) as whole,
        prepared(mechanism(work), task(work, copy.deepcopy(model), work.micro_batch)) as parts,
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


def report(name: str, times: dict[str, float], peaks: dict[str, int]) -> dict[str, float]:
    print(f"\n{name}: plain SGD {times['plain']:.3f} s, {peaks['plain'] / 1e6:.0f} MB")
    for contestant, spent in times.items():
        peak = peaks[contestant]
        ratios = f"time ×{spent / times['plain']:5.2f}   memory ×{peak / peaks['plain']:5.2f}"
        print(f"  {contestant:28} {ratios} ({peak / 1e6:.0f} MB)")
    found = {"time_ratio": times["ours"] / times["plain"], "memory_ratio": peaks["ours"] / peaks["plain"]}
    found["micro_batch_time_ratio"] = times["ours in micro-batches"] / times["plain"]
    found["micro_batch_memory_ratio"] = peaks["ours in micro-batches"] / peaks["plain"]
    if "opacus hooks" in times:
        found["opacus_time_ratio"] = times["opacus hooks"] / times["plain"]
        found["opacus_memory_ratio"] = peaks["opacus hooks"] / peaks["plain"]
    return found


def flatness(work: Workload, steps: int) -> dict[str, float]:
    """Truncated Poisson batches, whose true sizes vary: largest over smallest peak of live bytes."""
    expected = work.micro_batch
    records, cap = 2 * work.batch_size, expected + 8
    cut = TruncatedPoissonGaussian(dataset_size=records, batch_size=expected, cap=cap, noise_multiplier=SIGMA)
    with prepared(cut, task(work, work.model(), None)) as ready:
        step = private_step(ready)
        step()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        peaks = [peak_bytes(step) for _ in range(steps)]
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
    print(f"  {steps} steps: live {min(peaks) / 1e6:.1f} to {max(peaks) / 1e6:.1f} MB, process peak +{grown:.0f} MB")
    return {"memory_flatness": max(peaks) / min(peaks), "flatness_steps": steps}


def padding_costs_nothing(work: Workload, rounds: int) -> float:
    """Time of a padded truncated Poisson step over that of a fixed batch of the cap's size."""
    cap, records = work.batch_size, 2 * work.batch_size
    padded = TruncatedPoissonGaussian(dataset_size=records, batch_size=cap * 3 // 4, cap=cap, noise_multiplier=SIGMA)
    with (
        prepared(mechanism(work), task(work, work.model(), None)) as fixed,
        prepared(padded, task(work, work.model(), None)) as cut,
    ):
        first, second = private_step(fixed), private_step(cut)
        pairs = [(seconds(first), seconds(second)) for _ in range(rounds + 1)][1:]
    return statistics.median(second for _, second in pairs) / statistics.median(first for first, _ in pairs)


def pieces() -> Iterator[tuple[str, float]]:
    """Noise for VGG11's 9.2 million weights, and one draw of 1024 from ten million records, in milliseconds."""
    stream = Keystream.from_system()
    total = torch.zeros(9_231_114)
    yield "noise_vgg11_ms", 1e3 * min(seconds(lambda: add_noise(total, 1.0, stream)) for _ in range(3))
    yield "fixed_draw_ms", 1e3 * min(seconds(lambda: uniform_subset(10**7, 1024, stream)) for _ in range(50))
    poisson = TruncatedPoissonGaussian(dataset_size=10**7, batch_size=1024, cap=1200, noise_multiplier=SIGMA)
    sampler = sampler_for(poisson, 10**7)
    yield "truncated_poisson_draw_ms", 1e3 * min(seconds(lambda: sampler.draw(stream)) for _ in range(50))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, Opacus hooks as the only baseline")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--only", choices=[work.name for work in WORKLOADS])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    baselines = {"opacus hooks": BASELINES["opacus hooks"]} if given.quick else BASELINES
    found: dict[str, Any] = {}
    for work in WORKLOADS:
        if given.only in (None, work.name):
            found[work.name] = measure(work, 3 if given.quick else 7, baselines)
            found[work.name] |= flatness(work, 20 if given.quick else 500)
            found[work.name]["padding_time_ratio"] = padding_costs_nothing(work, 3 if given.quick else 7)
    found["pieces"] = dict(pieces())
    print("\n" + "  ".join(f"{name} {value:.3f}" for name, value in found["pieces"].items()))
    if given.json:
        print(json.dumps({key: {k: round(v, 4) for k, v in value.items()} for key, value in found.items()}))


if __name__ == "__main__":
    main()
