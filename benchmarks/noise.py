"""What a value of noise costs, in nanoseconds: python benchmarks/noise.py [--quick] [--values N] [--json].

Secure noise the plain way, compiled, and by the device's cipher (run here on the CPU, which it is not made for), next
to torch's own normals, on which no privacy may rest. All take turns, on one thread by the process's own time; then the
first two on all of torch's threads by the wall clock. The least of many turns counts: other work here only adds to it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable

import torch

from lrdp.training.keystream import Keystream
from lrdp.training.noise import Grid, accelerator, make_ready, plain

DEVIATION = 1.3
CPU = torch.device("cpu")
Contestants = dict[str, Callable[[], object]]


def contestants(values: int) -> Contestants:
    grid, stream = Grid(DEVIATION), Keystream.from_system()
    total, wide = torch.zeros(values), torch.zeros(values, dtype=torch.float64)
    kernel = accelerator.kernel()
    here, there = plain.here(grid, stream), plain.there(grid, stream, CPU)
    found: Contestants = {"plain": lambda: here.add_to(total)}
    if kernel is not None:
        compiled = accelerator.Accelerated(grid, stream, kernel)
        found |= {"compiled": lambda: compiled.add_to(total), "compiled_float64": lambda: compiled.add_to(wide)}
    return found | {
        "device_on_cpu": lambda: there.add_to(total),
        "torch_float32": total.normal_,
        "torch_float64": wide.normal_,
    }


def nanoseconds(given: Contestants, values: int, turns: int, clock: Callable[[], float]) -> dict[str, float]:
    least = dict.fromkeys(given, float("inf"))
    for turn in range(turns + 1):
        for name, make in given.items():
            started = clock()
            make()
            spent = clock() - started
            least[name] = min(least[name], spent) if turn else least[name]  # the first turn warms up
    return {name: round(1e9 * spent / values, 2) for name, spent in least.items()}


def loading() -> float:
    """Seconds until noise can be made: numba's import, and what was compiled before or is compiled now."""
    started = time.perf_counter()
    make_ready(CPU)
    return round(time.perf_counter() - started, 2)


def measure(values: int, turns: int) -> dict[str, dict[str, float]]:
    """The slowest, which nobody runs like this, is left out where the wall clock counts."""
    found = {"seconds": {"make_ready": loading()}}
    threads, every = torch.get_num_threads(), contestants(values)
    torch.set_num_threads(1)
    found["one_thread"] = nanoseconds(every, values, turns, time.process_time)
    if threads > 1:
        torch.set_num_threads(threads)
        chosen = {name: make for name, make in every.items() if name in ("plain", "compiled", "torch_float32")}
        found[f"wall_{threads}_threads"] = nanoseconds(chosen, values, turns, time.perf_counter)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a quarter of the values and of the turns")
    parser.add_argument("--values", type=int, default=1 << 23, help="how many values at a time")
    parser.add_argument("--json", action="store_true", help="end with one JSON object")
    given = parser.parse_args()
    scale = 4 if given.quick else 1
    found = measure(given.values // scale, 12 // scale)
    for part, figures in found.items():
        for name, value in figures.items():
            print(f"{part:16} {name:18} {value:8.2f}", file=sys.stderr if given.json else sys.stdout)
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
