"""One private step of two versions of this project, in turns: time and live bytes, each as a ratio to plain SGD.

A machine's speed changes from hour to hour, so versions are compared within one run. ``--before`` is a checkout of the
older version, as ``git worktree add ../before COMMIT`` makes one; each version runs its own ``benchmarks/training.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
MODELS = ("vgg11", "cnn", "bert_mini", "minilm", "resnet18", "vit", "llama", "convnext")
SHARED = MODELS[:3]  # the models that every version knows
ROUNDS = {"cnn": 60, "bert_mini": 7}
FEW = 3
TRIES = 5
FIGURES = ("plain_s", "time_ratio", "memory_ratio")


def measured(version: Path, model: str) -> dict[str, float]:
    """One run of a version's own benchmark, in a process of its own."""
    command = [sys.executable, str(version / "benchmarks" / "training.py"), "--parts", "steps", "--json"]
    command += ["--models", model, "--rounds", str(ROUNDS.get(model, FEW)), "--baselines"]
    environment = os.environ | {"PYTHONPATH": str(version / "src")}
    for _ in range(TRIES):  # a model's random weights may fail the check before training
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
        if done.returncode == 0:
            break
    else:
        sys.exit(f"{version} does not run {model}:\n{done.stderr}")
    found = json.loads(done.stdout.splitlines()[-1])[model]
    return {name: found[name] for name in FIGURES} | {"step_s": found["plain_s"] * found["time_ratio"]}


def compared(before: Path, model: str, turns: int) -> dict[str, dict[str, list[float]]]:
    """Every figure of every turn; which version goes first changes from turn to turn."""
    runs: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
    places = {"before": before, "now": HERE}
    for turn in range(turns):
        for name in sorted(runs, reverse=bool(turn % 2)):
            runs[name].append(measured(places[name], model))
            print(f"  {model} {name:6} {runs[name][-1]}", file=sys.stderr)
    return {name: {key: [run[key] for run in each] for key in each[0]} for name, each in runs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, required=True, help="a checkout of the older version")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=SHARED, metavar="MODEL")
    parser.add_argument("--turns", type=int, default=3, help="runs of each version")
    parser.add_argument("--json", action="store_true", help="print every figure as one JSON object on the last line")
    given = parser.parse_args()
    found = {model: compared(given.before.resolve(), model, given.turns) for model in given.models}
    for model, versions in found.items():
        for figure in ("step_s", "time_ratio", "memory_ratio"):
            before, now = (statistics.median(versions[name][figure]) for name in ("before", "now"))
            print(f"{model:10} {figure:13} before {before:.3f}  now {now:.3f}  ×{now / before:.3f}")
    if given.json:
        print(json.dumps(found))


if __name__ == "__main__":
    main()
