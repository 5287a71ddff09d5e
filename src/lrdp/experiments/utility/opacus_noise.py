"""Opacus's accountants, as the baseline: what it would add, and what it says is spent."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Final

from lrdp.accounting import Budget


@dataclass(frozen=True)
class Fineness:
    """How closely ε is met, and how closely PRV computes it."""

    tolerance: float
    prv_error: float

    def options(self, accountant: str) -> dict[str, float]:
        return {"eps_error": self.prv_error} if accountant == "prv" else {}


USUAL: Final = Fineness(tolerance=1e-3, prv_error=0.01)
"""Opacus's own error, which costs it up to 0.5% of σ; thousands of steps take minutes otherwise."""
FINE: Final = Fineness(tolerance=1e-4, prv_error=1e-3)
"""In its favour."""


def least(sample_rate: float, steps: int, budget: Budget, accountant: str, fineness: Fineness | None = None) -> float:
    """The σ of ``get_noise_multiplier`` for plain Poisson sampling."""
    from opacus.accountants.utils import get_noise_multiplier

    closely = fineness or FINE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at the edge of its grid of orders, which its search always visits
        found = get_noise_multiplier(
            target_epsilon=budget.epsilon,
            target_delta=budget.delta,
            sample_rate=sample_rate,
            steps=steps,
            accountant=accountant,
            epsilon_tolerance=closely.tolerance,
            **closely.options(accountant),
        )
    return float(found)


def spent(
    noise_multiplier: float,
    sample_rate: float,
    steps: int,
    delta: float,
    accountant: str,
    fineness: Fineness | None = None,
) -> float:
    """What Opacus says that this many steps cost."""
    from opacus.accountants import create_accountant

    books = create_accountant(mechanism=accountant)
    books.history = [(noise_multiplier, sample_rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(books.get_epsilon(delta=delta, **(fineness or FINE).options(accountant)))
