"""A folder that several machines share, proved to be one: the same files, and locks that hold between them.

On a Ray cluster any machine may answer for any client, so each must find the client's one ledger and its one lock. Two
copies of a folder would be two budgets.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from flwr.clientapp import ClientApp

from lrdp.errors import InvalidInput
from lrdp.version import __version__

_LOCKS: Final[Mapping[str, Callable[[IO[str], int], None]]] = {"flock": fcntl.flock, "lockf": fcntl.lockf}
"""Both kinds: a client's session is locked with the first, and SQLite locks ledgers with the second."""
_SECONDS: Final = 120.0
_KNOCK_SECONDS: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class MeetingPlace:
    """A folder in which whoever started a simulation wrote a word and holds two locks."""

    folder: Path
    word: str

    def confirm(self) -> str:
        """The version of this library, if this process sees the word and is kept out by both locks.

        Raises:
            InvalidInput: otherwise; what cannot be decided is refused.
        """
        for name, lock in _LOCKS.items():
            try:
                with self._file(name).open("r+", encoding="ascii") as file:
                    same = secrets.compare_digest(file.read(), self.word)
                    kept_out = same and _is_kept_out(lock, file)
            except OSError as problem:
                raise InvalidInput(f"{self.folder} cannot be read there ({problem.strerror}); {_REMEDY}") from None
            if not same:
                raise InvalidInput(f"{self.folder} is another folder there; {_REMEDY}")
            if not kept_out:
                raise InvalidInput(f"locks ({name}) in {self.folder} do not hold between machines; {_REMEDY}")
        return __version__

    def _file(self, name: str) -> Path:
        return self.folder / f"cluster-{name}"


_REMEDY: Final = (
    "two copies of a ledger would be two budgets, so nothing was run or spent: name a folder on a file system that all "
    "machines share, with locks."
)


def _is_kept_out(lock: Callable[[IO[str], int], None], file: IO[str]) -> bool:
    try:
        lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return True
    return False


@contextmanager
def meeting_place(folder: Path) -> Iterator[MeetingPlace]:
    """A new one in the folder; it is gone when the block ends."""
    folder.mkdir(parents=True, exist_ok=True)
    place = MeetingPlace(folder=folder.resolve(), word=secrets.token_hex(16))
    with ExitStack() as held:
        for name, lock in _LOCKS.items():
            path = place._file(name)
            file = held.enter_context(path.open("w", encoding="ascii"))
            held.callback(path.unlink, missing_ok=True)
            lock(file, fcntl.LOCK_EX)
            file.write(place.word)
            file.flush()
            os.fsync(file.fileno())
        yield place


@dataclass(frozen=True, kw_only=True)
class MadeAtMeetingPlace:
    """A recipe for machines that may have joined since the others were asked: each process checks for itself."""

    recipe: Callable[[Mapping[str, Any]], ClientApp]
    place: MeetingPlace

    def __call__(self, settings: Mapping[str, Any]) -> ClientApp:
        """The recipe's app, where the folder is the shared one."""
        self.place.confirm()
        return self.recipe(settings)


@contextmanager
def joined(address: str) -> Iterator[None]:
    """Connected to a Ray cluster that runs already, until the block ends.

    Raises:
        InvalidInput: where none answers.
    """
    import ray

    _knock(address)
    # Flower leaves a connection that is there as it is; its own would give the workers this path, too.
    path = os.pathsep.join(sys.path)
    try:
        ray.init(
            address=address,
            logging_level=logging.ERROR,
            log_to_driver=False,
            runtime_env={"env_vars": {"PYTHONPATH": path, **_told_to_workers()}},
        )
    except (ConnectionError, RuntimeError, ValueError) as problem:
        raise _no_cluster(address, str(problem).strip().split("\n")[0]) from None
    try:
        yield
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Where nobody listens, Ray would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    if address == "auto":
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError, ValueError) as problem:
        raise _no_cluster(address, str(problem)) from None


def _no_cluster(address: str, problem: str) -> InvalidInput:
    return InvalidInput(
        f"no Ray cluster can be joined at {address} ({problem}): start one with `ray start --head`, and name its "
        f"HOST:PORT, or `auto` on one of its machines. Nothing was run or spent."
    )


def _told_to_workers() -> dict[str, str]:
    """Workers on other machines have an environment of their own, but should be as quiet as this process."""
    names = ("FLWR_TELEMETRY_ENABLED", "FLWR_DISABLE_UPDATE_CHECK", "RAY_USAGE_STATS_ENABLED")
    return {name: os.environ[name] for name in names if name in os.environ}


def confirm_everywhere(place: MeetingPlace) -> int:
    """How many machines of the cluster can train; each sees the place, and has this version of the library.

    Raises:
        InvalidInput: if one does not, or does not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    everywhere: list[dict[str, Any]] = ray.nodes()
    nodes = [node for node in everywhere if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
    if not nodes:
        raise InvalidInput("no machine of the Ray cluster has a processor to spare: nothing was run or spent.")
    ask = ray.remote(num_cpus=0, max_retries=0)(MeetingPlace.confirm)
    for node in nodes:
        only_there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        try:
            version = ray.get(ask.options(scheduling_strategy=only_there).remote(place), timeout=_SECONDS)
        except Exception as problem:  # noqa: BLE001 — Ray wraps whatever was raised there
            raise InvalidInput(f"on {node['NodeManagerAddress']}: {_said(problem)}") from None
        if version != __version__:
            raise InvalidInput(
                f"on {node['NodeManagerAddress']} lrdp is {version}, here it is {__version__}: install the same "
                f"everywhere. Nothing was run or spent."
            )
    return len(nodes)


def _said(problem: Exception) -> str:
    """The last line of the error itself, or of what Ray made of it."""
    cause = getattr(problem, "cause", None) or problem
    return str(cause).strip().split("\n")[-1] or type(cause).__name__
