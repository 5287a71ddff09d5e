"""Time and memory of a private step beside plain SGD, with Opacus in two modes as others would do it.

Every figure is a ratio to plain SGD in the same run, on one thread. Time is processor time, the least over rounds in
which all take turns. Memory is the peak of live bytes from the batch to the sum of clipped gradients, from the
allocator: the noise's buffers take 4 MB for any model, which would hide what such small ones take.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from lrdp.training.engine import Totals
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import LocalSteps, prepared
from lrdp.training.task import Task
from training.zoo.entry import Batch, Entry
from training.zoo.keeper import mechanism

ROWS, RATE = 32, 0.1
CONTESTANTS = ("ours", "opacus hooks", "opacus ghost")
Step = Callable[[], object]
Figures = dict[str, dict[str, float | str]]


def contest(entry: Entry, task: Task | None, rounds: int = 5) -> Figures:
    """For each contestant ``time`` and ``memory`` as multiples of plain SGD's, or ``fails`` with the kind of error.

    ``task`` is what passed the gate, if it did.
    """
    with ExitStack() as stack, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        steps, failed = _ready(entry, task, stack)
        summing = {"ours": steps["ours"].clipped_sum} if "ours" in steps else {}  # type: ignore[attr-defined]
        times: dict[str, float] = {}
        for _ in range(rounds):
            for name, step in steps.items():
                times[name] = min(times.get(name, float("inf")), _seconds(step))
        peaks = {name: _peak(summing.get(name, step)) for name, step in steps.items()}
    found: Figures = {name: {"fails": why} for name, why in failed.items()}
    for name in steps:
        if name != "plain":
            found[name] = {"time": times[name] / times["plain"], "memory": peaks[name] / peaks["plain"]}
    return found


def _ready(entry: Entry, task: Task | None, stack: ExitStack) -> tuple[dict[str, Step], dict[str, str]]:
    """A step of each that gets through its first; and what the others fail with."""
    batch = entry.batch(ROWS, seed=3)
    makers = [
        ("plain", lambda: _plain(entry, batch)),
        ("opacus hooks", lambda: _opacus(entry, batch, "hooks")),
        ("opacus ghost", lambda: _opacus(entry, batch, "ghost")),
    ]
    if task is not None:
        makers.append(("ours", lambda: _Ours(stack.enter_context(prepared(mechanism(ROWS), task)))))
    steps, failed = {}, {}
    for name, make in makers:
        try:
            step = make()
            step()
            steps[name] = step
        except Exception as problem:  # noqa: BLE001 - whatever a baseline does with a model
            failed[name] = type(problem).__name__
    return steps, failed


def _plain(entry: Entry, batch: Batch) -> Step:
    model = entry.model()
    optimiser = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE)

    def step() -> None:
        optimiser.zero_grad()
        entry.loss(model, batch).mean().backward()
        optimiser.step()

    return step


class _Ours:
    """Sampling, reading, clipping, secure noise and the optimiser."""

    def __init__(self, ready: LocalSteps) -> None:
        self._ready, self._stream = ready, Keystream.from_system()
        trained = [parameter.detach() for parameter in ready.engine.parameters.values()]
        self._stepper = ready.task.constants.optimiser.start(trained)

    def __call__(self) -> None:
        self._ready._release(0, self.clipped_sum(), self._stream, self._stepper)

    def clipped_sum(self) -> Totals:
        return self._ready.clipped_sum(self._ready.sampler.draw(self._stream))


def _opacus(entry: Entry, batch: Batch, mode: str) -> Step:
    from opacus import PrivacyEngine
    from opacus.utils.fast_gradient_clipping_utils import DPTensorFastGradientClipping

    model = entry.model()
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*batch), batch_size=ROWS)
    private, optimiser, *_ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], RATE),
        data_loader=loader,
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
        criterion=nn.CrossEntropyLoss(),
    )
    by_mode: dict[str, Callable[[Any], Any]] = {
        "hooks": lambda losses: losses.mean(),
        "ghost": lambda losses: DPTensorFastGradientClipping(private, optimiser, losses, "mean"),
    }

    def step() -> None:
        optimiser.zero_grad()
        by_mode[mode](entry.loss(private, batch)).backward()
        optimiser.step()
        optimiser.zero_grad()

    return step


def _seconds(step: Step) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def _peak(step: Step) -> int:
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
