"""One training of a federation whose clients may stay away, or lose their update on the way."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lrdp.experiments.data import dealt, dirichlet
from lrdp.experiments.data.partition import Shares
from lrdp.experiments.sensitivity.claims import Meter
from lrdp.experiments.study import Cell, Places
from lrdp.experiments.utility.mechanisms import OWN, part, records_held, step_of
from lrdp.experiments.utility.shares import Holdings, loaded
from lrdp.experiments.utility.trainees import trainee
from lrdp.experiments.utility.training import judged, run_in_process
from lrdp.training import check_records


def trained(cell: Cell, places: Places) -> dict[str, Any]:
    """How well the averaged last models do, and what each client has spent by its own count of rounds."""
    begun = time.monotonic()
    torch.set_num_threads(1)  # sums over several threads are rounded differently
    held, turns = _holdings(cell, places), Turns.drawn(cell)
    found = judged(cell, held, run_in_process(cell, held, turns.arriving))
    spent = turns.spent(cell)
    return {
        **found,
        "epsilon_least": float(spent.min()),
        "epsilon_mean": float(spent.mean()),
        "epsilon_most": float(spent.max()),
        "updates": int(turns.arrives.sum()),
        "empty_rounds": int((~turns.arrives.any(1)).sum()),
        "seconds": round(time.monotonic() - begun, 2),
    }


class Turns:
    """Round by round and client by client: who trains and pays, and whose update arrives."""

    def __init__(self, trains: NDArray[np.bool_], arrives: NDArray[np.bool_]) -> None:
        self.trains, self.arrives = trains, arrives

    @classmethod
    def drawn(cls, cell: Cell) -> Turns:
        """By public chance, the same for every method."""
        shape = cell["rounds"], cell["clients"]
        chance = np.random.default_rng([cell["seed"], *shape])
        trains = chance.random(shape) < cell["participation"]
        return cls(trains, trains & (chance.random(shape) >= cell["dropout"]))

    def arriving(self, number: int) -> list[int]:
        """The places of those whose updates make a round. What is lost changes nothing but the books."""
        found: list[int] = np.flatnonzero(self.arrives[number]).tolist()
        return found

    def spent(self, cell: Cell) -> NDArray[np.float64]:
        """Each client's ε: for what it trained, arrived or not."""
        accountant = part(OWN, cell["accountant"], "accountant")
        step, local = step_of(cell["mechanism"]), cell["local_steps"]
        return Meter(mechanism=step, accountant=accountant, local_steps=local, delta=cell["delta"]).of(
            self.trains.sum(0)
        )


def _holdings(cell: Cell, places: Places) -> Holdings:
    data = loaded(cell["data"], places)
    made = trainee(cell["model"], data, cell["seed"], places.data)
    count = records_held(cell["mechanism"]["sampling"], cell["mechanism"]["dataset_size"])
    shares = _shares(_Labels(data.train.labels), cell["clients"], cell["alpha"], cell["seed"])
    records = tuple(check_records(made.records(data.train, share[:count]), made.loss) for share in shares)
    return Holdings(trainee=made, data=data, clients=records)


class _Labels:
    """Labels that are equal if they are the same: shares are dealt once for all methods."""

    def __init__(self, labels: torch.Tensor) -> None:
        self.labels = labels

    def __hash__(self) -> int:
        return self.labels.data_ptr()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Labels) and self.labels is other.labels


@lru_cache(maxsize=64)
def _shares(given: _Labels, clients: int, alpha: float, seed: int) -> Shares:
    return dirichlet(given.labels, clients, alpha, seed) if alpha else dealt(given.labels, clients, seed)
