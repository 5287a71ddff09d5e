"""``lrdp experiments``: the paper's figures, each from a small TOML, and resumed where it stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from lrdp.commands.output import AsJson, print_json, print_line, progress, say
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost

if TYPE_CHECKING:
    from lrdp.experiments.study import Cell
    from lrdp.experiments.study.conducting import ObserveStudy

experiments_app = typer.Typer(help="The paper's evaluation: every figure by one command.", no_args_is_help=True)
_CORES: Final = os.cpu_count() or 1
_NEEDED: Final = ("flwr", "matplotlib", "opacus", "pyarrow", "sklearn", "torch")

SettingsFile = Annotated[Path | None, typer.Option("--settings", help="A TOML in place of the one that is shipped.")]
Changes = Annotated[list[str] | None, typer.Option("--set", help="KEY=VALUE in place of a setting; may be repeated.")]
DataFolder = Annotated[Path, typer.Option("--data-dir", envvar="LRDP_DATA_DIR", help="Where the data sets lie.")]
FeatureFolder = Annotated[
    Path, typer.Option("--features", envvar="LRDP_FEATURES", help="Where features are kept once they are computed.")
]
ResultsFolder = Annotated[Path, typer.Option("--out", help="Where results go; those that are there already are kept.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, max=64, help="How many cells run at a time.")]
OneModel = Annotated[
    str | None,
    typer.Option("--model", help="Run the tasks of models.toml for this model instead: cnn, minilm-lora, vgg11, bert."),
]
FewerSteps = Annotated[
    int | None,
    typer.Option("--steps", min=1, max=2**31, help="Only this many steps, with the noise of the whole training."),
]
Quick = Annotated[bool, typer.Option("--quick", help="A few cells only, to see that it runs.")]


def conduct(name: str, options: Mapping[str, Any], changes: Mapping[str, Any]) -> None:
    """Read the settings, run what is missing, and say what was written.

    Settings and results have the study's name, unless ``options["told"]`` gives another.
    """
    _require_extras()
    from lrdp.experiments.study import Places, read_settings
    from lrdp.experiments.study import conduct as run
    from lrdp.experiments.study.settings import laid_over, shipped

    told = options.get("told", name)
    tables = read_settings(options["settings"] or shipped(told), quick=options["quick"])
    study = import_module(f"lrdp.experiments.{name}").study(laid_over(tables, changes))
    places = Places(data=options["data"], features=options["features"], results=options["out"] / told)
    with _bar() as observe:
        written = run(study, places, options["jobs"], observe)
    if options["as_json"]:
        print_json({"study": name, "written": [str(path) for path in written]})
    else:
        for path in written:
            print_line(str(path))


def read_changes(given: list[str] | None) -> dict[str, Any]:
    """Lines of TOML, as in ``epsilons=[2, 8]`` or ``tasks.mnist.rounds=5``, laid over one another."""
    from lrdp.experiments.study.settings import laid_over
    from lrdp.ledger import read_toml

    found: dict[str, Any] = {}
    for line in given or []:
        found = laid_over(found, read_toml(line, f"--set {line}"))
    try:
        json.dumps(found, allow_nan=False, default=str)
    except ValueError:
        raise InvalidInput("--set takes finite numbers: nan or inf is none, and nothing was run.") from None
    return found


def _require_extras() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise InvalidInput(
            f"{', '.join(missing)} missing: nothing was run; install what experiments need with "
            f"pip install 'lrdp[flower,experiments]'."
        )


class _CellBar:
    """A bar with what is left of a stage, on stderr."""

    def __init__(self, bar: Progress) -> None:
        self._bar, self._number = bar, 0
        self._task = bar.add_task("stage 1", total=None)

    def stage(self, cells: int, kept: int) -> None:
        self._number += 1
        self._bar.reset(self._task, total=cells - kept, description=f"stage {self._number}")
        if kept:
            say(f"Stage {self._number}: {kept} of {cells} cells were run before and are kept.")

    def done(self, cell: Cell, seconds: float) -> None:
        self._bar.update(self._task, advance=1)
        if not self._bar.console.is_terminal:  # a log has no bar, and people still follow it
            say(f"{time.strftime('%H:%M:%S')} {AtMost(seconds):8.1f} s  {cell.label}")


@contextmanager
def _bar() -> Iterator[ObserveStudy]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with progress(*columns) as bar:
        yield _CellBar(bar)


def _command(name: str, help_text: str) -> None:
    @experiments_app.command(
        name, help=f"{help_text}\n\nExample: lrdp experiments {name} --quick --out build/experiments"
    )
    def _run(
        settings: SettingsFile = None,
        changes: Changes = None,
        data: DataFolder = Path("data"),
        features: FeatureFolder = Path("build/features"),
        out: ResultsFolder = Path("build/experiments"),
        jobs: Jobs = _CORES,
        quick: Quick = False,
        as_json: AsJson = False,
    ) -> None:
        options = {
            "settings": settings,
            "data": data,
            "features": features,
            "out": out,
            "jobs": jobs,
            "quick": quick,
            "as_json": as_json,
        }
        conduct(name, options, read_changes(changes))


for _name, _help in {
    "memory": "Bytes per step: ours, Opacus and plain SGD (figure 1).",
    "sensitivity": "What clients, rounds, batches, participation and splits do to accuracy and to each client's ε.",
    "noise": "Noise multipliers for all tasks, ε and accountants; the frontier of cap, rows and noise.",
    "hospitals": "Natural hospitals: metric, ε and memory of each, and what leaving the small ones out does to them.",
}.items():
    _command(_name, _help)


@experiments_app.command("utility")
def _utility(
    settings: SettingsFile = None,
    changes: Changes = None,
    data: DataFolder = Path("data"),
    features: FeatureFolder = Path("build/features"),
    out: ResultsFolder = Path("build/experiments"),
    jobs: Jobs = _CORES,
    quick: Quick = False,
    as_json: AsJson = False,
    model: OneModel = None,
    steps: FewerSteps = None,
) -> None:
    """Accuracy against ε on images and text, beside Opacus's accountants (figures 2 and 3).

    With --model, the paper's own models, or others beyond a linear head; with --steps, only that many of their steps.

    Example: lrdp experiments utility --quick --data-dir data --out build/experiments
    """
    options: dict[str, Any] = {
        "settings": settings,
        "data": data,
        "features": features,
        "out": out,
        "jobs": jobs,
        "quick": quick,
        "as_json": as_json,
    }
    asked: dict[str, Any] = {} if steps is None else {"steps": steps}
    if model is not None:
        options["told"] = "models"
        asked |= {"only_models": [model], "name": model}
    conduct("utility", options, {**asked, **read_changes(changes)})
