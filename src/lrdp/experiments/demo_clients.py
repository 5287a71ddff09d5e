"""The clients of the demonstration: each trains on its own digits, under its own policy, with its own ledger."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.codec import pack, unpack
from lrdp.experiments import digits
from lrdp.federation import Consortium, LocalTask, private_client_app
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.local.simulation import App, crashing
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Work, read_message
from lrdp.training import Execution, StepDone

_MOST_SECONDS: Final = 300


@dataclass(frozen=True, kw_only=True)
class DemoHospitals:
    """Makes the app of each; ``killed`` says whose process dies, and while training which of its updates."""

    folder: Path
    names: tuple[str, ...]
    killed: tuple[str, int] | None = None

    def __call__(self, settings: Mapping[str, Any]) -> App:
        """The app of the client with this ``partition-id``."""
        name = self.names[int(settings["partition-id"])]
        home = Consortium(folder=self.folder).client(name)
        app = private_client_app(
            policy=str(home.folder / "policy.toml"), model=digits.Net, dataset=digits.records, loss=digits.LOSS
        )
        if self.killed is None or self.killed[0] != name:
            return app
        doom = Doom(home=home, settings=(int(settings["partition-id"]), len(self.names)), update=self.killed[1])
        return crashing(app, doom)


@dataclass(frozen=True, kw_only=True)
class Doom:
    """One update of one client is trained in a process of its own, which is killed in the middle of it.

    Ray never replaces a worker that died, so it is not the worker itself.
    """

    home: ClientHome
    settings: tuple[int, int]
    update: int

    def __call__(self, frame: Frame) -> bool:
        """Whether the process was killed. The ledger, which outlives it, says how many updates were paid for."""
        if not isinstance(read_message(frame), Work) or self._paid() != self.update - 1:
            return False
        words = [sys.executable, "-m", __name__, str(self.home.folder), *map(str, self.settings)]
        message = pack(frame.prefix, *map(bytes, frame.bodies))
        ended = subprocess.run(words, input=message, capture_output=True, timeout=_MOST_SECONDS, check=False)  # noqa: S603
        return ended.returncode == -signal.SIGKILL

    def _paid(self) -> int:
        with closing(self.home.ledger()) as ledger:
            return len(ledger.books.charges.states)


def _die_half_way(done: StepDone) -> None:
    if 2 * done.step >= done.steps:
        os.kill(os.getpid(), signal.SIGKILL)


def _train_and_be_killed(folder: Path, number: int, count: int) -> None:
    """As any client, up to the middle of its training: the charge is on disk by then, the update is not."""
    task = LocalTask(
        model=digits.Net, dataset=digits.records, loss=digits.LOSS, execution=Execution(observe=_die_half_way)
    )
    bench = Workbench(task, {"partition-id": number, "num-partitions": count})
    prefix, *bodies = unpack(sys.stdin.buffer.read())
    Participant(ClientHome(folder=folder), bench).handle(Frame(prefix, tuple(bodies)))


if __name__ == "__main__":
    _train_and_be_killed(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
