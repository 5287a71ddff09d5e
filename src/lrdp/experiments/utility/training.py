"""One training: ten clients, some rounds, and how well the averaged last models do."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any

import numpy as np
import torch

from lrdp.experiments.study import Cell, Places
from lrdp.experiments.utility.averaging import Researcher, Turns, averaged
from lrdp.experiments.utility.engines import ENGINES, Desk, UpdateEngine, constants
from lrdp.experiments.utility.mechanisms import part, step_of
from lrdp.experiments.utility.shares import Holdings, holdings
from lrdp.experiments.utility.trainees import accuracy
from lrdp.federation.wire.layout import Layout
from lrdp.integrity import MODEL, Model
from lrdp.training import Execution, ObserveStep, Task, check_gradients, silence


@dataclass(frozen=True, kw_only=True)
class Trained:
    """The public models after each round, and how many coordinates of updates the fixed point cut."""

    models: Sequence[Model]
    clipped: int

    @property
    def digest(self) -> str:
        """Of all models: equal if and only if they are, bit for bit."""
        return sha256(b"".join(model.tobytes() for model in self.models)).hexdigest()


def trained(cell: Cell, places: Places) -> dict[str, Any]:
    """What comes out of a cell of training; the test set is looked at where the cell says so."""
    begun = time.monotonic()
    torch.set_num_threads(1)  # sums over several threads are rounded differently
    held = holdings(cell, places)
    run = run_in_process(cell, held)
    return {**judged(cell, held, run), "seconds": round(time.monotonic() - begun, 2)}


def judged(cell: Cell, held: Holdings, run: Trained) -> dict[str, Any]:
    """Accuracies of the average of the last fifth of the models: a function of what is public anyway."""
    model = held.trainee.model()
    Layout.of_model(model).write(tail_average(run.models), model)
    found: dict[str, Any] = {"validation": accuracy(held.trainee, model, held.data.validation)}
    if cell["tested"]:
        found |= {"test": accuracy(held.trainee, model, held.data.test), "tested": len(held.data.test.labels)}
    return {**found, "clipped": run.clipped, "models_sha256": run.digest}


def tail_average(models: Sequence[Model]) -> Model:
    """The mean of the last fifth, and of at least one."""
    last = models[-math.ceil(len(models) / 5) :]
    return np.asarray(np.mean(last, axis=0, dtype=np.float64), MODEL)


def run_in_process(
    cell: Cell, held: Holdings, turns: Turns | None = None, *, observe: ObserveStep = silence
) -> Trained:
    """The rounds of a cell, in Flower's messages but without ledgers; ``observe`` is told of every client's steps."""
    task = Task(
        model=held.trainee.model(),
        dataset=held.clients[0],
        loss=held.trainee.loss,
        constants=constants(cell["rate"], cell["clip_norm"], cell.values.get("gamma", 0.0)),
        execution=Execution(micro_batch=cell["micro_batch"] or None, observe=observe),
        probes=held.trainee.probes,
    )
    if cell["private"]:  # once for all clients and rounds: what is checked is the code, not weights or records
        task = replace(task, checked=check_gradients(step_of(cell["mechanism"]), task))
    desks = [
        Desk(
            task=replace(task, dataset=records),
            mechanism=cell["mechanism"],
            rate=cell["rate"],
            steps=cell["local_steps"],
            seed=cell["seed"],
            client=number,
        )
        for number, records in enumerate(held.clients)
    ]
    return run_desks(desks, part(ENGINES, cell["engine"], "engine"), cell["rounds"], turns)


def run_desks(desks: Sequence[Desk], engine: UpdateEngine, rounds: int, turns: Turns | None = None) -> Trained:
    """Rounds among clients that have the same model; everything else is their own."""
    model = desks[0].task.model
    layout = Layout.of_model(model)
    first = layout.flat(dict(model.named_parameters()))
    clients = [Researcher(desk=desk, engine=engine, layout=layout) for desk in desks]
    models = list(averaged(clients, first, rounds, turns))
    return Trained(models=models, clipped=sum(client.clipped for client in clients))
