"""Commands of the accountant: ``lrdp epsilon``, ``lrdp calibrate`` and ``lrdp plan``."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import track

from lrdp.accounting import (
    Accountant,
    Adjacency,
    Budget,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    GroupAccountant,
    Plan,
    PldAccountant,
    PoissonGaussian,
    PrivacySpent,
    RenyiAccountant,
    SampledGaussian,
    TaylorAccountant,
    TradeOff,
    Training,
    TruncatedPoissonGaussian,
    least_noise,
    options,
    recipes,
    trade_off,
)
from lrdp.commands.output import AsJson, print_json, print_line, print_record, say, screen
from lrdp.commands.paths import replace, write_new
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost
from lrdp.integrity import keys
from lrdp.ledger import BudgetCounting, Holder, PolicyDraft, parse_policy, promised
from lrdp.report import plan_plot, plan_table, risk_figures, risk_plot

Item = TypeVar("Item")


class AccountantName(StrEnum):
    """``--accountant``."""

    RDP = RenyiAccountant.name
    TAYLOR = TaylorAccountant.name
    PLD = PldAccountant.name


class MechanismName(StrEnum):
    """``--mechanism``."""

    FIXED_SIZE = FixedSizeGaussian.name
    FIXED_SIZE_WITH_REPLACEMENT = FixedSizeWithReplacementGaussian.name
    TRUNCATED_POISSON = TruncatedPoissonGaussian.name
    POISSON = PoissonGaussian.name


ClientName = Annotated[str, typer.Option(help="The client's name, as in the registry: a-z, 0-9, '.', '_' and '-'.")]
UnitName = Annotated[str, typer.Option(help="Whom the guarantee protects.")]
DatasetSize = Annotated[
    int, typer.Option("--dataset-size", "-n", help="The client's number of records: a public bound.")
]
BatchSize = Annotated[int, typer.Option("--batch-size", "-b", help="Records per step (expected, for Poisson).")]
Noise = Annotated[float, typer.Option(help="σ: noise on the sum of clipped gradients, over the clip norm.")]
Steps = Annotated[int, typer.Option("--steps", "-t", help="Local steps in all, over all rounds.")]
Delta = Annotated[float, typer.Option(help="Probability that the guarantee may fail.")]
Epsilon = Annotated[float, typer.Option(help="The budget.")]
MechanismOption = Annotated[MechanismName, typer.Option(help="How batches are drawn.")]
Cap = Annotated[int | None, typer.Option(help="Hard cap of a truncated Poisson batch: the rows held in memory.")]
AdjacencyOption = Annotated[Adjacency, typer.Option(help="What counts as neighbouring data sets.")]
AccountantOption = Annotated[
    AccountantName | None,
    typer.Option(help="rdp is exact Rényi, taylor the paper's, pld the tightest (default: rdp where it has a bound)."),
]
GroupSize = Annotated[
    int, typer.Option(min=1, help="Rows of one person that are protected together; exact by pairs, or by the formula.")
]
TaylorOrder = Annotated[int | None, typer.Option(help="m ≥ 3, with --accountant taylor (default: 4)")]


def epsilon(
    dataset_size: DatasetSize,
    batch_size: BatchSize,
    noise_multiplier: Noise,
    steps: Steps,
    delta: Delta,
    mechanism: MechanismOption = MechanismName.FIXED_SIZE,
    cap: Cap = None,
    adjacency: AdjacencyOption = Adjacency.ADD_REMOVE,
    accountant: AccountantOption = None,
    taylor_order: TaylorOrder = None,
    group_size: GroupSize = 1,
    plot: Annotated[Path | None, typer.Option(help="Draw the trade-off curve into this file (.svg, .png).")] = None,
    as_json: AsJson = False,
) -> None:
    """The ε that a number of private steps costs at δ.

    Example: lrdp epsilon -n 5000 -b 128 --noise-multiplier 4.427 --steps 10000 --delta 1e-5
    """
    step = _mechanism(mechanism, dataset_size, batch_size, noise_multiplier, cap)
    books = _accountant(accountant, adjacency, step, taylor_order)
    if group_size > 1:
        books = _group_accountant(accountant, adjacency, group_size)
    _check_steps(steps)
    if plot is not None:
        plan_plot.check(plot)
    spent = books.epsilon({step: steps}, delta)
    curve = trade_off(PldAccountant(adjacency=adjacency, rows=group_size), {step: steps}, delta)
    _print_spent(books, step, steps, spent, as_json, curve.and_also(TradeOff.of_points([spent])))
    if plot is not None:
        replace(plot, risk_plot.draw(curve, plot))


def calibrate(
    dataset_size: DatasetSize,
    batch_size: BatchSize,
    epsilon: Epsilon,
    steps: Steps,
    delta: Delta,
    mechanism: MechanismOption = MechanismName.FIXED_SIZE,
    cap: Cap = None,
    adjacency: AdjacencyOption = Adjacency.ADD_REMOVE,
    accountant: AccountantOption = None,
    taylor_order: TaylorOrder = None,
    as_json: AsJson = False,
) -> None:
    """The smallest noise multiplier that stays within (ε, δ) over that many steps.

    Example: lrdp calibrate -n 5000 -b 128 --epsilon 8 --steps 10000 --delta 1e-5 --accountant pld
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    step = _mechanism(mechanism, dataset_size, batch_size, 1.0, cap)
    books = _accountant(accountant, adjacency, step, taylor_order)
    _check_steps(steps)
    found = least_noise(step, steps, budget, books)
    _print_spent(books, found.mechanism, steps, found.spent, as_json)


