"""Calibration: the least noise, the most steps, the quietest batch for a budget.

Formal guarantees: every answer is evaluated once more by the accountant asked for, and never exceeds the budget.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Generic, TypeVar

from lrdp import limits
from lrdp.accounting.accountants import Accountant, PrivacySpent, RenyiAccountant
from lrdp.accounting.mechanisms import Mechanism, SizedGaussian
from lrdp.errors import OutOfReach, Unsupported
from lrdp.figures import AtMost

AnyMechanism = TypeVar("AnyMechanism", bound=Mechanism)
AnySampled = TypeVar("AnySampled", bound=SizedGaussian)

_LEAST_NOISE, _START_NOISE, _MOST_NOISE = 1e-2, 64.0, 1e6
_TOLERANCE = 1e-5  # relative, on σ
_MOST_ROUNDS = 10**9


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What may be spent: (epsilon, delta).

    >>> Budget(epsilon=8, delta=1e-5)
    Budget(epsilon=8.0, delta=1e-05)
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        limits.keep(
            self,
            epsilon=limits.positive("epsilon", self.epsilon, "a budget of nothing allows no step"),
            delta=limits.open_unit("delta", self.delta, "it bounds the probability that the guarantee fails"),
        )


@dataclass(frozen=True, kw_only=True)
class Calibrated(Generic[AnyMechanism]):
    """A mechanism that keeps the budget, and what it really spends."""

    mechanism: AnyMechanism
    spent: PrivacySpent

    def __post_init__(self) -> None:
        limits.derived_from("mechanism", self.mechanism, Mechanism)
        limits.made_by("spent", self.spent, PrivacySpent)


def least_noise(
    mechanism: AnyMechanism, steps: int, budget: Budget, accountant: Accountant
) -> Calibrated[AnyMechanism]:
    """``mechanism`` with the smallest σ of six digits that keeps ``budget`` over ``steps`` steps, to two parts in 10⁵.

    Six digits, because σ is printed and copied: what people read is then the very number that was evaluated.

    >>> from lrdp.accounting import Adjacency, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.0)
    >>> budget, accountant = Budget(epsilon=8, delta=1e-5), RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    >>> found = least_noise(step, 1000, budget, accountant)
    >>> found.mechanism.noise_multiplier, found.spent.epsilon <= 8
    (1.70434, True)
    """
    _check_question(mechanism, budget, accountant)
    steps = limits.whole("steps", steps, 1, "zero steps need no noise")

    def excess(noise: float) -> float:
        return accountant.epsilon({mechanism.with_noise(noise): steps}, budget.delta).epsilon - budget.epsilon

    enough, too_little = _bracket_noise(excess, *_noise_to_try(mechanism, steps, budget, accountant))
    if too_little is not None:
        from scipy.optimize import brentq  # here: it takes a fifth of the time in which a command starts

        root = float(brentq(excess, too_little, enough, rtol=_TOLERANCE / 4, xtol=too_little * _TOLERANCE / 4))
        # The root may lie on either side: step up to the first that holds, never beyond what is known to hold.
        candidates = [float(str(AtMost(min(root * (1 + _TOLERANCE * up), enough)))) for up in (0.0, 0.25, 0.5, 1.0)]
        enough = next((noise for noise in candidates if excess(noise) <= 0), enough)
    quiet = mechanism.with_noise(enough)
    return Calibrated(mechanism=quiet, spent=accountant.epsilon({quiet: steps}, budget.delta))


def most_rounds(mechanism: Mechanism, steps_per_round: int, budget: Budget, accountant: Accountant) -> int:
    """The largest number of rounds of ``steps_per_round`` steps that keeps ``budget``; 0 if not even one does.

    >>> from lrdp.accounting import Adjacency, FixedSizeGaussian
    >>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=4.0)
    >>> most_rounds(step, 39, Budget(epsilon=8, delta=1e-5), RenyiAccountant(adjacency=Adjacency.ADD_REMOVE))
    333
    """
    _check_question(mechanism, budget, accountant)
    steps_per_round = limits.whole("steps per round", steps_per_round, 1, "a round without a step is no round")

    def fits(rounds: int) -> bool:
        history = {mechanism: rounds * steps_per_round}
        return accountant.epsilon(history, budget.delta).epsilon <= budget.epsilon

    low, high = 0, max(1, _scouted_rounds(mechanism, steps_per_round, budget, accountant))
    while fits(high):
        low, high = high, high * 2 if low == 0 else high + 2 * (high - low)
        if high > _MOST_ROUNDS:
            raise OutOfReach(
                f"more than {low} rounds keep epsilon={budget.epsilon}: with so much noise, they need no limit."
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def quietest_batch(
    with_batch: Callable[[int], AnySampled], largest: int, steps: int, budget: Budget, accountant: Accountant
) -> Calibrated[AnySampled]:
    """The batch size up to ``largest`` with the least noise on the mean at its own least σ.

    At equal noise on the mean the quietest batch is the one with the smallest ε, so candidates are compared without
    calibrating each of them.

    >>> from functools import partial
    >>> from lrdp.accounting import Adjacency, PoissonGaussian, PublicSizes
    >>> batches = partial(PoissonGaussian.drawing, sizes=PublicSizes(dataset_size=5000))
    >>> accountant = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
    >>> quietest_batch(batches, 128, 1000, Budget(epsilon=8, delta=1e-5), accountant).mechanism.batch_size
    128
    """
    limits.derived_from("with_batch", with_batch, Callable)  # type: ignore[arg-type]
    largest = limits.whole("largest batch", largest, 1, "an empty batch trains nothing")
    start = least_noise(with_batch(max(1, largest * 3 // 4)), steps, budget, accountant).mechanism

    @cache
    def epsilon(batch_size: int) -> float:
        step = with_batch(batch_size)
        return accountant.epsilon({step.with_noise(start.noise_on_mean * step.normaliser): steps}, budget.delta).epsilon

    best = largest
    if largest > 1:
        from scipy.optimize import minimize_scalar

        found = minimize_scalar(lambda size: epsilon(round(size)), bounds=(1, largest), options={"xatol": 0.5})
        best = min((round(found.x), largest), key=epsilon)
    return least_noise(with_batch(best), steps, budget, accountant)


def _check_question(mechanism: Mechanism, budget: Budget, accountant: Accountant) -> None:
    limits.derived_from("mechanism", mechanism, Mechanism)
    limits.made_by("budget", budget, Budget)
    limits.derived_from("accountant", accountant, Accountant)  # type: ignore[type-abstract]


def _noise_to_try(mechanism: Mechanism, steps: int, budget: Budget, accountant: Accountant) -> tuple[float, float]:
    """A σ to start from and the factor to step by: close around Rényi's answer where it has one.

    The search comes from above, because loss distributions explode at small σ.
    """
    scout = RenyiAccountant(adjacency=accountant.adjacency)
    if accountant == scout:
        return _START_NOISE, 2.0
    try:
        return least_noise(mechanism, steps, budget, scout).mechanism.noise_multiplier, 1.25
    except Unsupported:
        return _START_NOISE, 2.0


def _scouted_rounds(mechanism: Mechanism, steps_per_round: int, budget: Budget, accountant: Accountant) -> int:
    scout = RenyiAccountant(adjacency=accountant.adjacency)
    if accountant == scout:
        return 1
    try:
        return most_rounds(mechanism, steps_per_round, budget, scout)
    except Unsupported:
        return 1


def _bracket_noise(excess: Callable[[float], float], start: float, factor: float) -> tuple[float, float | None]:
    """(σ that keeps the budget, smaller σ that breaks it or None)."""
    enough = start
    while excess(enough) > 0:
        enough *= 2
        if enough > _MOST_NOISE:
            raise OutOfReach(
                f"no noise multiplier up to {_MOST_NOISE} keeps this budget: take fewer steps, a larger epsilon or a "
                f"larger delta."
            )
    while enough > _LEAST_NOISE:
        smaller = enough / factor
        if excess(smaller) > 0:
            return enough, smaller
        enough = smaller
    return enough, None
