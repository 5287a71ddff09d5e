"""What privacy, books and verification cost a federation, against FedAvg of the same model on the same grid in one run.

All sides train VGG11 for the same number of local steps on batches of the same size, FedAvg by ordinary SGD, each in a
process of its own and a round of each in turn. The ratio is the median over rounds after the first, in which clients
are greeted and get their first model; bytes are of all rounds. A private client has the C library keep freed memory,
so FedAvg is also timed with that. Memory is the high-water mark of a guard, the process that is a client in the field.
Run: make bench-federation ARGS="--json"
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import torch
from federation_guards import guard_peak_mb
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from torch.nn import functional

from lrdp.accounting import Budget, Training
from lrdp.experiments.models.vgg11 import vgg11
from lrdp.federation import InProcessGrid, Node, Order, Terms, VerifiedAverage, found, private_client_app
from lrdp.training import CrossEntropy, Sgd, TensorRecords, keep_freed_blocks

RECORDS, BATCH, RATE = 300, 128, 0.05


@dataclass(frozen=True)
class Setting:
    clients: int
    rounds: int
    steps: int
    tuned: bool = True


# "epoch": one pass over the 5,000 records that each client has in the paper, which makes five of them a round.
SETTINGS = {
    "vgg11_10": Setting(10, 4, 6),
    "vgg11_100": Setting(100, 2, 3, tuned=False),
    "vgg11_3_epoch": Setting(3, 2, 39),
}
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
    """A strategy that waits for its turn before each round; how long each took, and what had travelled by then."""

    def __init__(self, strategy: Strategy, grid: InProcessGrid, turns: Connection) -> None:
        self.seconds: list[float] = []
        self.travelled: list[int] = []
        configure, aggregate = strategy.configure_train, strategy.aggregate_train
        began = 0.0

        def waiting(*given: Any) -> Any:
            nonlocal began
            turns.recv()
            began = time.perf_counter()
            return configure(*given)

        def watched(server_round: int, replies: Any) -> Any:
            result = aggregate(server_round, replies)
            self.seconds.append(time.perf_counter() - began)
            self.travelled.append(grid.sent_bytes + grid.received_bytes)
            turns.send(None)
            return result

        strategy.configure_train = waiting  # type: ignore[method-assign, assignment]
        strategy.aggregate_train = watched  # type: ignore[method-assign]
        self.strategy = strategy


@dataclass(frozen=True)
class Side:
    seconds: list[float]
    all_bytes: int
    later_bytes: int


def measured(strategy: Strategy, app: ClientApp, setting: Setting, turns: Connection) -> Side:
    nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(setting.clients)}
    grid = InProcessGrid(nodes)
    timed = Timed(strategy, grid, turns)
    timed.strategy.start(grid, ArrayRecord(vgg11().state_dict()), setting.rounds)
    travelled = grid.sent_bytes + grid.received_bytes
    return Side(timed.seconds[1:], travelled, travelled - timed.travelled[0])


def private_side(setting: Setting, turns: Connection, folder: Path) -> Side:
    training = Training(
        dataset_size=RECORDS - 1,
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
        optimiser=Sgd(lr=RATE),
    )
    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        order=Order(steps=setting.steps),
    )
    return measured(VerifiedAverage(terms), app, setting, turns)


def plain_side(setting: Setting, turns: Connection, _folder: Path) -> Side:
    strategy = FedAvg(min_train_nodes=setting.clients, fraction_evaluate=0.0, min_evaluate_nodes=0)
    return measured(strategy, plain_app(setting.steps), setting, turns)


def tuned_side(setting: Setting, turns: Connection, folder: Path) -> Side:
    """FedAvg with the allocator set as a private client sets it."""
    keep_freed_blocks()
    return plain_side(setting, turns, folder)


SIDES = {"plain": plain_side, "tuned": tuned_side, "private": private_side}


def play(side: Callable[[Setting, Connection, Path], Side], setting: Setting, turns: Connection, folder: Path) -> None:
    logging.disable(logging.WARNING)
    turns.send(side(setting, turns, folder))


def alternating(setting: Setting, names: Sequence[str]) -> dict[str, Side]:
    """Each side in a process of its own, and a round of each in turn: what drifts on the machine affects them all."""
    processes = get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        turns = {}
        for name in names:
            turns[name], theirs = processes.Pipe()
            processes.Process(target=play, args=(SIDES[name], setting, theirs, Path(folder)), daemon=True).start()
        for _ in range(setting.rounds):
            for name in names:
                turns[name].send(None)
                turns[name].recv()
        return {name: turns[name].recv() for name in names}


def compared(setting: Setting) -> dict[str, Any]:
    sides = alternating(setting, list(SIDES) if setting.tuned else ["plain", "private"])
    plain, private = sides["plain"], sides["private"]
    ratios = {
        name: round(median(mine / theirs for mine, theirs in zip(private.seconds, side.seconds, strict=True)), 3)
        for name, side in sides.items()
    }
    return {
        "round_time_ratio": ratios["plain"],
        "round_time_ratio_same_allocator": ratios.get("tuned"),
        "bytes_ratio": round(private.all_bytes / plain.all_bytes, 3),
        "bytes_ratio_after_first_round": round(private.later_bytes / plain.later_bytes, 3),
        "round_s": {name: [round(spent, 1) for spent in side.seconds] for name, side in sides.items()},
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
