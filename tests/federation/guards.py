"""A client's folder with code and data of its own, and a guard over it: as a thread here, or as a process."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from lrdp.federation import Consortium, found
from lrdp.federation.client.guard import Guard, Ward, inspected
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.watching import GuardWatch
from lrdp.federation.wire.sockets import listening
from lrdp.training import CrossEntropy

from .worlds import TRAINING, hospitals, model, records

TASK = """
from pathlib import Path
import torch
from torch import nn
from lrdp.federation import LocalTask
from lrdp.training import CrossEntropy, TensorRecords

def records(settings):
    labels = torch.tensor([int(word) for word in Path(settings["data"]).read_text().split()])
    source = torch.Generator().manual_seed(settings.get("seed", 0))
    return TensorRecords(torch.randn(len(labels), 4, generator=source) + 2.0 * labels[:, None], labels)

task = LocalTask(model=lambda: nn.Linear(4, 2), dataset=records, loss=CrossEntropy(classes=2))

def make():
    return task

number = 3
def broken():
    raise RuntimeError("no licence")
"""


@dataclass(frozen=True)
class Site:
    """One hospital of a consortium, set up to be guarded."""

    consortium: Consortium
    name: str

    @property
    def home(self) -> ClientHome:
        return self.consortium.client(self.name)

    @property
    def folder(self) -> Path:
        return self.home.folder

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def data(self) -> Path:
        return self.folder / "labels.txt"

    @property
    def socket(self) -> Path:
        return self.consortium.folder / f"{self.name}.sock"

    def command(self, *more: str) -> list[str]:
        paths = ["--policy", str(self.policy), "--data", str(self.data), "--socket", str(self.socket)]
        return [sys.executable, "-m", "lrdp", "guard", *paths, *more]

    def set(self, old: str, new: str) -> None:
        text = self.policy.read_text(encoding="utf-8")
        assert old in text
        self.policy.write_text(text.replace(old, new), encoding="utf-8")


def site(folder: Path, name: str = "hospital-0", task: str = "local_task:task") -> Site:
    made = Site(found(folder / "consortium", dict.fromkeys(hospitals(3), TRAINING)), name)
    made.data.write_text("0\n1\n" * 60, encoding="ascii")
    (made.folder / "local_task.py").write_text(TASK, encoding="utf-8")
    with made.policy.open("a", encoding="utf-8") as file:
        file.write(f'\n[task]\nmodule = "{task}"\n')
    made.folder.chmod(0o700)
    return made


@contextmanager
def guarding(home: ClientHome, path: Path, number: int = 0, patience: float = 5.0) -> Iterator[None]:
    """A guard in a thread, over the records of :mod:`worlds`."""
    task = LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2))
    bench, _ = inspected(Ward(home=home, task=task, settings={"partition-id": number}))
    told, tell = socket.socketpair()
    with closing(told), closing(tell), listening(path) as listener:
        participant = Participant(home, bench)
        guard = Guard(home, participant, GuardWatch(home, participant), patience)
        thread = Thread(target=guard.serve, args=(listener, told))
        thread.start()
        try:
            yield
        finally:
            tell.send(b"!")
            thread.join()


@contextmanager
def running(command: Sequence[str], **options: object) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, once it has said on stderr or stdout that it guards; that line; killed at the end."""
    kept = {"env": {**os.environ, "OMP_NUM_THREADS": "1"}, **options}
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **kept,  # type: ignore[call-overload]
    ) as process:
        try:
            yield process, _first_line(process)
        finally:
            process.kill()


def _first_line(process: subprocess.Popen[str]) -> str:
    said = []
    for line in process.stdout or ():
        said.append(line)
        if "guarding" in line:
            return line
    raise AssertionError("".join(said))
