"""The least noise that a way of sampling and accounting needs for a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from lrdp.accounting import (
    Adjacency,
    Budget,
    FixedSizeGaussian,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    SampledGaussian,
    TaylorAccountant,
    TruncatedPoissonGaussian,
    least_noise,
)
from lrdp.errors import InvalidInput
from lrdp.experiments.utility import opacus_noise


@dataclass(frozen=True, kw_only=True)
class NoiseTask:
    """A client's part in a training; ``parameters`` is how many coordinates get noise."""

    title: str
    setting: str
    records: int
    batch_size: int
    steps: int
    parameters: int
    assumed: str = ""


@dataclass(frozen=True, kw_only=True)
class NoiseWay:
    """How batches are drawn and who accounts for them."""

    sampling: str
    accountant: str
    cap_deviations: float = 0.0


@dataclass(frozen=True, kw_only=True)
class LeastNoise:
    """``spent`` is what the accountant says of the noise it was asked for; ``rows`` of 0 means no bound."""

    noise_multiplier: float
    spent: float
    rows: int
    cut_probability: float


def cap_for(task: NoiseTask, deviations: float) -> int:
    """This many standard deviations of a Poisson batch's size above what is expected."""
    rate = task.batch_size / task.records
    return math.ceil(task.batch_size + deviations * math.sqrt(task.batch_size * (1.0 - rate)))


def mechanism_for(task: NoiseTask, way: NoiseWay) -> SampledGaussian:
    """One step, with noise yet to be found."""
    return SAMPLINGS[way.sampling](task, way)


def noise_for(task: NoiseTask, way: NoiseWay, budget: Budget) -> LeastNoise:
    """The least that keeps the budget."""
    mechanism = mechanism_for(task, way)
    sigma, spent = ACCOUNTANTS[way.accountant](mechanism, task.steps, budget)
    cut = mechanism.cut_probability if isinstance(mechanism, TruncatedPoissonGaussian) else 0.0
    return LeastNoise(noise_multiplier=sigma, spent=spent, rows=mechanism.rows or 0, cut_probability=cut)


def in_clip_norms(task: NoiseTask, noise_multiplier: float, clients: int) -> float:
    """The expected length of the noise on the mean over all coordinates and clients, in clip norms: σ√d/(B√clients).

    The mean of clipped gradients is at most one clip norm long.
    """
    return noise_multiplier * math.sqrt(task.parameters / clients) / task.batch_size


KeptNoise = tuple[float, float]
"""A noise multiplier, and the ε that it comes to."""

Search = Callable[[SampledGaussian, int, Budget], KeptNoise]


def _own(accountant: RenyiAccountant | PldAccountant) -> Search:
    def search(mechanism: SampledGaussian, steps: int, budget: Budget) -> KeptNoise:
        found = least_noise(mechanism, steps, budget, accountant)
        return found.mechanism.noise_multiplier, found.spent.epsilon

    return search


def _opacus(kind: str) -> Search:
    def search(mechanism: SampledGaussian, steps: int, budget: Budget) -> KeptNoise:
        if not isinstance(mechanism, PoissonGaussian):
            raise InvalidInput(
                f"Opacus accounts for Poisson sampling only, got {mechanism.name}: what it would say of another is "
                f"no bound; nothing was run."
            )
        sigma = opacus_noise.least(mechanism.probability, steps, budget, kind, opacus_noise.USUAL)
        return sigma, opacus_noise.spent(sigma, mechanism.probability, steps, budget.delta, kind, opacus_noise.USUAL)

    return search


_USUAL: Final = Adjacency.ADD_REMOVE
ACCOUNTANTS: Final[Mapping[str, Search]] = {
    "rdp": _own(RenyiAccountant(adjacency=_USUAL)),
    "taylor": _own(TaylorAccountant(adjacency=_USUAL)),
    "pld": _own(PldAccountant(adjacency=_USUAL)),
    "opacus-rdp": _opacus("rdp"),
    "opacus-prv": _opacus("prv"),
}


def _fixed_size(task: NoiseTask, _: NoiseWay) -> SampledGaussian:
    return FixedSizeGaussian(dataset_size=task.records, batch_size=task.batch_size, noise_multiplier=1.0)


def _poisson(task: NoiseTask, _: NoiseWay) -> SampledGaussian:
    return PoissonGaussian(dataset_size=task.records, batch_size=task.batch_size, noise_multiplier=1.0)


def _truncated(task: NoiseTask, way: NoiseWay) -> SampledGaussian:
    cap = cap_for(task, way.cap_deviations)
    return TruncatedPoissonGaussian(
        dataset_size=task.records, batch_size=task.batch_size, cap=cap, noise_multiplier=1.0
    )


SAMPLINGS: Final[Mapping[str, Callable[[NoiseTask, NoiseWay], SampledGaussian]]] = {
    "fixed-size": _fixed_size,
    "poisson": _poisson,
    "truncated-poisson": _truncated,
}
