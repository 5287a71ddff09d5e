"""Standardised weights and views at equal ε: the small network for MNIST, as it is and with either.

Through the engine, because there is no closed form for it: three clients with 1,000 pictures each, truncated Poisson,
PLD accounting. The rate is chosen for each among four, on validation data by one seed that is not among those it is
judged by. Lines that ``--out`` has already are not run again.
Run: python benchmarks/accuracy_networks.py --data-dir data --out docs/results/accuracy-networks.json
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final

import torch
from torch import Tensor, nn

from lrdp.accounting import Adjacency, Budget, PldAccountant, TruncatedPoissonGaussian, least_noise
from lrdp.experiments.data import DataSettings, prepared
from lrdp.experiments.networks import small_cnn
from lrdp.experiments.study import Places
from lrdp.experiments.study.surroundings import surroundings
from lrdp.experiments.utility.statistics import gap
from lrdp.training import (
    Augmented,
    CrossEntropy,
    PerUnit,
    PublicConstants,
    Sgd,
    Task,
    TensorRecords,
    check_gradients,
    memory_plan,
    standardise_weights,
    unaccounted_private_update,
)
from lrdp.training.research import seeded_randomness

CLIENTS, RECORDS, JUDGED, ROUNDS, LOCAL_STEPS, BATCH = 3, 1000, 2000, 10, 3, 128
SEEDS, TUNING_SEED, EPSILON, DELTA = tuple(range(5)), 100, 8.0, 1e-5
RATES: Final = (0.25, 0.75, 2.25, 6.75)
VIEWS = 4


@dataclass(frozen=True, kw_only=True)
class Line:
    """What is changed."""

    name: str
    standardised: bool = False
    views: int = 1
    reach: int = 0


LINES: Final = (
    Line(name="plain"),
    Line(name="standardised weights", standardised=True),
    Line(name=f"{VIEWS} views, moved by up to 2 pixels", views=VIEWS, reach=2),
    Line(name=f"standardised weights, {VIEWS} views, moved by up to 1 pixel", standardised=True, views=VIEWS, reach=1),
)


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """Clients' records, and those to choose and to judge by."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]

    def share(self, seed: int, client: int) -> TensorRecords:
        lot = torch.randperm(len(self.train[1]), generator=torch.Generator().manual_seed(seed))
        rows = lot[client * RECORDS : (client + 1) * RECORDS]
        return TensorRecords(self.train[0][rows], self.train[1][rows])


def pictures(places: Places) -> Pictures:
    found = prepared(DataSettings(data="mnist", features="pixels"), places)
    most = {"train": 20_000, "validation": JUDGED, "test": JUDGED}
    splits = {name: getattr(found, name) for name in most}
    return Pictures(
        **{
            name: (
                split.inputs[: most[name]].float().reshape(-1, 1, 28, 28),
                torch.as_tensor(split.labels[: most[name]]),
            )
            for name, split in splits.items()
        }
    )


def network(standardised: bool, seed: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        made = small_cnn()
    return standardise_weights(made) if standardised else made


def right(model: nn.Module, judged: tuple[Tensor, Tensor]) -> float:
    with torch.no_grad():
        return 100 * float((model(judged[0]).argmax(1) == judged[1]).float().mean())


def moved(record: Any, chance: torch.Generator, reach: int) -> Any:
    """A picture up to so far away from where it was; its edge is black."""
    down, right = torch.randint(-reach, reach + 1, (2,), generator=chance).tolist()
    return record[0].roll((down, right), (-2, -1)), record[1]


def task(model: nn.Module, share: TensorRecords, rate: float, line: Line) -> Task:
    constants = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=rate))
    loss = CrossEntropy(classes=10)
    if line.views == 1:
        return Task(model=model, dataset=share, loss=loss, constants=constants)
    views = Augmented(share, views=line.views, augment=partial(moved, reach=line.reach))
    return Task(model=model, dataset=views, loss=PerUnit(loss), constants=constants)


def trained(data: Pictures, step: TruncatedPoissonGaussian, line: Line, rate: float, seed: int) -> nn.Module:
    model = network(line.standardised, seed)
    shares = [data.share(seed, client) for client in range(CLIENTS)]
    tasks = [task(model, share, rate, line) for share in shares]
    checked = check_gradients(step, tasks[0])
    for number in range(ROUNDS):
        deltas = [
            unaccounted_private_update(
                step, LOCAL_STEPS, replace(each, checked=checked), seeded_randomness(seed, client, number)
            ).delta
            for client, each in enumerate(tasks)
        ]
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter.add_(sum(delta[name] for delta in deltas) / CLIENTS)
    return model


def judged(data: Pictures, step: TruncatedPoissonGaussian, line: Line) -> dict[str, Any]:
    begun = time.process_time()
    run = partial(trained, data, step, line)
    tried = {rate: right(run(rate, TUNING_SEED), data.validation) for rate in RATES}
    rate = max(tried, key=lambda each: tried[each])
    scores = {seed: right(run(rate, seed), data.test) for seed in SEEDS}
    runs = len(RATES) + len(SEEDS)
    plan = memory_plan(step, task(network(line.standardised, 0), data.share(0, 0), rate, line))
    return {
        "line": line.name,
        "epsilon": EPSILON,
        "rate": rate,
        "tried": tried,
        "scores": scores,
        "mean": fmean(scores.values()),
        "seconds": round((time.process_time() - begun) / runs, 2),
        "peak_mb": round(plan.peak_bytes / 1e6, 1),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("--data-dir", type=Path, default=Path("data"))
    asked.add_argument("--features", type=Path, default=Path("build/features"))
    asked.add_argument("--out", type=Path, default=Path("build/accuracy-networks.json"))
    given = asked.parse_args()
    torch.set_num_threads(1)
    data = pictures(Places(data=given.data_dir, features=given.features, results=given.out.parent))
    first = TruncatedPoissonGaussian(dataset_size=RECORDS + 1, batch_size=BATCH, cap=185, noise_multiplier=1.0)
    accountant = PldAccountant(adjacency=Adjacency.ADD_REMOVE)
    step = least_noise(first, ROUNDS * LOCAL_STEPS, Budget(epsilon=EPSILON, delta=DELTA), accountant).mechanism
    known = json.loads(given.out.read_text(encoding="utf-8"))["rows"] if given.out.exists() else []
    rows: dict[str, dict[str, Any]] = {row["line"]: row for row in known}
    for line in LINES:
        row = rows.get(line.name) or judged(data, step, line)
        rows[line.name] = row
        found = gap(_by_seed(row), _by_seed(rows[LINES[0].name]))
        row |= {"gap": found.mean, "low": found.paired[0], "high": found.paired[1]}
        print(json.dumps(row), flush=True)
        record = {"made": surroundings(), "rows": list(rows.values())}
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _by_seed(row: dict[str, Any]) -> dict[int, float]:
    return {int(seed): score for seed, score in row["scores"].items()}


if __name__ == "__main__":
    main()
