"""What privacy, books and verification cost a federation, beside FedAvg of the same model on the same grid in one run.

Both sides train VGG11 for as many local steps on batches of as many records, FedAvg by ordinary SGD. Times are medians
over rounds after the first, in which clients are greeted and get their first model; bytes are of all rounds. Memory is
the high-water mark of a guard, the process that is a client in the field. Run: make bench-federation ARGS="--json"
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from federation_guards import guard_peak_mb
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from torch.nn import functional
from training_models import vgg11

from lrdp.accounting import Budget, Training
from lrdp.federation import InProcessGrid, Node, Order, Terms, VerifiedAverage, found, private_client_app
from lrdp.training import Constant, CrossEntropy, Sgd, TensorRecords

RECORDS, BATCH, RATE = 300, 128, 0.05


@dataclass(frozen=True)
class Setting:
    clients: int
    rounds: int
    steps: int


# One pass over the 5,000 records that each client has in the paper would be 39 steps, and the paper makes five a round.
SETTINGS = {"vgg11_10": Setting(10, 2, 20), "vgg11_10_short": Setting(10, 3, 4), "vgg11_100": Setting(100, 2, 2)}
QUICK = {"vgg11_10": Setting(4, 3, 2)}


def records(settings: Mapping[str, Any]) -> TensorRecords:
    source = torch.Generator().manual_seed(int(settings["partition-id"]))
    images = torch.randn(RECORDS, 3, 32, 32, generator=source)
    return TensorRecords(images, torch.randint(0, 10, (RECORDS,), generator=source))


def plain_app(steps: int) -> ClientApp:
    """Flower's ordinary client: load the model, train, send it back."""
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        model, data = vgg11(), records(context.node_config)
        arrays = message.content["arrays"]
        assert isinstance(arrays, ArrayRecord)
        model.load_state_dict(arrays.to_torch_state_dict())
        optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
        for _ in range(steps):
            images, labels = zip(*(data[number] for number in random.sample(range(RECORDS), BATCH)), strict=True)
            optimiser.zero_grad()
            functional.cross_entropy(model(torch.stack(images)), torch.stack(labels)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        content = RecordDict({"arrays": ArrayRecord(model.state_dict())})
        content["metrics"] = MetricRecord({"num-examples": RECORDS})
        return Message(content, reply_to=message)

    return app


class Timed:
    """A strategy, when each of its rounds ended, and what had travelled by then."""

    def __init__(self, strategy: Strategy, grid: InProcessGrid) -> None:
        self.ends: list[float] = []
        self.travelled: list[int] = []
        aggregate = strategy.aggregate_train

        def watched(server_round: int, replies: Any) -> Any:
            result = aggregate(server_round, replies)
            self.ends.append(time.perf_counter())
            self.travelled.append(grid.sent_bytes + grid.received_bytes)
            return result

        strategy.aggregate_train = watched  # type: ignore[method-assign]
        self.strategy = strategy

    @property
    def round_seconds(self) -> float:
        return median(after - before for before, after in zip(self.ends, self.ends[1:], strict=False))


@dataclass(frozen=True)
class Side:
    round_seconds: float
    all_bytes: int
    later_bytes: int


def measured(strategy: Strategy, app: ClientApp, setting: Setting) -> Side:
    nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(setting.clients)}
    grid = InProcessGrid(nodes)
    timed = Timed(strategy, grid)
    timed.strategy.start(grid, ArrayRecord(vgg11().state_dict()), setting.rounds)
    travelled = grid.sent_bytes + grid.received_bytes
    return Side(timed.round_seconds, travelled, travelled - timed.travelled[0])


def private_side(folder: Path, setting: Setting) -> Side:
    training = Training(
        dataset_size=RECORDS,
        batch_size=BATCH,
        rounds=setting.rounds,
        local_steps=setting.steps,
        budget=Budget(epsilon=8.0, delta=1e-5),
    )
    consortium = found(folder / "consortium", {f"client-{n}": training for n in range(setting.clients)})
    app = private_client_app(
        policy=str(consortium.folder / "clients" / "client-{partition-id}" / "policy.toml"),
        model=vgg11,
        dataset=records,
        loss=CrossEntropy(classes=10),
        optimiser=Sgd(rate=Constant(rate=RATE)),
    )
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        order=Order(steps=setting.steps),
    )
    return measured(VerifiedAverage(terms), app, setting)


def plain_side(setting: Setting) -> Side:
    strategy = FedAvg(min_train_nodes=setting.clients, fraction_evaluate=0.0, min_evaluate_nodes=0)
    return measured(strategy, plain_app(setting.steps), setting)


def compared(setting: Setting) -> dict[str, float]:
    plain = plain_side(setting)
    with tempfile.TemporaryDirectory() as folder:
        private = private_side(Path(folder), setting)
    return {
        "round_time_ratio": round(private.round_seconds / plain.round_seconds, 3),
        "bytes_ratio": round(private.all_bytes / plain.all_bytes, 3),
        "bytes_ratio_after_first_round": round(private.later_bytes / plain.later_bytes, 3),
        "plain_round_s": round(plain.round_seconds, 2),
        "seconds_more_per_client": round((private.round_seconds - plain.round_seconds) / setting.clients, 3),
        "clients": setting.clients,
        "rounds": setting.rounds,
        "local_steps": setting.steps,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--quick", action="store_true", help="4 clients, 3 rounds of 2 steps")
    options.add_argument("--only", choices=SETTINGS, help="one setting alone")
    options.add_argument("--json", action="store_true", help="one object on the last line")
    given = options.parse_args()
    logging.disable(logging.WARNING)
    settings = QUICK if given.quick else {given.only: SETTINGS[given.only]} if given.only else SETTINGS
    results = {}
    peak = guard_peak_mb()
    for name, setting in settings.items():
        results[name] = {**compared(setting), "client_peak_mb": peak}
        if not given.json:
            print(name, *(f"{key} {value}" for key, value in results[name].items()), sep="\n  ")
    if given.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
