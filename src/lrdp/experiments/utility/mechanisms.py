"""From a method's parts to the mechanism of one step: which batch, which cap, and which noise."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from lrdp.accounting import (
    Accountant,
    Adjacency,
    Budget,
    FixedSizeGaussian,
    PldAccountant,
    RenyiAccountant,
    SampledGaussian,
    TruncatedPoissonGaussian,
    least_noise,
)
from lrdp.errors import InvalidInput
from lrdp.experiments.utility import opacus_noise
from lrdp.figures import AtMost

Part = TypeVar("Part")
_ADJACENCY: Final = Adjacency.ADD_REMOVE
OWN: Final[dict[str, Accountant]] = {
    "rdp": RenyiAccountant(adjacency=_ADJACENCY),
    "pld": PldAccountant(adjacency=_ADJACENCY),
}
_OPACUS: Final = {"opacus-rdp": "rdp", "opacus-prv": "prv"}
NONE: Final = "none"
_FITTING: Final[dict[str, int]] = {"fixed-size": 1, "truncated-poisson": -1}
"""A public size must leave a record to spare, below the true one or above it."""


def check_parts(sampling: str, accountant: str) -> None:
    """Refuse names that stand for nothing."""
    part(_FITTING, sampling, "sampling")
    part({**dict.fromkeys(OWN), **_OPACUS, NONE: None}, accountant, "accountant")


def records_held(sampling: str, dataset_size: int) -> int:
    """How many records a client with this stated public size has, so that a neighbour would be trained on too.

    The public size, and with it σ, is the same for every method: what differs is one record above or below it.
    """
    return dataset_size + part(_FITTING, sampling, "sampling")


def step_of(given: Mapping[str, Any]) -> SampledGaussian:
    """The mechanism that a cell describes."""
    sizes = {name: given[name] for name in ("dataset_size", "batch_size")}
    makers: dict[str, Callable[[], SampledGaussian]] = {
        "fixed-size": lambda: FixedSizeGaussian(**sizes, noise_multiplier=given["noise_multiplier"]),
        "truncated-poisson": lambda: TruncatedPoissonGaussian(
            **sizes, cap=_cap(given), noise_multiplier=given["noise_multiplier"]
        ),
    }
    return part(makers, given["sampling"], "sampling")()


def _cap(given: Mapping[str, Any]) -> int:
    batch_size, deviations = int(given["batch_size"]), float(given["cap_deviations"])
    return math.ceil(batch_size + deviations * math.sqrt(batch_size))


def calibrated(given: Mapping[str, Any]) -> dict[str, Any]:
    """The least noise for a cell's budget, and what is then spent by its own accountant and by both of ours."""
    start, steps = step_of({**given, "noise_multiplier": 1.0}), given["steps"]
    budget = Budget(epsilon=given["epsilon"], delta=given["delta"])
    cut = start.cut_probability if isinstance(start, TruncatedPoissonGaussian) else 0.0
    if cut > given["most_cut"]:
        raise InvalidInput(
            f"a cap of {start.rows} rows cuts with probability {AtMost(cut):.1e}, and at most {given['most_cut']} is "
            f"asked for: take more cap_deviations; nothing was run."
        )
    noise, own = _least(start, steps, budget, given["accountant"])
    if given["decimals"]:
        noise = math.ceil(round(noise * 10 ** given["decimals"], 6)) / 10 ** given["decimals"]
        own = spent(start.with_noise(noise), steps, given["delta"], given["accountant"])
    quiet = start.with_noise(noise)
    return {
        "noise_multiplier": noise,
        "rows": quiet.rows,
        "cut_probability": cut,
        "epsilon_own": own,
        "epsilon_rdp": spent(quiet, steps, given["delta"], "rdp"),
        "epsilon_pld": spent(quiet, steps, given["delta"], "pld"),
    }


def _least(start: SampledGaussian, steps: int, budget: Budget, accountant: str) -> tuple[float, float]:
    if accountant in _OPACUS:
        noise = opacus_noise.least(start.probability, steps, budget, _OPACUS[accountant])
        return noise, spent(start.with_noise(noise), steps, budget.delta, accountant)
    found = least_noise(start, steps, budget, part(OWN, accountant, "accountant"))
    return found.mechanism.noise_multiplier, found.spent.epsilon


def spent(step: SampledGaussian, steps: int, delta: float, accountant: str) -> float:
    """What this many steps cost by one accountant. Opacus's takes them for plain Poisson, and knows of no cap."""
    if accountant in _OPACUS:
        return opacus_noise.spent(step.noise_multiplier, step.probability, steps, delta, _OPACUS[accountant])
    return part(OWN, accountant, "accountant").epsilon({step: steps}, delta).epsilon


def part(parts: Mapping[str, Part], name: str, what: str) -> Part:
    """The entry of this name; raises InvalidInput where there is none."""
    if name not in parts:
        raise InvalidInput(f"{what} must be one of {', '.join(parts)}, got {name!r}: nothing was run.")
    return parts[name]
