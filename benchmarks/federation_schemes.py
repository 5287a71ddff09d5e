"""What a round costs each client where the server sees every update, and where it sees their sum alone.

    python benchmarks/federation_schemes.py [--case 10k:3] [--json]

Real clients and the real server in one process; every message is serialised as on the network. Bytes and CPU seconds
are of the second round, for one client; CPU leaves out its training, which is the same in both. With ``--json`` the
last line of stdout is one object; docs/results/federation.md names its keys.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from torch import nn

from lrdp.accounting import Budget, Training
from lrdp.federation import (
    CommonRules,
    ExactRounds,
    InProcessGrid,
    Node,
    Order,
    SketchRounds,
    Terms,
    VerifiedAverage,
    found,
    private_client_app,
)
from lrdp.federation.client.paying import Payer
from lrdp.ledger import Scheme
from lrdp.training import CrossEntropy, TensorRecords

SIZES = {"10k": 10_000, "100k": 100_000, "1M": 1_000_000}
CASES = [(size, count) for size in SIZES for count in (3, 10)]
ROUNDS: dict[Scheme, SketchRounds | ExactRounds] = {Scheme.SKETCH: SketchRounds(), Scheme.EXACT: ExactRounds()}
TRAINING = Training(dataset_size=100, batch_size=2, rounds=6, local_steps=1, budget=Budget(epsilon=8.0, delta=1e-5))
WIDTHS = 7  # parameters per hidden unit: four inputs, a bias, two outputs


def model(size: int) -> nn.Module:
    hidden = size // WIDTHS
    return nn.Sequential(nn.Linear(4, hidden), nn.Linear(hidden, 2))


def records(_settings: Mapping[str, Any]) -> TensorRecords:
    source = torch.Generator().manual_seed(1)
    labels = torch.randint(0, 2, (120,), generator=source)
    return TensorRecords(torch.randn(120, 4, generator=source) + labels[:, None], labels)


class Meter:
    """CPU seconds that clients spend, less what they spend on making updates."""

    def __init__(self) -> None:
        self.clients = self.training = 0.0
        genuine = Payer.trained

        def trained(*given: Any) -> Any:
            began = time.process_time()
            try:
                return genuine(*given)
            finally:
                self.training += time.process_time() - began

        Payer.trained = trained  # type: ignore[method-assign,assignment]

    def on(self, app: ClientApp) -> Callable[[Message, Context], Message]:
        def answer(message: Message, context: Context) -> Message:
            began = time.process_time()
            reply: Message = app(message, context)
            self.clients += time.process_time() - began
            return reply

        return answer


def measured(size: int, count: int, scheme: Scheme, meter: Meter) -> dict[str, float]:
    """One client's bytes and seconds in the second round, and the server's seconds."""
    with tempfile.TemporaryDirectory() as folder:
        names = [f"hospital-{number}" for number in range(count)]
        consortium = found(
            Path(folder) / "consortium", dict.fromkeys(names, TRAINING), rules=CommonRules(scheme=scheme)
        )
        app = private_client_app(
            policy=str(consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
            model=lambda: model(size),
            dataset=records,
            loss=CrossEntropy(classes=2),
        )
        nodes = {1 + number: Node(meter.on(app), {"partition-id": number}) for number in range(count)}  # type: ignore[arg-type]
        grid, marks = InProcessGrid(nodes), list[tuple[float, ...]]()

        def mark(*_: Any) -> None:
            now = (time.process_time(), meter.clients, meter.training, grid.sent_bytes, grid.received_bytes)
            marks.append(tuple(map(float, now)))

        terms = Terms(
            identity=consortium.server_identity(),
            registry=consortium.registry(),
            folder=consortium.server_folder,
            order=Order(steps=1),
            scheme=ROUNDS[scheme],
        )
        VerifiedAverage(terms, mark).start(grid, ArrayRecord(model(size).state_dict()), num_rounds=2, timeout=1200)
        whole, clients, training, down, up = (after - before for before, after in zip(*marks, strict=True))
        return {
            "client_cpu_s": (clients - training) / count,
            "server_cpu_s": whole - clients,
            "bytes_up": up / count,
            "bytes_down": down / count,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", action="append", help="such as 10k:3", default=None)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(1)
    meter, found_costs = Meter(), dict[str, dict[str, dict[str, float]]]()
    cases = [tuple(case.split(":")) for case in given.case] if given.case else CASES
    for size, count in cases:
        for scheme in ROUNDS:
            cost = measured(SIZES[str(size)], int(count), scheme, meter)
            found_costs.setdefault(scheme.value, {})[f"{size}_m{count}"] = cost
            line = f"{cost['client_cpu_s']:.3f} s · up {cost['bytes_up']:,.0f} · down {cost['bytes_down']:,.0f}"
            print(f"{size:>5} {count:>3} {scheme.value:<7} {line} · server {cost['server_cpu_s']:.3f} s", flush=True)
    if given.json:
        print(json.dumps(found_costs))


if __name__ == "__main__":
    main()
