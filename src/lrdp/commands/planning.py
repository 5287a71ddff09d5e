"""``lrdp plan``: how to spend a budget, before anything is spent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import track

from lrdp.accounting import (
    LEAST_STEPS,
    Accountant,
    BatchFrontier,
    Budget,
    Plan,
    PldAccountant,
    SizedGaussian,
    Training,
    TrainingAim,
    baselines,
    calibrated,
    close,
    finals,
    kept,
    options,
    recipes,
    trials,
)
from lrdp.commands.accounting import DatasetSize, Delta, Epsilon
from lrdp.commands.output import AsJson, print_json, print_line, say, screen
from lrdp.commands.own_rules import ClientName, ClippedOption, RowsPerUnit, TaskName, UnitName, given, of_raising
from lrdp.commands.paths import replace, write_new
from lrdp.commands.peers import MinRoster, Pins, RegistryToPin, SchemeOption, ServerKeys, pinned
from lrdp.errors import InvalidInput
from lrdp.integrity import require_name
from lrdp.ledger import BudgetCounting, Clipped, Holder, PeersRule, PolicyDraft, parse_policy, promised, require_task
from lrdp.report import frontier_plot, frontier_table, plan_plot, plan_table, starting_values

Item = TypeVar("Item")
_USUAL_ROWS = 32
_OF_A_POLICY = (
    *("client", "unit", "rows_per_unit", "clipped"),
    *("registry", "server_key", "min_roster", "scheme", "task"),
)


@dataclass(frozen=True, kw_only=True)
class _Writing:
    """Where the recommended policy is written, if anywhere, and what it says that no plan decides."""

    path: Path | None
    holder: Holder
    peers: PeersRule
    task: str

    def done(self, training: Training, step: SizedGaussian, accountant: Accountant) -> dict[str, Any]:
        """Write it to a new file; returns its path, and how many rounds its ledger will admit."""
        if self.path is None:
            return {"policy": None, "rounds_promised": None}
        counting = BudgetCounting.RESERVED if accountant.name == PldAccountant.name else BudgetCounting.RENYI
        drafted = PolicyDraft(
            holder=self.holder, training=training, step=step, counting=counting, peers=self.peers, task=self.task
        )
        promise = promised(parse_policy(drafted.text(), source=self.path.name)).kept()
        write_new(self.path, drafted.text().encode())
        say(f"Wrote {self.path}: its budget lasts for {promise.rounds} rounds of {training.local_steps} steps.")
        say(of_raising(promise.rule))
        say("Read it, every line is explained; then open the budget with `lrdp init` in its folder.")
        return {"policy": str(self.path), "rounds_promised": promise.rounds}


def plan(
    context: typer.Context,
    dataset_size: DatasetSize,
    epsilon: Epsilon,
    delta: Delta,
    passes: Annotated[float | None, typer.Option(help="Passes over the data (epochs): search batch and steps.")] = None,
    rows: Annotated[
        int | None, typer.Option(help=f"Rows computed at a time, with --passes: memory (default: {_USUAL_ROWS}).")
    ] = None,
    least_steps: Annotated[
        int | None, typer.Option(help=f"Steps that the optimiser needs, with --passes (default: {LEAST_STEPS}).")
    ] = None,
    local_steps: Annotated[int | None, typer.Option(help="Private steps per round.")] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", "-b", help="Instead of --passes: rows that a step holds at once.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds that the client takes part in, with -b.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the comparison into this file (.svg, .png, .pdf).")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the policy that is recommended to this new file.")] = None,
    client: ClientName = "client",
    unit: UnitName = "person",
    rows_per_unit: RowsPerUnit = 1,
    clipped: ClippedOption = Clipped.ROWS,
    registry: RegistryToPin = None,
    server_key: ServerKeys = None,
    min_roster: MinRoster = None,
    scheme: SchemeOption = None,
    task: TaskName = "",
    as_json: AsJson = False,
) -> None:
    """Which mechanism, which batch, how many steps: all side by side, and which to choose.

    With --passes batches may be larger than memory holds; with -b, --rounds and --local-steps all hold the same rows.

    What no plan decides, from --client to --task, goes into the policy that --write writes, as with lrdp init.

    Example: lrdp plan -n 30000 --passes 5 --rows 32 --epsilon 8 --delta 1e-5 --write policy.toml
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    _one_view(passes, {"--rows": rows, "--least-steps": least_steps}, {"-b": batch_size, "--rounds": rounds})
    _for_a_policy(given(context))
    require_name(client)
    if task:
        require_task(task)
    if write is not None:
        _require_room(write)
    writing = _Writing(
        path=write,
        holder=Holder(client=client, unit=unit, max_rows_per_unit=rows_per_unit, clipped=clipped),
        peers=pinned(client, Pins(registry, server_key, min_roster, scheme), PeersRule()),
        task=task,
    )
    if passes is not None:
        aim = TrainingAim(
            dataset_size=dataset_size,
            passes=passes,
            rows=_USUAL_ROWS if rows is None else rows,
            budget=budget,
            least_steps=LEAST_STEPS if least_steps is None else least_steps,
            local_steps=local_steps,
        )
        _by_passes(aim, plot, writing, as_json)
    else:
        training = Training(
            dataset_size=dataset_size,
            batch_size=_given("-b", batch_size),
            rounds=_given("--rounds", rounds),
            local_steps=_given("--local-steps", local_steps),
            budget=budget,
        )
        _at_equal_rows(training, plot, writing, as_json)


