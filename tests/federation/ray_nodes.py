"""Two Ray nodes on this machine, each of `ray start`, and a recipe that notes on which of them it was asked.

As a program: a federation on the cluster at an address, in a new folder, with notes in another; prints its summary.
A process of its own, since Ray reads a token once in each.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

STARTED = "Ray runtime started"
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


@dataclass(frozen=True, kw_only=True)
class Noting:
    """Makes the same app, and leaves a file named for the node and the client in a folder."""

    recipe: Callable[[Mapping[str, Any]], Any]
    folder: Path

    def __call__(self, settings: Mapping[str, Any]) -> Any:
        import ray

        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{ray.get_runtime_context().get_node_id()}-{settings['partition-id']}").touch()
        return self.recipe(settings)


@contextmanager
def two_nodes(folder: Path, port: int, before_the_second: Sequence[str] = ()) -> Iterator[dict[str, str]]:
    """Yields the environment that a process needs to join them; nobody joins without its token."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    environment = {**os.environ, **QUIET, **token}
    each = ["--block", "--num-cpus=1", "--object-store-memory=100000000", "--disable-usage-stats"]
    head = ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"]
    ray = str(Path(sys.executable).with_name("ray"))
    started = []
    try:
        for name, words in (
            ("head", [ray, "start", *head, *each]),
            ("second", [*before_the_second, ray, "start", f"--address=127.0.0.1:{port}", *each]),
        ):
            started.append(_started(words, folder / f"{name}.log", environment))
        yield environment
    finally:
        for process in reversed(started):
            _ended(process)


def _started(words: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        process = subprocess.Popen(words, stdout=file, stderr=file, env=environment, start_new_session=True)
    deadline = time.monotonic() + 120
    while STARTED not in log.read_text(encoding="utf-8"):
        if process.poll() is not None or time.monotonic() > deadline:
            _ended(process)
            raise RuntimeError(log.read_text(encoding="utf-8"))
        time.sleep(0.1)
    return process


def _ended(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def main(address: str, folder: str, notes: str) -> None:
    from lrdp.experiments import demo
    from lrdp.experiments.story import Story
    from lrdp.federation.local.simulation import in_ray_cluster

    def engine(federation: Any) -> None:
        # Under the name by which workers can import it.
        from federation.ray_nodes import Noting as Importable

        noting = Importable(recipe=federation.recipe, folder=Path(notes))
        in_ray_cluster(replace(federation, recipe=noting), address=address)

    story = Story(clients=6, rounds=3, local_steps=1, cheats=False)
    sys.stdout.write(json.dumps(demo.run(story, Path(folder), engine, lambda _attempt: None)))


if __name__ == "__main__":
    main(*sys.argv[1:])
