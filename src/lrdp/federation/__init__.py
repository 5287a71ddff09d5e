"""Where they meet, on Flower: private, budgeted, verified rounds."""

from lrdp.federation.app import private_client_app
from lrdp.federation.consortium import Consortium, found
from lrdp.federation.in_process import InProcessGrid, Node
from lrdp.federation.orders import Order
from lrdp.federation.progress import RoundReport
from lrdp.federation.strategy import VerifiedAverage
from lrdp.federation.task import LocalTask
from lrdp.federation.terms import Terms, everybody

__all__ = [
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
    "private_client_app",
]
