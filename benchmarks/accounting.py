"""What the accountant costs, compared with its peers in the same run.

    python benchmarks/accounting.py [--quick] [--json]

Each peer answers the same question: Opacus and dp-accounting know no fixed-size batches, so they are given the Poisson
mechanism with half the noise, whose Rényi divergence is the same. A ratio is the peer's time over ours. With ``--json``
the last line of stdout is one object; docs/results/accounting.md names its keys.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from opacus.accountants import PRVAccountant, RDPAccountant
from opacus.accountants.utils import get_noise_multiplier

from lrdp.accounting import (
    Adjacency,
    Budget,
    FixedSizeGaussian,
    Fleet,
    History,
    PldAccountant,
    RenyiAccountant,
    least_noise,
)

DELTA = 1e-5
EXACT = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
PLD = PldAccountant(adjacency=Adjacency.ADD_REMOVE)

Question = list[tuple[FixedSizeGaussian, int]]
Peer = Callable[[Question], float]


def ours(accountant: RenyiAccountant | PldAccountant, question: Question) -> float:
    history: History = dict(question)
    return accountant.epsilon(history, DELTA).epsilon


def opacus(kind: type[Any], question: Question) -> float:
    accountant = kind()
    accountant.history = [(step.noise_multiplier / 2, step.probability, count) for step, count in question]
    return float(accountant.get_epsilon(DELTA))


def dp_accounting_of(kind: type[Any], question: Question) -> float:
    accountant = kind()
    for step, count in question:
        gaussian = dp_accounting.GaussianDpEvent(step.noise_multiplier / 2)
        accountant.compose(dp_accounting.PoissonSampledDpEvent(step.probability, gaussian), count)
    return float(accountant.get_epsilon(DELTA))


RENYI_PEERS: dict[str, Peer] = {
    "opacus_rdp": lambda question: opacus(RDPAccountant, question),
    "dp_accounting_rdp": lambda question: dp_accounting_of(RdpAccountant, question),
}
PLD_PEERS: dict[str, Peer] = {
    "opacus_prv": lambda question: opacus(PRVAccountant, question),
    "dp_accounting_pld": lambda question: dp_accounting_of(PLDAccountant, question),
}


def seconds(action: Callable[[], Any], least: float) -> float:
    """The median time of one call, over at least ``least`` seconds and three calls, the first one not counted."""
    action()
    times: list[float] = []
    while len(times) < 3 or sum(times) < least:
        start = time.perf_counter()
        action()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def once(action: Callable[[], Any]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def heterogeneous(count: int) -> Question:
    """Steps that all differ: the noise falls and the batch grows as a training goes on."""
    return [
        (FixedSizeGaussian(dataset_size=60_000, batch_size=128 + i % 384, noise_multiplier=4.0 - 2.0 * i / count), 1)
        for i in range(count)
    ]


def ratios(
    peers: dict[str, Peer], question: Question, own: float, clock: Callable[[Callable[[], Any]], float]
) -> dict[str, float]:
    """Each peer's time over ours."""
    return {f"{name}_ratio": clock(partial(peer, question)) / own for name, peer in peers.items()}


def one_epsilon(steps: int, least: float) -> dict[str, float]:
    question = [(FixedSizeGaussian(dataset_size=5_000, batch_size=128, noise_multiplier=4.427), steps)]
    base = seconds(lambda: ours(EXACT, question), least)
    loss = seconds(lambda: ours(PLD, question), least)
    clock = partial(seconds, least=least)
    return (
        {"ours_ms": base * 1e3, "ours_pld_ms": loss * 1e3}
        | ratios(RENYI_PEERS, question, base, clock)
        | ratios(PLD_PEERS, question, loss, clock)
    )


def many_different(count: int, renyi_peers: dict[str, Peer], pld_peers: dict[str, Peer]) -> dict[str, float]:
    question = heterogeneous(count)
    base = min(once(lambda: ours(EXACT, question)) for _ in range(2))
    result = {"ours_s": base} | ratios(renyi_peers, question, base, once)
    if pld_peers:
        loss = once(lambda: ours(PLD, question))
        result |= {"ours_pld_s": loss} | ratios(pld_peers, question, loss, once)
    return result


def calibration(least: float) -> dict[str, float]:
    """σ for ε = 8 over 10,000 steps; Opacus searches to 1% in ε, we to one part in 10⁵ in σ."""
    step = FixedSizeGaussian(dataset_size=5_000, batch_size=128, noise_multiplier=1.0)
    budget = Budget(epsilon=8.0, delta=DELTA)
    base = seconds(lambda: least_noise(step, 10_000, budget, EXACT), least)
    loss = seconds(lambda: least_noise(step, 10_000, budget, PLD), least)

    def peer(name: str) -> Callable[[], float]:
        return lambda: get_noise_multiplier(
            target_epsilon=8.0, target_delta=DELTA, sample_rate=step.probability, steps=10_000, accountant=name
        )

    return {
        "ours_ms": base * 1e3,
        "ours_pld_ms": loss * 1e3,
        "opacus_rdp_ratio": seconds(peer("rdp"), least) / base,
        "opacus_prv_ratio": once(peer("prv")) / loss,
    }


def fleet(clients: int) -> dict[str, float]:
    """ε of all clients: 64 distinct mechanisms, each client having run eight of them."""
    generator = np.random.default_rng(7)
    mechanisms = tuple(
        FixedSizeGaussian(dataset_size=2_000 + 100 * i, batch_size=64, noise_multiplier=1.0 + i / 16) for i in range(64)
    )
    runs = 8
    books = Fleet(
        adjacency=Adjacency.ADD_REMOVE,
        mechanisms=mechanisms,
        starts=np.arange(0, runs * clients + 1, runs),
        numbers=generator.integers(0, 64, runs * clients, dtype=np.int32),
        steps=generator.integers(1, 400, runs * clients),
    )
    elapsed = once(lambda: books.epsilons(DELTA))
    return {"ours_s": elapsed, "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def measure(quick: bool) -> dict[str, Any]:
    least = 0.2 if quick else 2.0
    # The fleet comes first: the process's peak is then its own.
    result: dict[str, Any] = {"fleet_1m": fleet(1_000_000)}
    result["one_step"] = one_epsilon(1, least)
    result["one_epsilon"] = one_epsilon(10_000, least)
    result["heterogeneous_100"] = many_different(100, RENYI_PEERS, {} if quick else PLD_PEERS)
    result["heterogeneous_10k"] = many_different(10_000, {} if quick else RENYI_PEERS, {})
    result["calibrate"] = calibration(least)
    packages = ("lrdp", "numpy", "scipy", "opacus", "dp-accounting", "torch")
    result["versions"] = {name: version(name) for name in packages} | {"python": platform.python_version()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and no peer that needs minutes")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on stdout")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # the peers warn at the edges of their own grids
    result = measure(arguments.quick)
    for name, figures in result.items():
        cells = (
            f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in figures.items()
        )
        print(f"{name:<18} {'   '.join(cells)}", file=sys.stderr if arguments.json else sys.stdout)
    if arguments.json:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
