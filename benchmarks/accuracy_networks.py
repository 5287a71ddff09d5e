"""Weight standardisation at equal ε: the small network for MNIST, with plain convolutions and with standardised ones.

Through the engine, because there is no closed form for it: three clients with 1,000 pictures each, truncated Poisson,
PLD accounting. The rate is chosen for either among four, on validation data by one seed that is not among those it is
judged by. Run: python benchmarks/accuracy_networks.py --data-dir data --out docs/results/accuracy-networks.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
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
    CrossEntropy,
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


def task(model: nn.Module, share: TensorRecords, rate: float) -> Task:
    constants = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=rate))
    return Task(model=model, dataset=share, loss=CrossEntropy(classes=10), constants=constants)


def trained(
    data: Pictures, step: TruncatedPoissonGaussian, make: Callable[[int], nn.Module], rate: float, seed: int
) -> Any:
    model = make(seed)
    shares = [data.share(seed, client) for client in range(CLIENTS)]
    tasks = [task(model, share, rate) for share in shares]
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


def judged(data: Pictures, step: TruncatedPoissonGaussian, standardised: bool) -> dict[str, Any]:
    begun = time.process_time()
    run = partial(trained, data, step, partial(network, standardised))
    tried = {rate: right(run(rate, TUNING_SEED), data.validation) for rate in RATES}
    rate = max(tried, key=lambda each: tried[each])
    scores = {seed: right(run(rate, seed), data.test) for seed in SEEDS}
    runs = len(RATES) + len(SEEDS)
    plan = memory_plan(step, task(network(standardised, 0), data.share(0, 0), rate))
    return {
        "line": "standardised weights" if standardised else "plain",
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
    rows: list[dict[str, Any]] = []
    for standardised in (False, True):
        rows.append(judged(data, step, standardised))
        found = gap(rows[-1]["scores"], rows[0]["scores"])
        rows[-1] |= {"gap": found.mean, "low": found.paired[0], "high": found.paired[1]}
        print(json.dumps(rows[-1]), flush=True)
        given.out.write_text(json.dumps({"made": surroundings(), "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
