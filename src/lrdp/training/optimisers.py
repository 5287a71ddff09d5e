"""Optimisers that are given noisy gradients, and nothing else to see.

An optimiser is a public value; its moments belong to one update and start at zero. Since whatever enters them is
already private, they cost no privacy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from lrdp.errors import InvalidInput
from lrdp.training.schedules import Schedule, as_schedule


class Stepper(Protocol):
    """An optimiser at work on some parameters."""

    def step(self, number: int, place: int, noisy: Tensor) -> None:
        """Move one parameter by its noisy gradient, in step ``number`` over all rounds."""


class Optimiser(Protocol):
    """A public choice of optimiser."""

    @property
    def moments(self) -> int:
        """How many tensors of the parameters' size it keeps."""

    def start(self, parameters: Sequence[Tensor]) -> Stepper:
        """Fresh moments for these parameters."""


@dataclass(frozen=True, kw_only=True)
class Sgd:
    """Stochastic gradient descent; with one local step and no momentum, the paper's [eq:client_Delta_Theta_def].

    ``lr`` is a number, or a schedule over the steps of all rounds.

    >>> Sgd(lr=0.5).lr
    0.5
    """

    lr: float | Schedule
    momentum: float = 0.0
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        _share("momentum", self.momentum)
        _not_negative("weight_decay", self.weight_decay)

    @property
    def moments(self) -> int:
        return 1 if self.momentum else 0

    def start(self, parameters: Sequence[Tensor]) -> Stepper:
        return _SgdStepper(self, parameters)


class _SgdStepper:
    def __init__(self, settings: Sgd, parameters: Sequence[Tensor]) -> None:
        self._settings, self._parameters = settings, parameters
        self._moments: dict[int, Tensor] = {}

    @torch.no_grad()
    def step(self, number: int, place: int, noisy: Tensor) -> None:
        settings, parameter = self._settings, self._parameters[place]
        if settings.weight_decay:
            noisy.add_(parameter, alpha=settings.weight_decay)
        if settings.momentum:
            kept = self._moments.get(place)
            self._moments[place] = noisy.clone() if kept is None else kept.mul_(settings.momentum).add_(noisy)
            noisy = self._moments[place]
        parameter.add_(noisy, alpha=-as_schedule(settings.lr).at(number))


@dataclass(frozen=True, kw_only=True)
class Adam:
    """Adam, with torch's names and values; ``weight_decay`` is added to the gradient.

    >>> Adam(lr=1e-3).betas
    (0.9, 0.999)
    """

    lr: float | Schedule
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        for beta in self.betas:
            _share("betas", beta)
        _not_negative("eps", self.eps)
        _not_negative("weight_decay", self.weight_decay)

    @property
    def moments(self) -> int:
        return 2

    def start(self, parameters: Sequence[Tensor]) -> Stepper:
        return _AdamStepper(self, parameters)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with ``weight_decay`` taken from the weights themselves."""

    decoupled: bool = field(default=True, init=False)


class _AdamStepper:
    def __init__(self, settings: Adam, parameters: Sequence[Tensor]) -> None:
        self._settings, self._parameters = settings, parameters
        self._moments: dict[int, tuple[Tensor, Tensor]] = {}
        self._taken: dict[int, int] = {}

    @torch.no_grad()
    def step(self, number: int, place: int, noisy: Tensor) -> None:
        settings, parameter = self._settings, self._parameters[place]
        rate, (first, second) = as_schedule(settings.lr).at(number), settings.betas
        if settings.decoupled:
            parameter.mul_(1.0 - rate * settings.weight_decay)
        elif settings.weight_decay:
            noisy.add_(parameter, alpha=settings.weight_decay)
        if place not in self._moments:
            self._moments[place] = torch.zeros_like(noisy), torch.zeros_like(noisy)
        mean, square = self._moments[place]
        taken = self._taken[place] = self._taken.get(place, 0) + 1
        mean.lerp_(noisy, 1.0 - first)
        square.mul_(second).addcmul_(noisy, noisy, value=1.0 - second)
        scale = (square / (1.0 - second**taken)).sqrt_().add_(settings.eps)
        parameter.addcdiv_(mean, scale, value=-rate / (1.0 - first**taken))


def _share(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise InvalidInput(f"{name} must lie in [0, 1), got {value}: it is the share of the past that is kept.")


def _not_negative(name: str, value: float) -> None:
    if not 0.0 <= value < float("inf"):
        raise InvalidInput(f"{name} must be at least 0 and finite, got {value}.")
