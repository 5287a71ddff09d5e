"""The same training with everything that real clients have: policies, ledgers, tags, and processes of their own.

Only the randomness is the study's: where a participant would ask the operating system, a client of a study derives its
keys from the study's seed. So the models must be equal to those of the cheap way, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import torch

from lrdp.accounting import Budget, Training
from lrdp.errors import InvalidInput
from lrdp.experiments.study import Cell, Places
from lrdp.experiments.utility.plan import NAME
from lrdp.experiments.utility.shares import Holdings, holdings
from lrdp.experiments.utility.training import Trained, judged
from lrdp.federation import Consortium, LocalTask, Order, Terms, VerifiedAverage, found
from lrdp.federation.client.local_task import Workbench, prepare_process
from lrdp.federation.client.participant import Participant
from lrdp.federation.client.paying import MakeUpdate
from lrdp.federation.local.simulation import App, Federation, NamedArrays, in_ray
from lrdp.federation.wire.flower import answering
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.layout import Layout
from lrdp.integrity import Model
from lrdp.ledger import Receipt
from lrdp.training import Dataset, Task, Update
from lrdp.training.research import seeded_randomness, seeded_update

Run = Callable[[Federation], None]
_ABLE: Final = "fixed-size"  # what `found` writes into policies


def seeded(seed: int, client: int) -> MakeUpdate:
    """The updates of a client that pays, checks and signs like any other, with noise that can be repeated."""

    def make(receipt: Receipt, task: Task) -> Update:
        number = task.constants.first_step // receipt.steps  # the steps of earlier rounds are counted there
        return seeded_update(receipt, task, seeded_randomness(seed, client, number))

    return make


@dataclass(frozen=True, kw_only=True)
class Clients:
    """Makes the app of each; ``cell`` is JSON, so that it can be hashed and travels to other processes."""

    folder: Path
    cell: str
    places: Places

    def __call__(self, settings: Mapping[str, Any]) -> App:
        """The app of the client with this ``partition-id``."""
        torch.set_num_threads(1)
        cell, number = Cell(NAME, json.loads(self.cell)), int(settings["partition-id"])
        held = holdings(cell, self.places)
        task = LocalTask(
            model=held.trainee.model,
            dataset=partial(_records, held, number),
            loss=held.trainee.loss,
            probes=held.trainee.probes,
        )
        prepare_process(task)
        home = Consortium(folder=self.folder).client(name_of(number))
        client = Participant(home, Workbench(task, settings), seeded(cell["seed"], number))

        def handle(given: Frame, _context: Any) -> Frame:
            return client.handle(given)

        return answering(handle)


def _records(held: Holdings, number: int, _settings: Mapping[str, Any]) -> Dataset:
    return held.clients[number].dataset


def name_of(number: int) -> str:
    """A client's name in the registry."""
    return f"client-{number}"


@dataclass
class _ModelWatch:
    """Keeps the verified models."""

    layout: Layout
    models: list[Model] = field(default_factory=list)

    def evaluate(self, attempt: int, parameters: NamedArrays) -> None:
        if attempt:
            self.models.append(self.layout.flat(parameters))


def verified(cell: Cell, places: Places, run: Run = in_ray) -> dict[str, Any]:
    """The accuracy, and what each ledger says was spent.

    Raises:
        InvalidInput: where the models differ from those of the cheap way in a single bit.
    """
    held = holdings(cell, places)
    with TemporaryDirectory(prefix="lrdp-utility-") as folder:
        trained, spent = run_with_ledgers(cell, places, held, Path(folder), run)
    if trained.digest != cell["expected"]:
        raise InvalidInput(
            f"with ledgers, tags and processes of their own {cell['task']}'s models are not those of the study's grid "
            f"({trained.digest[:16]} instead of {cell['expected'][:16]}): one of the two does not train as it says."
        )
    return {**judged(cell, held, trained), "epsilon_ledgers": max(spent), "verified_rounds": len(trained.models)}


def run_with_ledgers(cell: Cell, places: Places, held: Holdings, folder: Path, run: Run) -> tuple[Trained, list[float]]:
    """The verified models, and each client's ε as its ledger has it."""
    names = [name_of(number) for number in range(cell["clients"])]
    consortium = found(folder / "consortium", dict.fromkeys(names, _training(cell)))
    _check_noise(cell, consortium)
    first = held.trainee.model()
    watch = _ModelWatch(Layout.of_model(first))
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        order=Order(learning_rate=cell["rate"], noise_multiplier=cell["mechanism"]["noise_multiplier"]),
    )
    run(
        Federation(
            strategy=VerifiedAverage(terms),
            recipe=Clients(folder=consortium.folder, cell=json.dumps(cell.values), places=places),
            nodes=len(names),
            parameters=watch.layout.arrays(watch.layout.flat(dict(first.named_parameters()))),
            rounds=cell["rounds"],
            evaluate=watch.evaluate,
            log=folder / "logs",
        )
    )
    return Trained(models=watch.models, clipped=0), [_spent(consortium, name) for name in names]


def _training(cell: Cell) -> Training:
    if cell["mechanism"]["sampling"] != _ABLE:
        raise InvalidInput(
            f"policies are written for {_ABLE} sampling: take such a method as ledgered; nothing was run."
        )
    return Training(
        dataset_size=cell["mechanism"]["dataset_size"],
        batch_size=cell["mechanism"]["batch_size"],
        rounds=cell["planned_rounds"],
        local_steps=cell["local_steps"],
        budget=Budget(epsilon=cell["epsilon"], delta=cell["delta"]),
    )


def _check_noise(cell: Cell, consortium: Consortium) -> None:
    """A policy states the least noise, and an order may ask for more: a method's is rounded up."""
    stated = consortium.client(name_of(0)).policy().mechanism.costliest.noise_multiplier
    if not stated <= cell["mechanism"]["noise_multiplier"]:
        raise InvalidInput(
            f"policies state at least σ = {stated}, and the method has {cell['mechanism']['noise_multiplier']}: "
            f"calibrated by rdp it has as much or more; nothing was run."
        )


def _spent(consortium: Consortium, name: str) -> float:
    with closing(consortium.client(name).ledger()) as ledger:
        return ledger.answer().guaranteed.epsilon
