"""A whole federation on one machine, in Flower's Ray simulation or within one process, or on a Ray cluster.

The same strategy and the same client apps run in all; in Ray each client is trained in another process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Error, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid, ServerApp
from numpy.typing import NDArray

from lrdp.errors import LrdpError
from lrdp.federation.local.cluster import MadeAtMeetingPlace, confirm_everywhere, joined, meeting_place
from lrdp.federation.local.in_process import InProcessGrid, Node
from lrdp.federation.server.strategy import VerifiedAverage
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.frames import Frame

NamedArrays = Mapping[str, NDArray[np.float32]]
App = ClientApp
MakeApp = Callable[[Mapping[str, Any]], App]
"""Makes the app of the node with these settings. It is hashable, and can be pickled."""

_LOGGERS: Final = ("flwr", "ray", "lrdp")
_OBJECT_STORE_BYTES: Final = 128 << 20  # Ray would reserve a third of the memory; messages here are small
_MOST_APPS: Final = 256
_PULL_SECONDS: Final = 0.05


@dataclass(frozen=True, kw_only=True, eq=False)
class Federation:
    """Who serves, who answers, from which first model, and for how many attempts at a round.

    ``evaluate`` is told the parameters before the first attempt and after each. ``log`` is a folder.
    """

    strategy: VerifiedAverage
    recipe: MakeApp
    nodes: int
    parameters: NamedArrays
    rounds: int
    evaluate: Callable[[int, NamedArrays], None]
    log: Path
    timeout: float = 1200.0

    def serve(self, grid: Grid) -> None:
        """The server's part."""

        def evaluate(attempt: int, arrays: ArrayRecord) -> MetricRecord | None:
            self.evaluate(attempt, {name: array.numpy() for name, array in arrays.items()})
            return None

        first = ArrayRecord({name: Array(values) for name, values in self.parameters.items()})
        self.strategy.start(grid, first, num_rounds=self.rounds, timeout=self.timeout, evaluate_fn=evaluate)


class MadeInPlace(ClientApp):
    """An app that travels to other processes as a recipe, and is made there once for each node.

    A finished app has data, models and caches, which should not be pickled with every message, and cannot be.
    """

    def __init__(self, recipe: MakeApp, log: Path) -> None:
        super().__init__()
        self._recipe, self._log = recipe, log

    def __call__(self, message: Message, context: Context) -> Message:
        """Make the app, if it is not there yet, and let it answer."""
        return _made(self._recipe, tuple(sorted(context.node_config.items())), self._log)(message, context)


@lru_cache(maxsize=_MOST_APPS)
def _made(recipe: MakeApp, settings: tuple[tuple[str, Any], ...], log: Path) -> ClientApp:
    _keep_client_log(log)
    return recipe(dict(settings))


@lru_cache(maxsize=_MOST_APPS)
def _keep_client_log(log: Path) -> None:
    """What clients say goes to a file of its own; once in each process."""
    logger = logging.getLogger("lrdp.client")
    logger.addHandler(_file(log / "clients.log"))
    logger.propagate = False


def crashing(app: ClientApp, crashes: Callable[[Frame], bool]) -> ClientApp:
    """An app whose process is gone where ``crashes`` says so: Flower answers in its place, as a SuperNode does."""
    fragile = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        if not crashes(from_message(message)):
            return app(message, context)
        return Message(Error(ErrorCode.CLIENT_APP_CRASHED, "the process has ended"), reply_to=message)

    fragile.train()(answer)
    fragile.query()(answer)
    return fragile


def in_one_process(federation: Federation) -> None:
    """Clients answer one after the other, here."""
    app = MadeInPlace(federation.recipe, federation.log)
    settings = [{"partition-id": number, "num-partitions": federation.nodes} for number in range(federation.nodes)]
    with _log_kept_in(federation.log):
        federation.serve(InProcessGrid({1 + number: Node(app, given) for number, given in enumerate(settings)}))


def in_ray(federation: Federation, *, cores: int = 2) -> None:
    """Clients answer in ``cores`` other processes, which Ray starts: about ten seconds."""
    # A cluster that happens to run on this machine is somebody else's: Ray would join it, unless told not to.
    _simulated(federation, {"address": "local", "num_cpus": cores, "object_store_memory": _OBJECT_STORE_BYTES})


def in_ray_cluster(federation: Federation, *, address: str) -> None:
    """Clients answer on the machines of a Ray cluster that runs at ``address``: any machine for any client.

    Raises:
        InvalidInput: where no cluster can be joined, or the machines do not share the folder of the logs, with locks.
            Consortium and logs must be in one folder.
    """
    with meeting_place(federation.log) as place, joined(address):
        confirm_everywhere(place)
        _simulated(replace(federation, recipe=MadeAtMeetingPlace(recipe=federation.recipe, place=place)), {})


def _simulated(federation: Federation, started_with: Mapping[str, Any]) -> None:
    """Flower's simulation, on a Ray that is started with these arguments, unless this process is connected to one."""
    from flwr.simulation import run_simulation

    server, stopped, failed = ServerApp(), threading.Event(), list[LrdpError]()

    @server.main()
    def _main(grid: Grid, _context: Context) -> None:
        try:
            federation.serve(_Stoppable(grid, stopped))
        except LrdpError as problem:  # Flower would raise an error of its own, without these words
            failed.append(problem)

    resources: dict[str, Any] = {
        "init_args": {**started_with, "logging_level": "ERROR", "log_to_driver": False},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    with _log_kept_in(federation.log):
        try:
            run_simulation(
                server_app=server,
                client_app=MadeInPlace(federation.recipe, federation.log),
                num_supernodes=federation.nodes,
                backend_config=resources,
            )
        finally:
            stopped.set()
    for problem in failed:
        raise problem


class Stopped(LrdpError):
    """The simulation was stopped while its server waited for answers."""


class _Stoppable(Grid):
    """Flower's server waits in a thread of its own for clients that an interrupt has already taken away."""

    def __init__(self, grid: Grid, stopped: threading.Event) -> None:
        self._grid, self._stopped = grid, stopped

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        """Flower's run."""
        return self._grid.run

    def create_message(self, *_: Any, **__: Any) -> NoReturn:
        """Deprecated in Flower: make a Message."""
        raise NotImplementedError

    def get_node_ids(self) -> Iterable[int]:
        return self._grid.get_node_ids()

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Ask, and look for answers until all are there, or the time or the simulation is over."""
        waiting, replies = set(self.push_messages(messages)), list[Message]()
        deadline = time.monotonic() + (np.inf if timeout is None else timeout)
        while waiting and time.monotonic() < deadline:
            if self._stopped.wait(_PULL_SECONDS):
                raise Stopped("the simulation was stopped.")
            here = list(self.pull_messages(waiting))
            waiting -= {reply.metadata.reply_to_message_id for reply in here}
            replies += here
        return replies


@contextmanager
def _log_kept_in(folder: Path) -> Iterator[None]:
    """What Flower, Ray and the server have to say goes to a file instead of the screen, until the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    handler = _file(folder / "server.log")
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.propagate = handlers, propagate
            logger.setLevel(level)
        handler.close()


def _file(path: Path) -> logging.Handler:
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    return handler
