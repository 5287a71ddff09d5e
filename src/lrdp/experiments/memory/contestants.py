"""The contestants: each takes steps on a model and says after every one how many records it really had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, cast

import numpy as np
import torch
from torch.nn import functional
from torch.profiler import record_function
from torch.utils.data import DataLoader

from lrdp.accounting import FixedSizeGaussian, SampledGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput
from lrdp.experiments.memory.records import Pictures
from lrdp.experiments.networks import CLASSES, NETWORKS
from lrdp.training import (
    EMPTY,
    CrossEntropy,
    Draw,
    Execution,
    Keystream,
    PublicConstants,
    Randomness,
    Sampler,
    Sgd,
    Task,
    prepared,
)

Done = Callable[[int], None]
"""Called with the number of records of a step that has ended."""

RATE, CLIP, SIGMA = 0.01, 1.0, 1.0
PIECE: Final = "lrdp: a piece of a batch has been computed"
"""Told to a profiler where a batch is computed in pieces."""


@dataclass(frozen=True, kw_only=True)
class ContestantMethod:
    """An entry of the settings. A ``cap`` or a ``micro_batch`` of 0 is none.

    ``memory_limit`` is a client's own, such as "900MB": our engine then does without what takes memory to be fast.
    ``malloc`` is what such a process asks the C library to do: ``default``, ``keep`` or ``return`` freed blocks.
    """

    engine: str
    sampling: str
    cap: int = 0
    micro_batch: int = 0
    memory_limit: str = ""
    malloc: str = "default"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What all contestants have in common."""

    model: str
    records: int
    batch_size: int
    seed: int


Steps = Callable[[Sequence[int], Done], None]
"""Takes as many steps as there are sizes; of these sizes, unless the method draws its own."""

EnterContestant = Callable[[ContestantMethod, Setting, Pictures], AbstractContextManager[Steps]]
"""Makes everything ready; what that takes counts towards no step."""


def contestant(method: ContestantMethod, setting: Setting, records: Pictures) -> AbstractContextManager[Steps]:
    """Ready to take steps."""
    return ENGINES[method.engine](method, setting, records)


@contextmanager
def plain(_: ContestantMethod, setting: Setting, records: Pictures) -> Iterator[Steps]:
    """SGD without privacy."""
    model = _model(setting)
    optimiser = torch.optim.SGD(model.parameters(), RATE)

    def steps(sizes: Sequence[int], done: Done) -> None:
        for inputs, labels in _batches(setting, records, sizes):
            torch.autograd.backward(functional.cross_entropy(model(inputs), labels))
            optimiser.step()
            optimiser.zero_grad()  # here, so that no step begins with the gradients of the one before
            size = len(labels)
            del inputs, labels
            done(size)

    yield steps


@contextmanager
def opacus(method: ContestantMethod, setting: Setting, records: Pictures) -> Iterator[Steps]:
    """Opacus with per-example gradients by hooks, and its BatchMemoryManager where there are micro-batches."""
    from opacus import PrivacyEngine

    model, engine = _model(setting), cast(Any, PrivacyEngine())
    module, optimiser, _ = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), RATE),
        data_loader=DataLoader(records, batch_size=setting.batch_size),  # type: ignore[arg-type]
        noise_multiplier=SIGMA,
        max_grad_norm=CLIP,
        poisson_sampling=False,  # the batches are drawn here, so that a size can be asked for; their law is Poisson's
    )

    def steps(sizes: Sequence[int], done: Done) -> None:
        left = list(sizes)
        taken = 0
        with _in_pieces(_batches(setting, records, sizes), optimiser, method.micro_batch) as batches:
            for inputs, labels in batches:
                torch.autograd.backward(functional.cross_entropy(module(inputs), labels))
                optimiser.step()
                optimiser.zero_grad()
                taken += len(labels)
                del inputs, labels
                with record_function(PIECE):
                    pass
                if taken == left[0]:
                    done(left.pop(0))
                    taken = 0

    yield steps