def _require_room(path: Path) -> None:
    """Said before the search, which takes a while."""
    if path.exists() or not path.parent.is_dir():
        why = "is already there" if path.exists() else "would lie in no folder"
        raise InvalidInput(f"--write {path} {why}: nothing was computed or written.")


def _for_a_policy(asked: dict[str, Any]) -> None:
    """What only a policy says is not ignored where none is written."""
    wasted = [name for name in _OF_A_POLICY if name in asked]
    if wasted and "write" not in asked:
        option = wasted[0].replace("_", "-")
        raise InvalidInput(f"--{option} only has a meaning with --write, for the policy: nothing was computed.")


def _one_view(passes: float | None, with_passes: dict[str, int | None], without: dict[str, int | None]) -> None:
    """Numbers of one comparison say nothing in the other, so they are not ignored."""
    wrong, where = (without, "without") if passes is not None else (with_passes, "with")
    for name, value in wrong.items():
        if value is not None:
            raise InvalidInput(f"{name}={value} only has a meaning {where} --passes: nothing was computed.")


def _given(name: str, value: int | None) -> int:
    if value is None:
        raise InvalidInput(f"{name} is missing: give --passes, or -b, --rounds and --local-steps to hold all at once.")
    return value


def _by_passes(aim: TrainingAim, plot: Path | None, writing: _Writing, as_json: bool) -> None:
    if plot is not None:
        plan_plot.check(plot)
    found = _searched(aim, as_json)
    best = found.recommended
    if plot is not None:
        replace(plot, frontier_plot.draw(found, plot))
    training = Training(
        dataset_size=aim.dataset_size,
        batch_size=aim.rows,
        rounds=best.rounds,
        local_steps=best.local_steps,
        budget=aim.budget,
    )
    affords = writing.done(training, best.mechanism, best.accountant)
    if as_json:
        print_json({**frontier_table.record(found), **affords, **_start(training, best.mechanism)})
    else:
        screen(least_width=frontier_table.WIDTH).print(frontier_table.table(found))
        print_line(f"Recommended: {frontier_table.reason(found)}")
        _print_start(training, best.mechanism)


def _searched(aim: TrainingAim, quiet: bool) -> BatchFrontier:
    """By Rényi orders first, then by loss distributions among the best, then what the best is compared with."""

    def run(tried: list[Any], label: str) -> Iterable[Any]:
        return _progress((calibrated(aim, each) for each in tried), len(tried), label, quiet)

    searched = kept(run(trials(aim), "Searching"))
    decided = tuple(each for each in run(finals(aim, searched), "Deciding") if each is not None)
    finalists = decided or close(aim, searched)  # where loss distributions resolve no such budget, orders decide
    best = BatchFrontier(aim=aim, searched=searched, finalists=finalists).recommended
    measures = tuple(each for each in run(baselines(aim, searched, best), "Measuring") if each is not None)
    return BatchFrontier(aim=aim, searched=searched, finalists=finalists, measures=measures)


def _at_equal_rows(training: Training, plot: Path | None, writing: _Writing, as_json: bool) -> None:
    if plot is not None:
        plan_plot.check(plot)
    total = len(recipes(training))
    planned = Plan(training=training, options=tuple(_progress(options(training), total, "Calibrating", as_json)))
    if plot is not None:
        curves = _progress(plan_plot.curves(planned), len(planned.options), "Drawing", as_json)
        replace(plot, plan_plot.draw(planned, list(curves), plot))
    best = planned.recommended
    affords = writing.done(training, best.mechanism, best.accountant)
    if as_json:
        print_json({**plan_table.record(planned), **affords, **_start(training, best.mechanism)})
    else:
        screen(least_width=plan_table.WIDTH).print(plan_table.table(planned))
        print_line(f"Recommended: {planned.reason}")
        _print_start(training, best.mechanism)


def _start(training: Training, step: SizedGaussian) -> dict[str, Any]:
    values = starting_values.starting_values(step, training.steps, training.local_steps)
    return {"starting_values": starting_values.record(values)}


def _print_start(training: Training, step: SizedGaussian) -> None:
    print_line("Start from:")
    for value in starting_values.starting_values(step, training.steps, training.local_steps):
        print_line(f"  {value.text}")


def _progress(items: Iterable[Item], total: int, label: str, quiet: bool) -> Iterable[Item]:
    console = screen(stderr=True)
    return track(items, label, total, console=console, transient=True, disable=quiet or not console.is_terminal)
