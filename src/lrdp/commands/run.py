"""``lrdp run``: a real federation on this machine, with everything that can go wrong going wrong once."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from lrdp.commands.output import print_json, print_line, progress, say, screen
from lrdp.errors import InvalidInput, LrdpError
from lrdp.report import run_table

if TYPE_CHECKING:
    from lrdp.federation.local.simulation import Federation

_MODULE: Final = [sys.executable, "-m", "lrdp"]
_NEEDED: Final = ("flwr", "ray", "sklearn", "torch")
_OFFLINE: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's own default from its next version on; without it, it warns.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nobody is told that a hospital runs this."""

Record = Mapping[str, Any]
ShowRecord = Callable[[Record], None]


class Venue(StrEnum):
    """Where clients run."""

    RAY = "ray"
    IN_PROCESS = "in-process"


def run(
    clients: Annotated[int, typer.Option(help="How many hospitals: 3 to 26.")] = 6,
    rounds: Annotated[
        int, typer.Option(help="Rounds to complete; one in which the server is caught is repeated.")
    ] = 12,
    local_steps: Annotated[int, typer.Option(help="Private steps per round.")] = 5,
    epsilon: Annotated[float, typer.Option(help="Budget of the first hospital; others have a share of it.")] = 8.0,
    folder: Annotated[Path | None, typer.Option(help="A new folder for ledgers and receipts.")] = None,
    engine: Annotated[Venue, typer.Option(help="Flower's simulation on Ray, or one process.")] = Venue.RAY,
    ray_address: Annotated[
        str | None, typer.Option(help="Join the Ray cluster at HOST:PORT, or `auto`; --folder is on all its machines.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per round, then the summary.")] = False,
) -> None:
    """A federation on this machine: clients come and go, one is killed, one refuses, and the server is caught.

    Example: lrdp run --clients 4 --rounds 3 --folder my-run
    """
    _require_extras()
    os.environ.update({name: value for name, value in _OFFLINE.items() if name not in os.environ})
    from lrdp.experiments import demo
    from lrdp.experiments.story import Story

    story = Story(clients=clients, rounds=rounds, local_steps=local_steps, epsilon=epsilon)
    where = folder or Path(time.strftime("lrdp-run-%Y%m%d-%H%M%S"))
    start = _engine(engine, ray_address)
    with _until_it_ends(where), _as_lines() if as_json else _on_screen(story.attempts, engine) as show:
        summary = demo.run(story, where, start, lambda attempt: show(attempt.as_record()))
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


def _engine(engine: Venue, ray_address: str | None) -> Callable[[Federation], None]:
    from lrdp.federation.local.simulation import in_one_process, in_ray, in_ray_cluster

    if ray_address is None:
        return {Venue.RAY: in_ray, Venue.IN_PROCESS: in_one_process}[engine]
    if engine is not Venue.RAY:
        raise InvalidInput(
            f"--ray-address {ray_address} needs --engine ray, got {engine.value}: leave one of them out."
        )
    return partial(in_ray_cluster, address=ray_address)


def _require_extras() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"{', '.join(missing)} missing: nothing was run; install what it needs with "
            f"pip install 'lrdp[flower,experiments]'."
        )


@contextmanager
def _until_it_ends(folder: Path) -> Iterator[None]:
    """Say what ended a run: a person, a refusal of our own, or Ray; Flower wraps errors that it did not expect."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"Ledgers and receipts of the rounds so far are in {_here(folder)}: what was charged stays charged.")
        raise
    except RuntimeError as problem:
        causes = list(_causes(problem))
        ours = [cause for cause in causes if isinstance(cause, LrdpError)]
        if ours:
            raise ours[-1] from None
        raise InvalidInput(
            f"the simulation ended early ({type(causes[-1]).__name__}: {causes[-1]}); what was charged stays charged, "
            f"books and logs are in {_here(folder)}; --engine in-process runs without Ray."
        ) from None


def _causes(problem: BaseException) -> Iterator[BaseException]:
    """The problem, what led to it, what led to that."""
    yield problem
    before = problem.__cause__ or problem.__context__
    if before is not None:
        yield from _causes(before)


@contextmanager
def _as_lines() -> Iterator[ShowRecord]:
    yield print_json


@contextmanager
def _on_screen(attempts: int, engine: Venue) -> Iterator[ShowRecord]:
    """A line for each attempt, above a bar; on stderr, since none of it is the result."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress(*columns) as bar:
        task = bar.add_task("starting Ray" if engine is Venue.RAY else "starting", total=attempts)

        def show(record: Record) -> None:
            bar.console.print(run_table.line(record), soft_wrap=True)
            bar.update(task, advance=1, description="rounds")

        yield show


def _print_summary(summary: Record) -> None:
    screen().print(run_table.table(summary))
    for sentence in run_table.sentences(summary):
        print_line(sentence)
    print_line("")
    print_line(f"Ledgers, receipts and logs are in {_here(summary['folder'])}. Look further:")
    for command in _commands(summary):
        print_line(f"  {command}")


def _commands(summary: Record) -> list[str]:
    """Lines that work when they are pasted, in this shell."""
    called = Path(sys.argv[0])
    program = ["lrdp"] if shutil.which("lrdp") else [str(called)] if called.name == "lrdp" else _MODULE
    refused = [client for client in summary["clients"] if client["refusals"]] or summary["clients"]
    lost = [client for client in summary["clients"] if client["lost"]] or summary["clients"]
    words = (
        ["statement", "--folder", _here(refused[0]["folder"])],
        ["ledger", "show", "--folder", _here(lost[0]["folder"])],
        ["verify", _here(summary["receipts"]), "--pin", summary["registry_sha256"]],
    )
    return [shlex.join([*program, *each]) for each in words]


def _here(path: str | Path) -> str:
    """As short as it can be written from the working directory."""
    return os.path.relpath(path) if Path(path).is_relative_to(Path.cwd()) else str(path)
