"""Private federated learning that a hospital or a bank can trust.

What a Flower user, a researcher and an auditor each need first; the rooms have the rest. Names are loaded when they are
asked for, so whoever recomputes an ε needs neither torch nor Flower.

>>> from lrdp import Adjacency, Budget, FixedSizeGaussian, PldAccountant, least_noise
>>> step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.0)
>>> found = least_noise(step, 1000, Budget(epsilon=8, delta=1e-5), PldAccountant(adjacency=Adjacency.ADD_REMOVE))
>>> f"{found.mechanism.noise_multiplier:.2f}"
'1.63'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lrdp.version import __version__

if TYPE_CHECKING:
    from lrdp.accounting import (
        Adjacency,
        Budget,
        FixedSizeGaussian,
        PldAccountant,
        TruncatedPoissonGaussian,
        least_noise,
    )
    from lrdp.errors import LrdpError
    from lrdp.federation import Terms, VerifiedAverage, guarded_client_app, private_client_app
    from lrdp.ledger import Ledger, verify_export


__all__ = [
    "Adjacency",
    "Budget",
    "FixedSizeGaussian",
    "Ledger",
    "LrdpError",
    "PldAccountant",
    "Terms",
    "TruncatedPoissonGaussian",
    "VerifiedAverage",
    "__version__",
    "guarded_client_app",
    "least_noise",
    "private_client_app",
    "verify_export",
]
_ROOMS: Final = {
    **dict.fromkeys(("private_client_app", "guarded_client_app", "VerifiedAverage", "Terms"), "federation"),
    **dict.fromkeys(("FixedSizeGaussian", "TruncatedPoissonGaussian", "PldAccountant"), "accounting"),
    **dict.fromkeys(("Adjacency", "Budget", "least_noise"), "accounting"),
    **dict.fromkeys(("Ledger", "verify_export"), "ledger"),
    "LrdpError": "errors",
}


def __getattr__(name: str) -> Any:
    """A public name, from the room that has it."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
