"""Who makes a client's update: our engine, plain SGD, or Opacus as it is."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset as TorchDataset

from lrdp.experiments.utility.mechanisms import step_of
from lrdp.training import AutomaticClipping, FlatClipping, PublicConstants, Sgd, Task, placed, uniform_subset
from lrdp.training.research import seeded_randomness, unaccounted_private_update


@dataclass(frozen=True, kw_only=True)
class Desk:
    """Where one client trains, from the weights that ``task``'s model has at the moment."""

    task: Task
    mechanism: Mapping[str, Any]
    rate: float
    steps: int
    seed: int
    client: int


UpdateEngine = Callable[[Desk, int], Mapping[str, Tensor]]
"""What the trained weights move by in a round, given by its number; the model comes back as it was."""


def constants(rate: float, clip_norm: float, gamma: float = 0.0) -> PublicConstants:
    """Plain steps of a constant rate; ``gamma`` is automatic clipping's, 0 for flat clipping."""
    clipping = AutomaticClipping(gamma=gamma) if gamma else FlatClipping()
    return PublicConstants(clip_norm=clip_norm, optimiser=Sgd(lr=rate), clipping=clipping)


def ours(desk: Desk, number: int) -> Mapping[str, Tensor]:
    """The engine that clients use, by its entry for research."""
    randomness = seeded_randomness(desk.seed, desk.client, number)
    return unaccounted_private_update(step_of(desk.mechanism), desk.steps, desk.task, randomness).delta


def plain(desk: Desk, number: int) -> Mapping[str, Tensor]:
    """Without clipping or noise, on the batches that fixed-size sampling draws."""
    stream = seeded_randomness(desk.seed, desk.client, number).sampling
    batch, records = desk.mechanism["batch_size"], desk.task.dataset
    with _moved(desk.task.model) as (model, moved):
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for _ in range(desk.steps):
            drawn = placed(uniform_subset(len(records), batch, stream), batch, stream)
            loss = desk.task.loss(model, records.dataset.columns_at(drawn)).mean()  # type: ignore[attr-defined]
            gradients = torch.autograd.grad(loss, trained)
            with torch.no_grad():
                for parameter, gradient in zip(trained, gradients, strict=True):
                    parameter.add_(gradient, alpha=-desk.rate)
    return moved


def opacus(desk: Desk, number: int) -> Mapping[str, Tensor]:
    """Opacus's own Poisson loader, per-sample gradients, clipping and noise, at the very rate q that was accounted."""
    from opacus.data_loader import DPDataLoader
    from opacus.grad_sample import GradSampleModule
    from opacus.optimizers import DPOptimizer

    step, first = step_of(desk.mechanism), seeded_randomness(desk.seed, desk.client, number)
    loader = DPDataLoader(
        dataset=_Rows(desk.task.dataset), sample_rate=step.probability, generator=_generator(first.sampling.key())
    )
    with _moved(desk.task.model) as (model, moved), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Full backward hook")  # its hooks, where the first layer is the only one
        private = GradSampleModule(model)
        optimiser = DPOptimizer(
            torch.optim.SGD(private.parameters(), desk.rate),
            noise_multiplier=step.noise_multiplier,
            max_grad_norm=desk.task.constants.clip_norm,
            expected_batch_size=step.batch_size,
            generator=_generator(first.noise.key()),
        )
        for batch in islice(chain.from_iterable(repeat(loader)), desk.steps):
            optimiser.zero_grad()
            torch.autograd.backward(desk.task.loss(private, batch).mean())
            optimiser.step()
    return moved


ENGINES: Final[dict[str, UpdateEngine]] = {"lrdp": ours, "plain": plain, "opacus": opacus}


class _Rows(TorchDataset[Any]):
    """Records as torch's loaders want them."""

    def __init__(self, records: Any) -> None:
        self._records = records

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, number: int) -> Any:
        return self._records[number]


def _generator(key: bytes) -> torch.Generator:
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little") >> 1)


@contextmanager
def _moved(model: nn.Module) -> Iterator[tuple[nn.Module, dict[str, Tensor]]]:
    """A copy to train, and where the difference stands once it is trained."""
    copied, moved = copy.deepcopy(model), dict[str, Tensor]()
    yield copied, moved
    before = dict(model.named_parameters())
    for name, parameter in copied.named_parameters():
        if parameter.requires_grad:
            moved[name] = (parameter - before[name]).detach()
