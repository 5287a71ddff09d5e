"""``lrdp check MODULE:NAME``: can this be trained privately, and what does it cost? Without a federation."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from lrdp import files
from lrdp.commands.output import AsJson, print_json, print_line, screen
from lrdp.commands.settings import SettingsOption, read_settings
from lrdp.errors import InvalidInput, LrdpError, Unsupported
from lrdp.figures import AtMost
from lrdp.screen import visible

if TYPE_CHECKING:
    from lrdp.federation.client.local_task import LocalTask
    from lrdp.training import ModelReport, Task, Trial

Name = Annotated[str | None, typer.Argument(help="MODULE:NAME of a task or a model, or of what makes one.")]
_CLIP_NORM = 1.0
_MIB = 2**20


@dataclass(frozen=True)
class _Verdict:
    """What was found about the layers; for a task also what a step costs, or why it is refused."""

    report: ModelReport
    tried: Trial | None = None
    refused: str = ""
    understood: tuple[str, ...] = ()
    without_loss: str = ""

    @property
    def trainable(self) -> bool:
        return self.report.trainable and not self.refused


def check(
    name: Name = None,
    task: Annotated[str | None, typer.Option(help="MODULE:NAME of a task, or of a private Flower app.")] = None,
    data: Annotated[Path | None, typer.Option(help="Handed to a LocalTask's data set as `data`.")] = None,
    settings: SettingsOption = None,
    rows: Annotated[int, typer.Option(min=1, max=2**20, help="Rows of the step that is measured, or units.")] = 32,
    rows_per_unit: Annotated[
        int | None, typer.Option(min=1, max=2**20, help="The policy's max_rows_per_unit, for a task with units.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say for each layer which rule applies, what is refused and how to mend it; for a task, also what a step costs.

    A model alone is looked at and not run. A Task or LocalTask is tried as an update would be, without a federation.

    Its gradients are compared with torch's, memory is planned, and a step on made-up records runs beside plain SGD.

    Of the data only number and form are looked at, and whether some records have a finite loss. Nothing is charged.

    Example: lrdp check --task package.module:task --data records.csv --set seed=1
    """
    if (name is None) is (task is None):
        raise InvalidInput("name one model or task, as in `lrdp check --task client:task --data FILE`.")
    given = {**read_settings(settings or []), **({} if data is None else {"data": str(files.followed(data))})}
    found = _verdict(str(name or task), given, rows, rows_per_unit)
    if as_json:
        layers = [asdict(layer) for layer in found.report.layers]
        tried = None if found.tried is None else asdict(found.tried)
        verdict = {"trainable": found.trainable, "refused": found.refused or None, "task": tried}
        read = {"understood": found.understood, "records": found.without_loss or None}
        print_json({**verdict, **read, "headroom": found.report.headroom, "layers": layers})
    else:
        screen().print(_table(found))
        for line in _sentences(found):
            print_line(line)
    if not found.trainable:
        raise typer.Exit(Unsupported.exit_code)


def _verdict(name: str, settings: dict[str, Any], rows: int, most_rows: int | None) -> _Verdict:
    from lrdp.federation.client.local_task import LocalTask, prepare_process
    from lrdp.training import Task, loading, trial, understood, unread_records, without_loss
    from lrdp.training import check as inspect

    named = loading.load(name, Task, LocalTask)
    if isinstance(named, LocalTask):
        prepare_process(named)
    task = _local(named, settings, most_rows) if isinstance(named, LocalTask) else named
    if not isinstance(task, Task):
        return _Verdict(inspect(task))
    report = inspect(task.model)
    if not report.trainable:
        return _Verdict(report)
    try:
        tried = trial(task, rows)
        odd = without_loss(unread_records(task.dataset, task.loss), task.model)
        return _Verdict(report, tried, understood=understood(task), without_loss=odd)
    except LrdpError as problem:
        return _Verdict(report, refused=str(problem))


def _local(named: LocalTask, settings: dict[str, Any], most_rows: int | None) -> Task:
    """The task as a client has it."""
    from lrdp.training import Task, loading

    if (named.units is None) is not (most_rows is None):
        raise InvalidInput(
            "a task with units is checked with --rows-per-unit, the policy's max_rows_per_unit, and no other task is."
        )
    try:
        model, grouped = loading.made_by(named.model), named.grouped(named.dataset(settings), most_rows or 1)
    except LrdpError:
        raise
    except Exception as problem:
        raise InvalidInput(
            f"the task's model or data set failed ({type(problem).__name__}: {problem}): its settings are given with "
            f"--data and --set."
        ) from problem
    return Task(
        model=model,
        dataset=grouped.dataset,
        loss=grouped.loss,
        constants=named.constants(_CLIP_NORM),
        execution=named.execution,
        probes=grouped.probes,
    )


def _table(found: _Verdict) -> Table:
    table = Table("layer", "kind", "parameters", "rule", title_justify="left")
    table.add_column("what it costs, or how to mend it", overflow="fold")  # names what to call: never cut off
    table.title = _title(found)
    table.caption_justify = "left"
    clipped = f"Gradients are clipped to {AtMost(1 - found.report.headroom):.2%} of the clip norm"
    table.caption = f"{clipped}; the rest bounds, by proof, what rounding can add."
    for layer in found.report.layers:
        style = "red" if layer.refused else None
        words = layer.refused or layer.cost
        cells = (layer.path, layer.kind, f"{layer.parameters:,}", layer.rule, words)
        table.add_row(*map(visible, cells), style=style)
    return table


def _title(found: _Verdict) -> str:
    if not found.trainable:
        return "Does not train privately yet"
    return "No layer stands in the way" if found.tried is None else "Trains privately as it is"


def _sentences(found: _Verdict) -> list[str]:
    if found.refused:
        return [f"Refused: {found.refused}"]
    if not found.trainable:
        return []
    if found.tried is None:
        return [
            "A model alone was not run: name a Task or LocalTask to have its gradients checked and its cost measured."
        ]
    tried = found.tried
    time, memory = tried.private_seconds / tried.plain_seconds, tried.private_bytes / tried.plain_bytes
    how = f"Its examples run one by one: {tried.alone}." if tried.alone else "Its examples run together."
    return [
        f"{how} The check took {AtMost(tried.seconds_to_check):.1f} s.",
        f"A step of {tried.rows} rows took {AtMost(tried.private_seconds):.3f} s, {AtMost(time):.2f} times plain "
        f"SGD's, and {AtMost(tried.private_bytes / _MIB):.1f} MiB at its peak, {AtMost(memory):.2f} times plain SGD's.",
        f"It runs {tried.memory.micro_batch} rows at a time and was predicted to take at most "
        f"{AtMost(tried.memory.peak_bytes / _MIB):.1f} MiB besides the "
        f"{AtMost(tried.memory.baseline_bytes / _MIB):.0f} MiB that the process has.",
        *found.understood,
        *([f"Beware: {found.without_loss}"] if found.without_loss else []),
        "The step ran on made-up records: of yours the number, the form and the loss of a few were looked at. "
        "Nothing was charged.",
    ]
