"""A measurement in a process of its own, so that nothing that ran before is in it.

``python -m lrdp.experiments.memory.alone`` reads what to measure from stdin and writes what was found to stdout, both
as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

from lrdp.errors import InvalidInput, LrdpError

_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What to measure, and of whom: JSON can express it."""

    measure: str
    method: Mapping[str, Any]
    setting: Mapping[str, Any]
    sizes: list[int]


def measured_alone(order: Measurement) -> dict[str, Any]:
    """What a fresh process found.

    Raises:
        InvalidInput: with the last thing it said, where it did not end well.
    """
    words = [sys.executable, "-m", __name__]
    told = json.dumps(asdict(order)).encode()
    ended = subprocess.run(words, input=told, capture_output=True, check=False, env=os.environ | _ONE_THREAD)  # noqa: S603
    if ended.returncode != 0:
        last = ended.stderr.decode(errors="replace").strip().splitlines()[-1:] or ["it said nothing"]
        raise InvalidInput(f"the measuring process ended with code {ended.returncode}: {last[0]}")
    found: dict[str, Any] = json.loads(ended.stdout.splitlines()[-1])
    return found


def measured(order: Measurement) -> dict[str, Any]:
    """Here and now."""
    from lrdp.experiments.memory import contestants
    from lrdp.experiments.memory.measuring import forget_process_peak, process_peak
    from lrdp.experiments.memory.records import Pictures
    from lrdp.experiments.networks import NETWORKS

    method, setting = contestants.ContestantMethod(**order.method), contestants.Setting(**order.setting)
    records = Pictures(setting.records, NETWORKS[setting.model].shape, setting.seed)
    forget_process_peak()
    before = process_peak()
    with warnings.catch_warnings(action="ignore"), contestants.contestant(method, setting, records) as steps:
        found = _MEASURES[order.measure](partial(steps, order.sizes))
    return {"before": before, **found}


def _settle(malloc: str) -> None:
    """As a client of its kind would, when its process begins."""
    import torch

    from lrdp.training import keep_freed_blocks, return_large_blocks

    torch.set_num_threads(1)
    possible = {"default": lambda: True, "keep": keep_freed_blocks, "return": return_large_blocks}[malloc]()
    if not possible:
        raise InvalidInput(f"this C library cannot be asked to {malloc} freed blocks: nothing was measured.")


def _live(run: Any) -> dict[str, Any]:
    from lrdp.experiments.memory.measuring import live_peaks, recorded

    sizes, happenings = recorded(run)
    return {"sizes": sizes, "live": live_peaks(happenings)}


def _process(run: Any) -> dict[str, Any]:
    from lrdp.experiments.memory.measuring import process_peaks

    found = process_peaks(run)
    return {"sizes": [size for size, _ in found], "process": [peak for _, peak in found]}


def _trace(run: Any) -> dict[str, Any]:
    from lrdp.experiments.memory.measuring import recorded
    from lrdp.experiments.memory.traces import of_last_step

    sizes, happenings = recorded(run)
    return {"size": sizes[-1], **of_last_step(happenings)}


_MEASURES: Final[Mapping[str, Callable[[Any], dict[str, Any]]]] = {"live": _live, "process": _process, "trace": _trace}


def main() -> None:
    """Exit code 2 and a sentence on stderr where the order cannot be carried out."""
    try:
        order = Measurement(**json.load(sys.stdin))
        _settle(order.method["malloc"])
        found = measured(order)
    except LrdpError as problem:
        sys.exit(str(problem))
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
