"""What refusing costs: seconds and memory of every decoder on every hostile input.

    python tests/hostile/measure.py [--mib 16]

Prints, for each decoder, the dearest input, and at the end the dearest of all. Time and memory are measured apart, for
tracing slows what it traces; memory is what is allocated beside the input.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from hostile.decoders import Decoder, table
from hostile.inputs import COMMON, own
from lrdp.errors import LrdpError

WORK = {"commands.fleet.reports_in "}
"""Of their own bytes, again and again, these make as many signed reports as there are: nothing is refused."""


def outcome(decoder: Decoder, data: bytes) -> str:
    """How a decoder ended; anything but a typed error is raised."""
    try:
        decoder.read(data)
    except LrdpError as problem:
        return type(problem).__name__
    except (ValueError, OverflowError):
        if decoder.inner:
            return "ValueError"
        raise
    return "taken"


def peak(work: Callable[[], object]) -> int:
    """Bytes that were allocated at most at one time."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(decoder: Decoder, data: bytes) -> tuple[float, int]:
    """Seconds and bytes that it takes to refuse."""
    outcome(decoder, data)  # writes the file, where there is one
    start = time.perf_counter()
    outcome(decoder, data)
    return time.perf_counter() - start, peak(lambda: outcome(decoder, data))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=float, default=16)
    size = int(parser.parse_args().mib * (1 << 20))
    costs: dict[str, list[tuple[float, int, str]]] = {name: [] for name in table()}
    for kind, make in COMMON.items():
        data = make(size)
        for name, decoder in table().items():
            costs[name].append((*measured(decoder, data), kind))
    for name, decoder in table().items():
        if name not in WORK:
            costs[name] += [(*measured(decoder, data), kind) for kind, data in own(decoder, size)]
    for name, rows in costs.items():
        (slow, _, why), (_, large, what) = max(rows), max(rows, key=lambda row: row[1])
        sys.stdout.write(f"{name:<44} {slow:7.3f} s {why:<28} {large / size:6.2f}× {what}\n")
    seconds = max(row[0] for rows in costs.values() for row in rows)
    memory = max(row[1] for rows in costs.values() for row in rows)
    count = sum(map(len, costs.values()))
    sys.stdout.write(f"{count} refusals of {size} bytes by {len(costs)} decoders: at most {seconds:.3f} s ")
    sys.stdout.write(f"and {memory / size:.2f}× their size.\n")


if __name__ == "__main__":
    main()