def plan(
    dataset_size: DatasetSize,
    batch_size: Annotated[int, typer.Option("--batch-size", "-b", help="Rows that a step may hold in memory.")],
    rounds: Annotated[int, typer.Option(help="Rounds that the client is to take part in.")],
    local_steps: Annotated[int, typer.Option(help="Private steps per round.")],
    epsilon: Epsilon,
    delta: Delta,
    plot: Annotated[Path | None, typer.Option(help="Draw ε against rounds into this file (.svg, .png, .pdf).")] = None,
    write: Annotated[Path | None, typer.Option(help="Write the policy that is recommended to this new file.")] = None,
    client: ClientName = "client",
    unit: UnitName = "person",
    as_json: AsJson = False,
) -> None:
    """All mechanisms and accountants side by side, and which one to choose.

    Example: lrdp plan -n 30000 -b 128 --rounds 50 --local-steps 39 --epsilon 8 --delta 1e-5 --write policy.toml
    """
    training = Training(
        dataset_size=dataset_size,
        batch_size=batch_size,
        rounds=rounds,
        local_steps=local_steps,
        budget=Budget(epsilon=epsilon, delta=delta),
    )
    keys.require_name(client)
    holder = Holder(client=client, unit=unit, max_rows_per_unit=1)
    if plot is not None:
        plan_plot.check(plot)
    planned = Plan(
        training=training, options=tuple(_progress(options(training), len(recipes()), "Calibrating", as_json))
    )
    if plot is not None:
        curves = _progress(plan_plot.curves(planned), len(planned.options), "Drawing", as_json)
        replace(plot, plan_plot.draw(planned, list(curves), plot))
    rounds_promised = None if write is None else _write_recommended(planned, holder, write)
    if as_json:
        print_json({**plan_table.record(planned), "policy": write and str(write), "rounds_promised": rounds_promised})
    else:
        screen(least_width=plan_table.WIDTH).print(plan_table.table(planned))
        print_line(f"Recommended: {planned.reason}")
    if write is not None:
        say(f"Wrote {write}: its budget lasts for {rounds_promised} rounds of {local_steps} steps.")
        say("Read it, every line is explained; then open the budget with `lrdp init` in its folder.")


