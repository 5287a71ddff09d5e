"""The memory of a client as it is in the field: the high-water mark of a guard that trains VGG11 on batches of 128."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord

from lrdp.accounting import Budget, Training
from lrdp.experiments.models.vgg11 import vgg11
from lrdp.federation import Consortium, InProcessGrid, LocalTask, Node, RoundReport, Terms, VerifiedAverage, found
from lrdp.federation.client.forwarding import guarded_client_app
from lrdp.training import CrossEntropy, Execution, TensorRecords

CLIENTS, RECORDS, BATCH, MICRO_BATCH = 3, 300, 128, 32
_TASK = '\n[task]\nmodule = "federation_guards:TASK"\n'


def _records(_settings: Mapping[str, Any]) -> TensorRecords:
    return TensorRecords(torch.randn(RECORDS, 3, 32, 32), torch.randint(0, 10, (RECORDS,)))


TASK = LocalTask(
    model=vgg11, dataset=_records, loss=CrossEntropy(classes=10), execution=Execution(micro_batch=MICRO_BATCH)
)


def guard_peak_mb() -> int:
    """The largest of three guards after two verified rounds of one step each."""
    budget = Budget(epsilon=8.0, delta=1e-5)
    training = Training(dataset_size=RECORDS - 1, batch_size=BATCH, rounds=2, local_steps=1, budget=budget)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        consortium = found(Path(folder) / "consortium", {f"client-{n}": training for n in range(CLIENTS)})
        guards = [_started(consortium, name, Path(folder), running) for name in consortium.names()]
        app = guarded_client_app()
        nodes = {1 + n: Node(app, {"guard": str(Path(folder) / f"client-{n}.sock")}) for n in range(CLIENTS)}
        terms = Terms(
            identity=consortium.server_identity(), registry=consortium.registry(), folder=consortium.server_folder
        )
        reports = list[RoundReport]()
        VerifiedAverage(terms, reports.append).start(InProcessGrid(nodes), ArrayRecord(vgg11().state_dict()), 2)
        if not all(report.verified for report in reports):
            raise RuntimeError(f"not verified: {reports}")
        return max(_high_water(guard.pid) for guard in guards) // 1024


def _started(consortium: Consortium, name: str, folder: Path, running: ExitStack) -> subprocess.Popen[bytes]:
    policy, socket = consortium.client(name).folder / "policy.toml", folder / f"{name}.sock"
    policy.write_text(policy.read_text() + _TASK)
    options = f"--policy {policy} --data {folder} --socket {socket} --code {Path(__file__).parent}"
    command = [str(Path(sys.executable).with_name("lrdp")), "guard", *options.split()]
    guard = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    running.callback(guard.wait)
    running.callback(guard.terminate)
    while not socket.exists():
        if guard.poll() is not None:
            raise RuntimeError(f"the guard of {name} ended with code {guard.returncode}: run {' '.join(command)}")
        time.sleep(0.1)
    return guard


def _high_water(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))
