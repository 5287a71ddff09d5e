"""A small machine: a process of its own with a hard limit on its memory, in which one library trains for some steps.

Run as ``python -m``, it reads what to do as JSON and answers with JSON. What ends it for want of memory is evidence;
anything else that ends it is an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from lrdp.errors import InvalidInput

_MOST_SECONDS: Final = 600
_OUT_OF_MEMORY: Final = (
    "MemoryError",
    "can't allocate memory",
    "cannot allocate memory",
    "failed to map",
    "OutOfReach",
)
_RATE, _CLIP, _SIGMA = 0.1, 1.0, 1.0  # of no consequence for memory


@dataclass(frozen=True, kw_only=True)
class MachineWay:
    """``library`` trains with ``micro_batch`` rows at a time, or all at once where that is 0.

    ``grad_sample_mode`` is Opacus's: ``hooks`` holds each record's gradient, ``ghost`` does not. Ours without
    ``micro_batch`` takes as many rows as the limit leaves room for.
    """

    library: str
    micro_batch: int = 0
    grad_sample_mode: str = "hooks"

    def __post_init__(self) -> None:
        if self.library not in _LIBRARIES:
            raise InvalidInput(
                f"library must be one of {', '.join(_LIBRARIES)}, got {self.library!r}: nothing was run."
            )


@dataclass(frozen=True, kw_only=True)
class MachineJob:
    """Train a network on the records of a file for some steps, within ``limit`` bytes, or without a limit if 0."""

    way: MachineWay
    inputs: str
    labels: str
    hidden: tuple[int, ...]
    batch_size: int
    steps: int
    limit: int


def attempt(job: MachineJob) -> dict[str, Any]:
    """Whether it ran, and what it took; raises InvalidInput where it ended for another reason than memory."""
    words = [sys.executable, "-m", __name__]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    ended = subprocess.run(  # noqa: S603
        words,
        input=json.dumps(asdict(job)),
        capture_output=True,
        text=True,
        env=environment,
        timeout=_MOST_SECONDS,
        check=False,
    )
    if ended.returncode == 0:
        return {"ran": True, **json.loads(ended.stdout.splitlines()[-1])}
    if job.limit and any(words in ended.stderr for words in _OUT_OF_MEMORY):
        return {"ran": False, "reason": ended.stderr.strip().splitlines()[-1][:200]}
    raise InvalidInput(f"{job.way} ended, and not for want of memory: {ended.stderr.strip()[-400:]}")


def _main() -> None:
    given = json.loads(sys.stdin.read())
    job = MachineJob(**{**given, "way": MachineWay(**given["way"]), "hidden": tuple(given["hidden"])})
    if job.limit:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (job.limit, job.limit))
    sys.stdout.write(json.dumps(_measured(job)) + "\n")


def _measured(job: MachineJob) -> dict[str, Any]:
    import warnings

    import numpy as np
    import torch

    from lrdp.experiments.hospitals.outcomes import network
    from lrdp.training import LiveBytes, return_large_blocks

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    return_large_blocks()  # the same for all: what is freed is given back
    inputs, labels = (torch.from_numpy(np.load(Path(path))) for path in (job.inputs, job.labels))
    model = network(inputs.shape[1], job.hidden, 2)
    weights = sum(parameter.nbytes for parameter in model.parameters())
    counted = LiveBytes()
    if job.limit:
        _LIBRARIES[job.way.library](job, model, (inputs, labels))
    else:
        with counted:
            _LIBRARIES[job.way.library](job, model, (inputs, labels))
    return {"live_bytes": counted.peak, "process_bytes": _most_bytes(), "weight_bytes": weights}


def _most_bytes() -> int:
    """The most memory that was resident at once, shared code included."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _ours(job: MachineJob, model: Any, records: tuple[Any, Any]) -> None:
    from lrdp.accounting import FixedSizeGaussian
    from lrdp.training import (
        CrossEntropy,
        Execution,
        PublicConstants,
        Sgd,
        Task,
        TensorRecords,
        unaccounted_private_update,
    )

    limit = f"{job.limit}B" if job.limit and not job.way.micro_batch else None
    task = Task(
        model=model,
        dataset=TensorRecords(*records),
        loss=CrossEntropy(classes=2),
        constants=PublicConstants(clip_norm=_CLIP, optimiser=Sgd(lr=_RATE)),
        execution=Execution(micro_batch=job.way.micro_batch or None, memory_limit=limit),
    )
    step = FixedSizeGaussian(dataset_size=len(records[0]), batch_size=job.batch_size, noise_multiplier=_SIGMA)
    unaccounted_private_update(step, job.steps, task)


def _opacus(job: MachineJob, model: Any, records: tuple[Any, Any]) -> None:
    from contextlib import nullcontext

    import torch
    from opacus import PrivacyEngine
    from opacus.utils.batch_memory_manager import BatchMemoryManager
    from torch.utils.data import DataLoader, TensorDataset

    ghost = job.way.grad_sample_mode == "ghost"
    criterion = torch.nn.CrossEntropyLoss()
    private, optimiser, *others = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), _RATE),
        data_loader=DataLoader(TensorDataset(*records), batch_size=job.batch_size),
        criterion=criterion,
        noise_multiplier=_SIGMA,
        max_grad_norm=_CLIP,
        grad_sample_mode=job.way.grad_sample_mode,
    )
    loss, loader = (others[0] if ghost else criterion), others[-1]
    rows = job.way.micro_batch
    pieces = BatchMemoryManager(data_loader=loader, max_physical_batch_size=rows, optimizer=optimiser)
    taken = 0
    while taken < job.steps:
        with pieces if rows else nullcontext(loader) as batches:
            for inputs, labels in batches:
                optimiser.zero_grad()
                loss(private(inputs), labels).backward()
                optimiser.step()
                taken += not (rows and optimiser._is_last_step_skipped)
                if taken == job.steps:
                    return


_LIBRARIES: Final[Mapping[str, Callable[[MachineJob, Any, tuple[Any, Any]], None]]] = {"lrdp": _ours, "opacus": _opacus}


if __name__ == "__main__":
    _main()