def _write_recommended(planned: Plan, holder: Holder, path: Path) -> int:
    """The policy of the recommended option in a new file; how many rounds its ledger will admit."""
    best = planned.recommended
    counting = BudgetCounting.RESERVED if best.accountant.name == PldAccountant.name else BudgetCounting.RENYI
    text = PolicyDraft(holder=holder, training=planned.training, step=best.mechanism, counting=counting).text()
    rounds = promised(parse_policy(text, source=path.name)).kept().rounds
    write_new(path, text.encode())
    return rounds


def _mechanism(
    name: MechanismName, dataset_size: int, batch_size: int, noise_multiplier: float, cap: int | None
) -> SampledGaussian:
    common: dict[str, Any] = {
        "dataset_size": dataset_size,
        "batch_size": batch_size,
        "noise_multiplier": noise_multiplier,
    }
    if name is MechanismName.TRUNCATED_POISSON:
        if cap is None:
            raise InvalidInput("--cap is required with --mechanism truncated-poisson: batches are cut at it.")
        return TruncatedPoissonGaussian(**common, cap=cap)
    if cap is not None:
        raise InvalidInput(f"--cap={cap} is only for --mechanism truncated-poisson: {name.value} cuts no batch.")
    kinds = {kind.name: kind for kind in (FixedSizeGaussian, FixedSizeWithReplacementGaussian, PoissonGaussian)}
    return kinds[name.value](**common)


def _accountant(
    name: AccountantName | None, adjacency: Adjacency, step: SampledGaussian, taylor_order: int | None
) -> Accountant:
    if taylor_order is not None and name is not AccountantName.TAYLOR:
        raise InvalidInput(f"--taylor-order={taylor_order} is only for --accountant taylor: no other has terms.")
    if name is AccountantName.TAYLOR:
        return TaylorAccountant(adjacency=adjacency, terms=4 if taylor_order is None else taylor_order)
    without_rdp = isinstance(step, FixedSizeWithReplacementGaussian)
    if name is AccountantName.PLD or (name is None and without_rdp):
        return PldAccountant(adjacency=adjacency)
    return RenyiAccountant(adjacency=adjacency)


def _group_accountant(name: AccountantName | None, adjacency: Adjacency, rows: int) -> Accountant:
    if name not in (None, AccountantName.PLD):
        raise InvalidInput(
            f"--accountant {name.value} has no --group-size={rows}: rows together are accounted by loss distributions, "
            f"so leave --accountant out."
        )
    return GroupAccountant(adjacency=adjacency, rows=rows)


def _check_steps(steps: int) -> None:
    if steps < 1:
        raise InvalidInput(f"steps must be at least 1, got {steps}: without a step nothing is released or spent.")


def _print_spent(
    books: Accountant,
    step: SampledGaussian,
    steps: int,
    spent: PrivacySpent,
    as_json: bool,
    risk: TradeOff | None = None,
) -> None:
    if spent.at_edge:
        say(
            f"Note: the best Rényi order, {spent.order}, is at the edge of those tried; the figure holds but may be "
            f"loose, so try --accountant pld."
        )
    record: dict[str, Any] = {
        "epsilon": AtMost(spent.epsilon),
        "delta": spent.delta,
        "order": spent.order,
        "mechanism": step.name,
        "adjacency": books.adjacency.value,
        "accountant": books.name,
        # As it was given, or in the six digits in which it was found.
        "noise_multiplier": step.noise_multiplier,
        "steps": steps,
        "dataset_size": step.dataset_size,
        "batch_size": step.batch_size,
        "cap": getattr(step, "cap", None),
        "noise_on_mean": AtMost(step.noise_on_mean),
    }
    print_record(record | ({} if risk is None else risk_figures.record(risk.risk, risk if as_json else None)), as_json)


def _progress(items: Iterable[Item], total: int, label: str, quiet: bool) -> Iterable[Item]:
    console = screen(stderr=True)
    return track(items, label, total, console=console, transient=True, disable=quiet or not console.is_terminal)
