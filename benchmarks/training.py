"""One private step against plain SGD, Opacus and torch.func: time and live bytes.

Every figure is a ratio to plain SGD in the same turn of the same run. Time is processor time on one thread, and the
wall clock on more; the median over turns that all contestants take one after the other. Memory is the peak of live
bytes within a step, from the allocator, without weights. ``--out`` keeps every run's figures, for ``compare.py``.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from training_baselines import BASELINES, Build, Step, plain
from training_models import WORKLOADS, Workload
from training_parts import flatness, headroom, padding, pieces
from training_record import Runs, load, middle, surroundings, table
from training_steps import (
    Figures,
    fixed,
    peak_bytes,
    private_step,
    processor_seconds,
    task,
    wall_seconds,
    without_accelerator,
)

from lrdp.training.local_steps import prepared

PARTS = ("steps", "pieces", "padding", "headroom", "flatness")
USUAL = ("opacus hooks", "opacus ghost")
QUICK = ("plain", "ours", "ours, no accelerator")  # take every turn
ONCE = ("opacus ghost", "opacus functorch", "opacus BatchMemoryManager", "torch.func vmap", "ours in micro-batches")


def contestants(work: Workload, baselines: dict[str, Build], stack: ExitStack) -> Iterator[tuple[str, Step]]:
    """Plain SGD, ours, and those baselines that can run the model at all."""
    model, batch = work.model(), work.records(work.batch_size)
    yield "plain", plain(copy.deepcopy(model), *batch)
    ready = stack.enter_context(prepared(fixed(work), task(work, copy.deepcopy(model))))
    ours = private_step(ready)
    yield "ours", ours
    if (plainly := without_accelerator(ours)) is not None:
        yield "ours, no accelerator", plainly
    if baselines:
        parts = stack.enter_context(prepared(fixed(work), task(work, copy.deepcopy(model), work.micro_batch)))
        yield "ours in micro-batches", private_step(parts)
    for name, build in baselines.items():
        try:
            step = build(copy.deepcopy(model), *batch)
            step()
        except Exception as problem:  # noqa: BLE001 - whatever another library does with a model
            print(f"  {work.name}: {name} fails: {type(problem).__name__}: {str(problem)[:120]}", file=sys.stderr)
        else:
            yield name, step


def measure(work: Workload, runs: int, turns: int, baselines: dict[str, Build]) -> dict[str, Runs]:
    """Every run's figures of every contestant. The slow ones take one turn a run, the slowest only in the first."""
    clock = processor_seconds if torch.get_num_threads() == 1 else wall_seconds
    with ExitStack() as stack:
        steps = dict(contestants(work, baselines, stack))
        for name in (name for name in QUICK if name in steps):
            steps[name]()
        found: dict[str, Runs] = {name: {} for name in steps}
        for run in range(runs):
            for name, figures in one_run(steps, turns, run == 0, clock).items():
                for figure, value in figures.items():
                    found[name].setdefault(figure, []).append(value)
    for name, values in found.items():
        shown = "  ".join(f"{figure} {middle(value):.3f}" for figure, value in values.items())
        print(f"  {work.name} {name:26} {shown}", file=sys.stderr)
    return found


def one_run(
    steps: dict[str, Step], turns: int, first: bool, clock: Callable[[Step], float]
) -> dict[str, dict[str, float]]:
    spent: dict[str, list[float]] = {}
    for turn in range(turns):
        for name, step in steps.items():
            if name in QUICK or (turn == 0 and (first or name not in ONCE)):
                spent.setdefault(name, []).append(clock(step))
    peaks = {name: peak_bytes(step) for name, step in steps.items() if first or name in QUICK}
    found: dict[str, dict[str, float]] = {}
    for name, taken in spent.items():
        ratios = [own / other for own, other in zip(taken, spent["plain"], strict=False)]
        found[name] = {"seconds": statistics.median(taken)}
        found[name] |= {} if name == "plain" else {"time_ratio": statistics.median(ratios)}
        found[name] |= {"bytes": peaks[name]} if name in peaks else {}
        found[name] |= {"memory_ratio": peaks[name] / peaks["plain"]} if name in peaks and name != "plain" else {}
    return found


