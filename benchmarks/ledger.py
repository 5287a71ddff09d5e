"""What the ledger costs: python benchmarks/ledger.py [--quick] [--json].

Charges are made on a real file with every commit on disk. A million entries are written without fsync, then verified as
`lrdp ledger verify` does. The fleet of a million clients is read from its file and every figure is computed. These two
are the best of three.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

import numpy as np

from lrdp.accounting import SPREAD, Adjacency, Budget, FixedSizeGaussian, Fleet, RenyiOrders, Training
from lrdp.ledger import Ledger, ReceivedModel, Request, SigningKey, events, read_policy
from lrdp.ledger.chain import link
from lrdp.ledger.choice import encode_choice
from lrdp.ledger.export import verify_export
from lrdp.ledger.fleet import FleetBooks, fleet_view
from lrdp.ledger.policy import Holder
from lrdp.ledger.starting import Home, write_policy
from lrdp.ledger.store import Store

BUDGET = Budget(epsilon=50.0, delta=1e-6)
STEP = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=3.7)


def made(folder: Path) -> Ledger:
    home, key = Home(folder=folder), SigningKey.generate()
    plan = Training(dataset_size=5000, batch_size=128, rounds=1, local_steps=400, budget=BUDGET)
    write_policy(home, Holder(client="benchmark", unit="patient", max_rows_per_unit=1), plan)
    return Ledger.create(home.ledger, policy=read_policy(home.policy), key=key, administrator=key.public)


def asked(number: int) -> Request:
    return Request(
        run="benchmark",
        round=number,
        model=ReceivedModel(digest=sha256(b"model").hexdigest(), size=1000, largest_weight=1.0),
        config_digest=sha256(b"config").hexdigest(),
        mechanism=STEP,
        steps=39,
        clip_norm=1.0,
    )


def charge_times(count: int) -> list[float]:
    """Milliseconds of each charge, in a ledger that also stores and sends the replies."""
    times = []
    with tempfile.TemporaryDirectory() as folder, made(Path(folder)) as ledger:
        for number in range(count):
            start = time.perf_counter()
            receipt = ledger.charge(asked(number))
            times.append(1000 * (time.perf_counter() - start))
            receipt.redeem()
            ledger.sent(ledger.ready(receipt, b"noise" * 100))
    return times


def lines(count: int) -> Iterator[bytes]:
    """The entries of a ledger of rounds: charged, ready, sent."""
    for charge in range(3, count + 3, 3):
        key = sha256(charge.to_bytes(8, "big")).hexdigest()
        now = 1_794_780_000_000_000 + charge
        yield events.encode(events.Reserved(now, key, "run-1", charge, STEP, 39, 1.0, "rdp lrdp/0.1.0", 1.2345, 1.2001))
        yield events.encode(events.ReplyReady(now + 1, charge, key, 36_900_000))
        yield events.encode(events.Sent(now + 2, charge))


def long_ledger(folder: Path, count: int) -> Path:
    """A ledger of about ``count`` entries, written quickly: its durability is not what is measured."""
    with made(folder) as ledger:
        books = ledger.books
        previous, seq, path = books.digest, books.seq, folder / "ledger.db"
    store = Store(path)
    store._sql.execute("PRAGMA synchronous=OFF")
    with store.writing():
        for seq, line in enumerate(lines(count), start=seq + 1):  # noqa: B020 - goes on from the books' own
            previous = link(previous, line)
            store.append(seq, line, previous)
    store.close()
    return path


def fleet_of(clients: int) -> FleetBooks:
    """Clients with one to five mechanisms out of 64 each."""
    chance = np.random.default_rng(4)
    mechanisms = tuple(STEP.with_noise(float(noise)) for noise in np.linspace(2.0, 9.0, 64))
    starts = np.concatenate([[0], np.cumsum(chance.integers(1, 6, clients))])
    fleet = Fleet(
        adjacency=Adjacency.ADD_REMOVE,
        mechanisms=mechanisms,
        starts=starts,
        numbers=chance.integers(0, 64, starts[-1], dtype=np.int32),
        steps=chance.integers(1, 800, starts[-1]),
    )
    return FleetBooks(
        fleet=fleet,
        names=np.array([f"client-{number}" for number in range(clients)]),
        ledgers=np.array([f"{number:032x}" for number in range(clients)]),
        keys=np.array([f"{number:064x}" for number in range(clients)]),
        seqs=np.full(clients, 9),
        epsilons=np.full(clients, 8.0),
        deltas=np.full(clients, 1e-6),
        filters=(encode_choice(RenyiOrders(weights=SPREAD)),),
        filter_numbers=np.zeros(clients, dtype=np.int32),
        following=chance.integers(0, 64, clients, dtype=np.int32),
        following_steps=np.full(clients, 39),
    )


def timed(task: Callable[[], object]) -> float:
    """The best of three: what the machine's other work adds is not ours."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        task()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(charges: int, entries: int, clients: int) -> dict[str, float]:
    times = np.array(charge_times(charges))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = long_ledger(folder, entries)
        size = os.path.getsize(path)  # noqa: PTH202 - one call
        verified = timed(lambda: verify_export(path))
        fleet_of(clients).save(folder / "fleet.npz")
        fleet = timed(lambda: fleet_view(FleetBooks.load(folder / "fleet.npz")).next_to_run_out(20))
    return {
        "charge_p50_ms": round(float(np.percentile(times, 50)), 2),
        "charge_p99_ms": round(float(np.percentile(times, 99)), 2),
        "verify_1m_s": round(verified * 1_000_000 / entries, 2),
        "bytes_per_entry": round(size / entries, 1),
        "fleet_1m_s": round(fleet * 1_000_000 / clients, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything, scaled up")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    options = parser.parse_args()
    scale = 10 if options.quick else 1
    figures = measure(1000 // scale, 1_000_000 // scale, 1_000_000 // scale)
    if options.json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:<16} {value:>10}")


if __name__ == "__main__":
    main()
