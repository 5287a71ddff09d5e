"""What a server's own work costs next to a round of VGG11: asking who can take part, and writing model and state.

Processor seconds of a process that holds the server and all clients, for each round after the first, and wall-clock
seconds of what waits for the disk. With ``--before``, a checkout of another version takes turns with this one, each in
a process of its own: a machine's speed drifts by more than the two differ. Run: make bench-federation_parts
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve()
PARTS = {
    "asking": ("lrdp.federation.server.asking", "Asking", "roster"),
    "model": ("lrdp.federation.server.model_shelf", "ModelShelf", "put"),
    "state": ("lrdp.federation.server.archive", "Archive", "save"),
}
"""What is timed, where a version has it."""


class Stopwatch:
    """Seconds of each part, added up until they are taken."""

    def __init__(self) -> None:
        self._spent: dict[str, float] = defaultdict(float)

    def watch(self, name: str, module: str, kind: str, method: str) -> None:
        try:
            owner = getattr(__import__(module, fromlist=[kind]), kind)
        except ImportError:
            return
        setattr(owner, method, self._timed(name, getattr(owner, method)))

    def _timed(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **named: Any) -> Any:
            began, spent = time.perf_counter(), time.process_time()
            try:
                return act(*given, **named)
            finally:
                self._spent[f"{name}_s"] += time.perf_counter() - began
                self._spent[f"{name}_cpu_s"] += time.process_time() - spent

        return timed

    def take(self) -> dict[str, float]:
        found, self._spent = dict(self._spent), defaultdict(float)
        return found


def one_run(clients: int, rounds: int, steps: int) -> list[dict[str, float]]:
    """A federation of this process's version of the package: what each round after the first took."""
    from federation import Setting, private_side

    logging.disable(logging.WARNING)
    watch = Stopwatch()
    for name, place in PARTS.items():
        watch.watch(name, *place)
    turns = Turns(watch)
    with tempfile.TemporaryDirectory() as folder:
        private_side(Setting(clients, rounds, steps), turns, Path(folder))  # type: ignore[arg-type]
    return turns.rounds[1:]


class Turns:
    """In place of another process to take turns with: notes what each round took."""

    def __init__(self, watch: Stopwatch) -> None:
        self._watch, self._began, self._spent = watch, 0.0, 0.0
        self.rounds: list[dict[str, float]] = []

    def recv(self) -> None:
        self._watch.take()
        self._began, self._spent = time.perf_counter(), time.process_time()

    def send(self, _: object) -> None:
        took = {"round_s": time.perf_counter() - self._began, "round_cpu_s": time.process_time() - self._spent}
        self.rounds.append(took | self._watch.take())


def measured(version: Path, given: argparse.Namespace) -> list[dict[str, float]]:
    """The same of a version's checkout, in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(version / "src")}
    sizes = {"--clients": given.clients, "--rounds": given.rounds, "--steps": given.steps}
    command = [sys.executable, str(HERE), "--once", *(str(word) for pair in sizes.items() for word in pair)]
    done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{version} does not run:\n{done.stderr}")
    found: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def summary(rounds: list[dict[str, float]]) -> dict[str, float]:
    names = {name for each in rounds for name in each}
    return {name: round(median(each.get(name, 0.0) for each in rounds), 4) for name in sorted(names)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--before", type=Path, help="a checkout of another version, to take turns with")
    options.add_argument("--turns", type=int, default=3)
    options.add_argument("--clients", type=int, default=3)
    options.add_argument("--rounds", type=int, default=4)
    options.add_argument("--steps", type=int, default=2, help="local steps of 128 records")
    options.add_argument("--json", action="store_true", help="one object on the last line")
    options.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.once:
        print(json.dumps(one_run(given.clients, given.rounds, given.steps)))
        return
    versions = {"now": HERE.parents[1]} | ({"before": given.before.resolve()} if given.before else {})
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    for _ in range(given.turns):
        for name, version in versions.items():
            rounds[name] += measured(version, given)
    found: dict[str, Any] = {name: summary(each) for name, each in rounds.items()}
    found |= {"clients": given.clients, "local_steps": given.steps, "rounds_measured": len(rounds["now"])}
    found["rounds_cpu_s"] = {name: [round(each["round_cpu_s"], 2) for each in of] for name, of in rounds.items()}
    now = found["now"]
    found["model_share_of_round"] = round(now["model_s"] / now["round_s"], 4)
    found["model_cpu_share_of_round"] = round(now["model_cpu_s"] / now["round_cpu_s"], 4)
    found["asking_cpu_share_of_round"] = round(now["asking_cpu_s"] / now["round_cpu_s"], 4)
    if "before" in found:
        found["round_cpu_ratio"] = round(now["round_cpu_s"] / found["before"]["round_cpu_s"], 3)
    print(json.dumps(found) if given.json else json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