@contextmanager
def _in_pieces(loader: Any, optimiser: Any, micro_batch: int) -> Iterator[Any]:
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    if not micro_batch:
        yield loader
        return
    with BatchMemoryManager(data_loader=loader, max_physical_batch_size=micro_batch, optimizer=optimiser) as pieces:
        yield pieces


@contextmanager
def ours(method: ContestantMethod, setting: Setting, records: Pictures) -> Iterator[Steps]:
    """The loop that a client runs, with the batches that its own sampler draws."""
    drawn: list[int] = []
    watched: list[Done] = []
    execution = Execution(
        micro_batch=method.micro_batch or None,
        memory_limit=method.memory_limit or None,
        observe=lambda _: watched[-1](drawn[-1]),
    )
    task = Task(
        model=_model(setting),
        dataset=records,
        loss=CrossEntropy(classes=CLASSES),
        constants=PublicConstants(clip_norm=CLIP, optimiser=Sgd(lr=RATE)),
        execution=execution,
    )
    with prepared(_mechanism(method, setting), task) as ready:
        counting = replace(ready, sampler=Counting(ready.sampler, drawn))

        def steps(sizes: Sequence[int], done: Done) -> None:
            watched.append(done)
            counting.run(len(sizes), Randomness(_stream(setting, "sampling"), _stream(setting, "noise")))

        yield steps


@dataclass(frozen=True)
class Counting:
    """A sampler that notes how many records it drew."""

    sampler: Sampler
    drawn: list[int]

    def draw(self, stream: Keystream) -> Draw:
        found = self.sampler.draw(stream)
        self.drawn.append(int((found.slots != EMPTY).sum()))
        return found


ENGINES: Final[Mapping[str, EnterContestant]] = {"plain": plain, "opacus": opacus, "ours": ours}
DRAW_THEIR_OWN: Final = ("ours",)
"""Engines that no size can be asked of."""


def _mechanism(method: ContestantMethod, setting: Setting) -> SampledGaussian:
    given = {"dataset_size": setting.records, "batch_size": setting.batch_size, "noise_multiplier": SIGMA}
    made: dict[str, Callable[[], SampledGaussian]] = {
        "fixed": lambda: FixedSizeGaussian(**given),  # type: ignore[arg-type]
        "truncated": lambda: TruncatedPoissonGaussian(**given, cap=method.cap),  # type: ignore[arg-type]
    }
    if method.sampling not in made:
        raise InvalidInput(
            f"our engine draws batches that are {' or '.join(made)}, got {method.sampling!r}: without a cap there is "
            f"no number of rows that every step has; nothing was run."
        )
    return made[method.sampling]()


def poisson_sizes(setting: Setting, steps: int, part: int) -> list[int]:
    """Sizes of Poisson batches, the same for the same seed and part."""
    source = np.random.default_rng([setting.seed, part])
    found = source.binomial(setting.records, setting.batch_size / setting.records, steps)
    return [max(1, int(size)) for size in found]


def _batches(setting: Setting, records: Pictures, sizes: Sequence[int]) -> DataLoader[Any]:
    """Which records, given how many: uniformly, which is what Poisson sampling comes to."""
    source = np.random.default_rng([setting.seed, len(sizes)])
    drawn = [source.choice(setting.records, size, replace=False).tolist() for size in sizes]
    return DataLoader(records, batch_sampler=drawn, collate_fn=lambda columns: columns)  # type: ignore[arg-type]


def _model(setting: Setting) -> torch.nn.Module:
    torch.manual_seed(setting.seed)
    return NETWORKS[setting.model].build()


def _stream(setting: Setting, purpose: str) -> Keystream:
    """Seeded: bytes are measured here, and nothing that is trained is ever released."""
    return Keystream(sha256(f"{setting.seed} {purpose}".encode()).digest())
