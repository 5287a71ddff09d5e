"""Optimisers that see noisy gradients, and nothing else.

An optimiser is a public value. Its moments start at zero in every update, or with ``over_rounds`` go on from where the
last one left them. Since whatever enters them is already private, they cost no privacy; they stay with the client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from lrdp import limits
from lrdp.errors import InvalidInput
from lrdp.training.schedules import Schedule, as_schedule


@dataclass(frozen=True)
class Moments:
    """What an optimiser keeps of ``taken`` noised gradients: some tensors for each parameter, in their order."""

    taken: int
    kept: tuple[tuple[Tensor, ...], ...]

    @property
    def finite(self) -> bool:
        """Whether they can be used."""
        return all(bool(torch.isfinite(one).all()) for each in self.kept for one in each)

    def copied(self, parameters: Sequence[Tensor]) -> list[tuple[Tensor, ...]]:
        """Copies, where the parameters lie."""
        pairs = zip(self.kept, parameters, strict=True)
        return [tuple(one.to(parameter.device, copy=True) for one in each) for each, parameter in pairs]

    def demand_fit(self, parameters: Sequence[Tensor], count: int) -> None:
        """Raise if they are not ``count`` for each of these parameters."""
        shapes = [[(one.shape, one.dtype) for one in each] for each in self.kept]
        if shapes != [[(parameter.shape, parameter.dtype)] * count for parameter in parameters]:
            raise InvalidInput("moments must be those of the same parameters and optimiser: start without any.")


class Stepper(Protocol):
    """An optimiser at work on some parameters."""

    def step(self, number: int, place: int, noisy: Tensor) -> None:
        """Move one parameter by its noisy gradient, in step ``number`` over all rounds."""

    def moments(self) -> Moments:
        """What it has kept so far: its own tensors, not copies."""


class Optimiser(Protocol):
    """A public choice of optimiser."""

    @property
    def moments(self) -> int:
        """How many tensors of the parameters' size it keeps."""

    @property
    def over_rounds(self) -> bool:
        """Whether an update goes on with the moments of the last one."""

    def start(self, parameters: Sequence[Tensor], before: Moments | None = None) -> Stepper:
        """At work on these parameters."""


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
    over_rounds: bool = False

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        _share("momentum", self.momentum)
        _not_negative("weight_decay", self.weight_decay)
        limits.made_by("over_rounds", self.over_rounds, bool)

    @property
    def moments(self) -> int:
        return 1 if self.momentum else 0

    def start(self, parameters: Sequence[Tensor], before: Moments | None = None) -> Stepper:
        return _SgdStepper(self, parameters, before)


class _SgdStepper:
    def __init__(self, settings: Sgd, parameters: Sequence[Tensor], before: Moments | None) -> None:
        self._settings, self._parameters = settings, parameters
        self._taken = before.taken if before else 0
        given = enumerate(before.copied(parameters) if before else [])
        self._moments = {place: kept[0] for place, kept in given if kept}

    @torch.no_grad()
    def step(self, number: int, place: int, noisy: Tensor) -> None:
        settings, parameter = self._settings, self._parameters[place]
        if settings.weight_decay:
            noisy.add_(parameter, alpha=settings.weight_decay)
        if settings.momentum:
            kept = self._moments.get(place)
            self._moments[place] = noisy.clone() if kept is None else kept.mul_(settings.momentum).add_(noisy)
            noisy = self._moments[place]
        self._taken += place == 0
        parameter.add_(noisy, alpha=-as_schedule(settings.lr).at(number))

    def moments(self) -> Moments:
        found = (self._moments.get(place) for place in range(len(self._parameters)))
        return Moments(self._taken, tuple(() if kept is None else (kept,) for kept in found))


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
    over_rounds: bool = False
    decoupled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        as_schedule(self.lr)
        for beta in self.betas:
            _share("betas", beta)
        _not_negative("eps", self.eps)
        _not_negative("weight_decay", self.weight_decay)
        limits.made_by("over_rounds", self.over_rounds, bool)

    @property
    def moments(self) -> int:
        return 2

    def start(self, parameters: Sequence[Tensor], before: Moments | None = None) -> Stepper:
        return _AdamStepper(self, parameters, before)


@dataclass(frozen=True, kw_only=True)
class AdamW(Adam):
    """Adam with ``weight_decay`` taken from the weights themselves.

    >>> AdamW(lr=1e-3, weight_decay=0.01).decoupled
    True
    """

    decoupled: bool = field(default=True, init=False)


class _AdamStepper:
    def __init__(self, settings: Adam, parameters: Sequence[Tensor], before: Moments | None) -> None:
        self._settings, self._parameters = settings, parameters
        fresh = ((torch.zeros_like(one), torch.zeros_like(one)) for one in parameters)
        self._moments: list[tuple[Tensor, ...]] = before.copied(parameters) if before else list(fresh)
        self._taken = [before.taken if before else 0] * len(parameters)

    @torch.no_grad()
    def step(self, number: int, place: int, noisy: Tensor) -> None:
        settings, parameter = self._settings, self._parameters[place]
        rate, (first, second) = as_schedule(settings.lr).at(number), settings.betas
        if settings.decoupled:
            parameter.mul_(1.0 - rate * settings.weight_decay)
        elif settings.weight_decay:
            noisy.add_(parameter, alpha=settings.weight_decay)
        mean, square = self._moments[place]
        taken = self._taken[place] = self._taken[place] + 1
        mean.lerp_(noisy, 1.0 - first)
        square.mul_(second).addcmul_(noisy, noisy, value=1.0 - second)
        scale = (square / (1.0 - second**taken)).sqrt_().add_(settings.eps)
        parameter.addcdiv_(mean, scale, value=-rate / (1.0 - first**taken))

    def moments(self) -> Moments:
        return Moments(self._taken[0], tuple(self._moments))


def _share(name: str, value: float) -> None:
    if not 0.0 <= value < 1.0:
        raise InvalidInput(f"{name} must lie in [0, 1), got {value}: it is the share of the past that is kept.")


def _not_negative(name: str, value: float) -> None:
    if not 0.0 <= value < float("inf"):
        raise InvalidInput(f"{name} must be at least 0 and finite, got {value}.")
