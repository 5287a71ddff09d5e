"""A thousand clients that come and go over two hundred rounds: does each pay for exactly the steps it took?

Every round takes a random few of those who happen to be there; every client has its own policy and ledger on disk, and
every round is verified. Afterwards each ledger's ε is compared with what the accountant says of the steps that the
*receipts* name for that client: the two share no data. Run: make bench-participation ARGS="--json"
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from flwr.app import ArrayRecord
from torch import nn

from lrdp.accounting import Budget, Mechanism, Training
from lrdp.federation import Consortium, InProcessGrid, Node, RoundReport, Terms, VerifiedAverage, found
from lrdp.federation.client.app import private_client_app
from lrdp.integrity import keys
from lrdp.integrity.history import Audit, audit_history
from lrdp.integrity.session import FEWEST
from lrdp.training import CrossEntropy, TensorRecords

RECORDS = 60
TRAINING = Training(dataset_size=50, batch_size=4, rounds=20, local_steps=2, budget=Budget(epsilon=10.0, delta=1e-5))


def records(settings: Mapping[str, Any]) -> TensorRecords:
    source = torch.Generator().manual_seed(int(settings["partition-id"]))
    return TensorRecords(torch.randn(RECORDS, 4, generator=source), torch.randint(0, 2, (RECORDS,), generator=source))


def model() -> nn.Module:
    return nn.Linear(4, 2)


def simulate(folder: Path, clients: int, rounds: int, per_round: int) -> tuple[Consortium, list[RoundReport], float]:
    names = [f"client-{number}" for number in range(clients)]
    consortium = found(folder / "consortium", dict.fromkeys(names, TRAINING), min_roster=FEWEST)
    policy = str(consortium.folder / "clients" / "client-{partition-id}" / "policy.toml")
    app = private_client_app(policy=policy, model=model, dataset=records, loss=CrossEntropy(classes=2))
    grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(clients)})
    chance, reports = random.Random(20), list[RoundReport]()

    def choose(_round: int, present: Sequence[str]) -> Sequence[str]:
        """A few at random; before the next round one client in ten changes its mind about being there."""
        for node in grid.nodes.values():
            if chance.random() < 0.1:
                node.present = not node.present
        return chance.sample(list(present), min(per_round, len(present)))

    terms = Terms(
        identity=consortium.server_identity(),
        registry=consortium.registry(),
        folder=consortium.server_folder,
        choose=choose,
        min_roster=FEWEST,
    )
    began = time.perf_counter()
    VerifiedAverage(terms, reports.append).start(grid, ArrayRecord(model().state_dict()), rounds, timeout=240)
    return consortium, reports, time.perf_counter() - began


def audited(consortium: Consortium) -> Audit:
    (receipts,) = consortium.server_folder.glob("receipts-*.txt")
    return audit_history(receipts.read_text().split(), consortium.registry().digest)


def mismatches(consortium: Consortium, taken: Mapping[str, int]) -> tuple[int, list[float]]:
    """Clients whose ledger does not say exactly what the receipts and the accountant say; and every client's ε."""
    wrong, spent = 0, []
    for name in consortium.names():
        with consortium.client(name).ledger() as ledger:
            books, policy = ledger.books, ledger.policy
            steps = taken.get(name, 0) * TRAINING.local_steps
            history: dict[Mechanism, int] = {policy.mechanism.costliest: steps} if steps else {}
            expected = replace(books.filter(policy.budget.total), history=history).answer().spent.epsilon
            found_epsilon = ledger.answer().spent.epsilon
            wrong += dict(books.charges.history) != history or found_epsilon != expected
            spent.append(found_epsilon)
    return wrong, spent


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--clients", type=int, default=1000)
    options.add_argument("--rounds", type=int, default=200)
    options.add_argument("--per-round", type=int, default=10)
    options.add_argument("--quick", action="store_true", help="100 clients, 20 rounds")
    options.add_argument("--json", action="store_true", help="one object on the last line")
    given = options.parse_args()
    clients, rounds = (100, 20) if given.quick else (given.clients, given.rounds)
    logging.disable(logging.WARNING)
    # A thousand clients in one process check the same receipts: what held for one holds for all, and is checked once.
    keys.verifies = lru_cache(maxsize=1 << 16)(keys.verifies)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        consortium, reports, seconds = simulate(Path(folder), clients, rounds, given.per_round)
        seen = audited(consortium)
        wrong, spent = mismatches(consortium, seen.participants)
    result = {
        "clients": clients,
        "rounds": rounds,
        "verified": sum(report.verified for report in reports),
        "audited": seen.rounds,
        "declined_for_budget": sum("budget" in report.declined.values() for report in reports),
        "participations": sum(seen.participants.values()),
        "epsilon_least": min(spent),
        "epsilon_most": max(spent),
        "mismatches": wrong,
        "seconds": round(seconds, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }
    if not given.json:
        print("\n".join(f"{name:20} {value}" for name, value in result.items()))
    else:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
