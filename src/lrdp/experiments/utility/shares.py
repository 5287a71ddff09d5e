"""Who has which records: loaded once in a process, and dealt out again for each seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from lrdp.experiments.data import DataSettings, Prepared, dealt, prepared
from lrdp.experiments.study import Cell, Places, decoded
from lrdp.experiments.utility.mechanisms import records_held
from lrdp.experiments.utility.trainees import Trainee, trainee
from lrdp.training import CheckedRecords, check_records


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What one cell trains, and what each client trains it on."""

    trainee: Trainee
    data: Prepared
    clients: tuple[CheckedRecords, ...]


def loaded(data: Mapping[str, Any], places: Places) -> Prepared:
    """The splits of a task, kept for the next cell."""
    return _loaded(json.dumps(data, sort_keys=True), places)


@lru_cache(maxsize=1)
def _loaded(data: str, places: Places) -> Prepared:
    return prepared(decoded(DataSettings, json.loads(data), "data"), places)


def holdings(cell: Cell, places: Places) -> Holdings:
    """The clients' records of a cell; kept, since the next cell mostly differs in its method alone."""
    sampling, stated = cell["mechanism"]["sampling"], cell["mechanism"]["dataset_size"]
    asked = {name: cell[name] for name in ("data", "model", "clients", "seed")}
    return _holdings(json.dumps(asked, sort_keys=True), places, records_held(sampling, stated))


@lru_cache(maxsize=2)
def _holdings(asked: str, places: Places, count: int) -> Holdings:
    given = json.loads(asked)
    data = loaded(given["data"], places)
    made = trainee(given["model"], data, given["seed"], places.data)
    shares = dealt(data.train.labels, given["clients"], given["seed"])
    records = tuple(check_records(made.records(data.train, share[:count]), made.loss) for share in shares)
    return Holdings(trainee=made, data=data, clients=records)
