"""What one record does to the sum, of a model and a loss as they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor, nn

from lrdp.accounting import FixedSizeGaussian
from lrdp.training import (
    Dataset,
    Moments,
    PublicConstants,
    Task,
    check_gradients,
)
from lrdp.training.keystream import Keystream
from lrdp.training.local_steps import Randomness, prepared

from .public import BATCH, LEAST, Loss, source
from .weights import randomise


class Noting:
    """At work: what it is given is noted."""

    def __init__(self, given: dict[int, Tensor]) -> None:
        self._given = given

    def step(self, number: int, place: int, noisy: Tensor) -> None:
        self._given[place] = noisy.double().flatten()

    def moments(self) -> Moments:
        raise NotImplementedError("it keeps none")


class Noted:
    """An optimiser that moves nothing and notes what it is given."""

    moments = 0
    over_rounds = False

    def __init__(self) -> None:
        self._given: dict[int, Tensor] = {}

    def start(self, parameters: Sequence[Tensor], before: Moments | None = None) -> Noting:
        return Noting(self._given)

    @property
    def vector(self) -> Tensor:
        """All parameters' in one."""
        return torch.cat([self._given[place] for place in sorted(self._given)])


QUIET = FixedSizeGaussian(dataset_size=LEAST, batch_size=BATCH, noise_multiplier=1e-6)
"""So little noise that what one record does is seen."""


def clipped_sums(model: nn.Module, loss: Loss, dataset: Dataset, clip_norm: float, draws: int) -> list[Tensor]:
    """Σ clipped gradients of some steps, in units of the clip norm, but for a millionth of noise."""
    noted, weights = Noted(), {name: value.clone() for name, value in model.state_dict().items()}
    constants = PublicConstants(clip_norm=clip_norm, optimiser=noted)
    task = Task(model=model, dataset=dataset, loss=loss, constants=constants)
    randomise(model, source(1))
    task = replace(task, checked=check_gradients(QUIET, task))
    model.load_state_dict(weights)
    return [_noted(task, noted, draw) * BATCH / clip_norm for draw in range(draws)]


def _noted(task: Task, noted: Noted, draw: int) -> Tensor:
    """Of the draw of this number, the same for data sets of the same size: neighbours are compared slot by slot."""
    randomness = Randomness(sampling=Keystream(bytes([draw] * 32)), noise=Keystream(bytes([255] * 32)))
    with prepared(QUIET, task) as ready:
        ready.run(1, randomness)
    return noted.vector


@contextmanager
def anomalies_detected() -> Iterator[None]:
    """Torch's own search for what is not finite in a backward pass, which raises where it finds it."""
    torch.autograd.set_detect_anomaly(True)
    try:
        yield
    finally:
        torch.autograd.set_detect_anomaly(False)
