"""Where they meet, on Flower: private, budgeted, verified rounds.

Names are loaded when they are asked for: an app that only forwards to a guard starts without torch, and the guard
without Flower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lrdp.federation.requirements import require_flower

if TYPE_CHECKING:
    from lrdp.federation.app import private_client_app
    from lrdp.federation.asynchronous import BufferedAverage
    from lrdp.federation.consortium import Consortium, found
    from lrdp.federation.forwarding import guarded_client_app
    from lrdp.federation.in_process import InProcessGrid, Node
    from lrdp.federation.orders import Order
    from lrdp.federation.progress import RoundReport
    from lrdp.federation.strategy import VerifiedAverage
    from lrdp.federation.task import LocalTask
    from lrdp.federation.terms import Terms, everybody

__all__ = [
    "BufferedAverage",
    "Consortium",
    "InProcessGrid",
    "LocalTask",
    "Node",
    "Order",
    "RoundReport",
    "Terms",
    "VerifiedAverage",
    "everybody",
    "found",
    "guarded_client_app",
    "private_client_app",
]

_HOMES: Final = {
    "BufferedAverage": "asynchronous",
    "Consortium": "consortium",
    "InProcessGrid": "in_process",
    "LocalTask": "task",
    "Node": "in_process",
    "Order": "orders",
    "RoundReport": "progress",
    "Terms": "terms",
    "VerifiedAverage": "strategy",
    "everybody": "terms",
    "found": "consortium",
    "guarded_client_app": "forwarding",
    "private_client_app": "app",
}
_WITHOUT_FLOWER: Final = ("consortium", "orders", "progress", "task")


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it; raises InvalidInput where Flower is missing or too old."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home not in _WITHOUT_FLOWER:
        require_flower()
    return getattr(import_module(f"{__name__}.{home}"), name)
