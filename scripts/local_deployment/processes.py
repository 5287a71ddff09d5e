"""Processes that are started together and end together, whatever happens in between."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final

MARK: Final = "LRDP_LOCAL_DEPLOYMENT"
QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "PYTHONUNBUFFERED": "1",
    # Flower looks for new work once a second; everything is on this machine, so more often costs little.
    "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
}
_PATIENCE_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
_LINES_SHOWN: Final = 15


class DeploymentFailed(Exception):
    """One sentence for whoever started it, and where to look."""


class Processes:
    """A context manager: on its way out it ends every process that it started, and their children.

    Children that moved to sessions of their own are found by a mark in their environment.
    """

    def __init__(self, logs: Path) -> None:
        self._logs, self._mark = logs, uuid.uuid4().hex
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        logs.mkdir(parents=True, exist_ok=True)

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in reversed(self._running):
            self._signal(name, signal.SIGTERM)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for process in self._running.values():
            with suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, deadline - time.monotonic()))
        for name in list(self._running):
            self.kill(name)
        for number in self._marked():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(number, signal.SIGKILL)

    def start(self, name: str, command: Sequence[str], settings: Mapping[str, str] | None = None) -> None:
        """Start a process in a group of its own; what it prints goes to a log of the same name."""
        with self.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 — commands of this repository and of Flower
                [installed(command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._environment(settings),
                start_new_session=True,
            )

    def run(self, name: str, command: Sequence[str], settings: Mapping[str, str] | None = None) -> str:
        """Run a command to its end, and return what it printed."""
        done = subprocess.run(  # noqa: S603 — as above
            [installed(command[0]), *command[1:]],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self._environment(settings),
            check=False,
        )
        with self.log(name).open("a", encoding="utf-8") as log:
            log.write(done.stdout + done.stderr)
        if done.returncode:
            raise DeploymentFailed(f"`{' '.join(command)}` ended with code {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def kill(self, name: str) -> None:
        """SIGKILL for a process and its whole group: nobody is told, nothing is tidied up."""
        self._signal(name, signal.SIGKILL)
        self._running.pop(name).wait()

    def kill_all(self, *words: str) -> None:
        """The same for every process, children among them, whose command line and environment have all these words."""
        numbers = self._marked(words)
        for number in numbers:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        for name, process in list(self._running.items()):
            if process.pid in numbers:
                process.wait()  # a process that is dying still answers at its port
                del self._running[name]

    def wait(self, name: str, seconds: float) -> None:
        """Wait for a process to end, and raise if it ended with an error."""
        process = self._running[name]
        self.until(lambda: process.poll() is not None, seconds, f"{name} did not end", but=name)
        if process.returncode:
            raise DeploymentFailed(f"{name} ended with code {process.returncode}.\n{self.tail(name)}")

    def until(self, holds: Callable[[], bool], seconds: float, complaint: str, *, but: str = "") -> None:
        """Wait for something to hold, for as long as every process except ``but`` is alive."""
        deadline = time.monotonic() + seconds
        while not holds():
            for name, process in self._running.items():
                if name != but and process.poll() is not None:
                    raise DeploymentFailed(f"{name} ended with code {process.returncode}.\n{self.tail(name)}")
            if time.monotonic() > deadline:
                raise DeploymentFailed(f"{complaint} within {seconds} seconds: the logs are in {self._logs}.")
            time.sleep(_POLL_SECONDS)

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str) -> str:
        """The last lines of a log."""
        lines = self.log(name).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LINES_SHOWN:])

    def _environment(self, settings: Mapping[str, str] | None) -> dict[str, str]:
        # The commands of this environment come first, for those that Flower starts by their names.
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
        return {**os.environ, **QUIET, "PATH": path, **(settings or {}), MARK: self._mark}

    def _signal(self, name: str, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._running[name].pid, number)

    def _marked(self, words: Sequence[str] = ()) -> list[int]:
        """Those that were started here or by one of these, with all words in their command line or environment."""
        wanted, found = [f"{MARK}={self._mark}", *words], []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                said = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
                if all(word.encode() in said for word in wanted):
                    found.append(int(path.name))
        return [number for number in found if number != os.getpid()]


def installed(command: str) -> str:
    """A command of the environment that this Python belongs to."""
    path = Path(sys.executable).with_name(command)
    if not path.exists():
        raise DeploymentFailed(f"`{command}` is not installed beside {sys.executable}: install lrdp[flower].")
    return str(path)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now; held together, so that all are different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return ports


def refuse_taken(port: int) -> None:
    """Better one sentence now than a SuperLink that dies in its log."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as problem:
        raise DeploymentFailed(
            f"port {port} cannot be used ({problem.strerror}): name another with --port, or none for a free one."
        ) from None


def listens(port: int) -> bool:
    """Whether somebody answers there."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
