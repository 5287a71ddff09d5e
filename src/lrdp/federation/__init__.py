"""Where they meet, on Flower: private, budgeted, verified rounds.

Names are loaded when they are asked for: an app that only forwards to a guard starts without torch, and the guard
without Flower.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from lrdp.federation.wire.requirements import require_flower

if TYPE_CHECKING:
    from lrdp.federation.client.app import private_client_app
    from lrdp.federation.client.forwarding import guarded_client_app
    from lrdp.federation.client.local_task import LocalTask
    from lrdp.federation.local.consortium import CommonRules, Consortium, found
    from lrdp.federation.local.in_process import InProcessGrid, Node
    from lrdp.federation.server.buffered import BufferedAverage
    from lrdp.federation.server.round_report import RoundReport
    from lrdp.federation.server.run_result import RunResult
    from lrdp.federation.server.schemes import ExactRounds, SketchRounds
    from lrdp.federation.server.strategy import VerifiedAverage
    from lrdp.federation.server.terms import Terms, everybody
    from lrdp.federation.wire.averaging import Averaging
    from lrdp.federation.wire.orders import Order

__all__ = [
    "Averaging",
    "BufferedAverage",
    "CommonRules",
    "Consortium",
    "ExactRounds",
    "InProcessGrid",
    "LocalTask",
    "Node",
    "Order",
    "RoundReport",
    "RunResult",
    "SketchRounds",
    "Terms",
    "VerifiedAverage",
    "everybody",
    "found",
    "guarded_client_app",
    "private_client_app",
]

_HOMES: Final = {
    "Averaging": "wire.averaging",
    "BufferedAverage": "server.buffered",
    "CommonRules": "local.consortium",
    "Consortium": "local.consortium",
    "ExactRounds": "server.schemes",
    "InProcessGrid": "local.in_process",
    "LocalTask": "client.local_task",
    "Node": "local.in_process",
    "Order": "wire.orders",
    "RoundReport": "server.round_report",
    "RunResult": "server.run_result",
    "SketchRounds": "server.schemes",
    "Terms": "server.terms",
    "VerifiedAverage": "server.strategy",
    "everybody": "server.terms",
    "found": "local.consortium",
    "guarded_client_app": "client.forwarding",
    "private_client_app": "client.app",
}
_WITHOUT_FLOWER: Final = (
    "local.consortium",
    "wire.model_averages",
    "wire.orders",
    "server.round_report",
    "client.local_task",
)


def __getattr__(name: str) -> Any:
    """A public name, from the module that has it; raises InvalidInput where Flower is missing or too old."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if home not in _WITHOUT_FLOWER:
        require_flower()
    return getattr(import_module(f"{__name__}.{home}"), name)