def flat(found: dict[str, Runs]) -> Figures:
    """The medians under the names that other versions of this file print."""
    figures = {"plain_s": middle(found["plain"]["seconds"]), "plain_mb": middle(found["plain"]["bytes"]) / 1e6}
    prefixes = {"ours": "", "ours in micro-batches": "micro_batch_", "opacus hooks": "opacus_"}
    for name, values in found.items():
        prefix = prefixes.get(name, name.replace(" ", "_") + "_")
        figures |= {prefix + key: middle(values[key]) for key in ("time_ratio", "memory_ratio") if key in values}
    return figures


def run_steps(given: argparse.Namespace, works: list[Workload]) -> dict[str, dict[str, dict[str, Runs]]]:
    """By number of threads and model. Baselines run on one thread only: they are slow, and no faster on two."""
    found: dict[str, dict[str, dict[str, Runs]]] = {}
    for threads in given.threads:
        torch.set_num_threads(threads)
        baselines = {name: BASELINES[name] for name in given.baselines if threads == given.threads[0]}
        found[str(threads)] = {
            work.name: measure(work, given.runs, given.rounds or (40 if work.name == "cnn" else 4), baselines)
            for work in works
        }
    torch.set_num_threads(1)
    return found


def run(given: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Figures]]:
    """Flatness last: it has the C library return freed blocks, which takes time that must not be measured."""
    works = [work for work in WORKLOADS if work.name in given.models]
    record: dict[str, Any] = {"made": surroundings(given.threads), "steps": {}}
    found: dict[str, Figures] = {work.name: {} for work in works}
    if "steps" in given.parts:
        record["steps"] = run_steps(given, works)
        found = {name: flat(values) for name, values in next(iter(record["steps"].values())).items()}
    torch.set_num_threads(1)
    if "pieces" in given.parts:
        record["pieces"] = found["pieces"] = dict(pieces())
    parts: dict[str, Callable[[Workload], Figures]] = {
        "padding": lambda work: padding(work, 20),
        "headroom": lambda work: headroom(work, 40),
        "flatness": lambda work: flatness(work, given.steps, given.rows or work.batch_size),
    }
    for part in (part for part in parts if part in given.parts):
        for work in works:
            found[work.name] |= parts[part](work)
            record.setdefault(part, {})[work.name] = found[work.name]
    return record, found


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [work.name for work in WORKLOADS]
    parser.add_argument("--models", nargs="+", choices=names, default=names, metavar="MODEL", help=", ".join(names))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS[:2], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--baselines", nargs="*", choices=BASELINES, default=USUAL, metavar="NAME")
    parser.add_argument("--threads", nargs="+", type=int, default=[1], help="as 1 2: each in turn, the second by wall")
    parser.add_argument("--runs", type=int, default=3, help="of the part steps; every run's figures are kept")
    parser.add_argument("--rounds", type=int, help="turns of each contestant in a run, after one to warm up")
    parser.add_argument("--steps", type=int, default=500, help="steps of the part flatness")
    parser.add_argument("--rows", type=int, help="rows of a step in the part flatness, if not the model's batch")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write every figure of every run there, as JSON")
    parser.add_argument("--json", action="store_true", help="print the medians as one JSON object on the last line")
    parser.add_argument("--table", type=Path, metavar="FILE", help="measure nothing: print the table of such a file")
    return parser.parse_args()


def main() -> None:
    given = arguments()
    if given.table:
        print(table(load(given.table)))
        return
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    record, found = run(given)
    print(table(record))
    if given.out:
        given.out.parent.mkdir(parents=True, exist_ok=True)
        given.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if given.json:
        print(json.dumps({key: {k: round(v, 4) for k, v in value.items()} for key, value in found.items()}))


if __name__ == "__main__":
    main()
