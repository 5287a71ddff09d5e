"""Opacus's accountants, as the baseline: what it would add, and what it says is spent."""

from __future__ import annotations

import warnings
from typing import Any, Final

from lrdp.accounting import Budget

# Opacus's own 0.01 would leave σ up to 1% above what its accountants allow: finer, in its favour.
_TOLERANCE: Final = 1e-4
_FINER: Final[dict[str, dict[str, Any]]] = {"rdp": {}, "prv": {"eps_error": 1e-3}}


def least(sample_rate: float, steps: int, budget: Budget, accountant: str) -> float:
    """The σ of ``get_noise_multiplier`` for plain Poisson sampling."""
    from opacus.accountants.utils import get_noise_multiplier

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # at the edge of its grid of orders, which its search always visits
        found = get_noise_multiplier(
            target_epsilon=budget.epsilon,
            target_delta=budget.delta,
            sample_rate=sample_rate,
            steps=steps,
            accountant=accountant,
            epsilon_tolerance=_TOLERANCE,
            **_FINER[accountant],
        )
    return float(found)


def spent(noise_multiplier: float, sample_rate: float, steps: int, delta: float, accountant: str) -> float:
    """What Opacus says that so many steps cost."""
    from opacus.accountants import create_accountant

    books = create_accountant(mechanism=accountant)
    books.history = [(noise_multiplier, sample_rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(books.get_epsilon(delta=delta, **_FINER[accountant]))
