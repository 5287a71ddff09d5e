"""Commands of the accountant: ``lrdp epsilon`` and ``lrdp calibrate``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from lrdp.accounting import (
    Accountant,
    Adjacency,
    Budget,
    GroupAccountant,
    Mechanism,
    PldAccountant,
    PrivacySpent,
    RenyiAccountant,
    SizedGaussian,
    TaylorAccountant,
    TradeOff,
    least_noise,
    trade_off,
)
from lrdp.commands.output import AsJson, print_record, say
from lrdp.commands.paths import replace
from lrdp.commands.steps import takes_step
from lrdp.errors import InvalidInput, Unsupported
from lrdp.figures import AtMost
from lrdp.report import plan_plot, risk_figures, risk_plot


class AccountantName(StrEnum):
    """``--accountant``."""

    RDP = RenyiAccountant.name
    TAYLOR = TaylorAccountant.name
    PLD = PldAccountant.name


DatasetSize = Annotated[
    int, typer.Option("--dataset-size", "-n", help="The client's number of records: a public bound.")
]
StepsInAll = Annotated[int, typer.Option("--steps", "-t", help="Local steps in all, over all rounds.")]
Delta = Annotated[float, typer.Option(help="Probability that the guarantee may fail.")]
Epsilon = Annotated[float, typer.Option(help="The budget.")]
AdjacencyOption = Annotated[Adjacency, typer.Option(help="What counts as neighbouring data sets.")]
AccountantOption = Annotated[
    AccountantName | None,
    typer.Option(help="rdp is exact Rényi, taylor the paper's, pld the tightest (default: rdp where it has a bound)."),
]
GroupSize = Annotated[
    int, typer.Option(min=1, help="Rows of one person that are protected together; exact by pairs, or by the formula.")
]
TaylorOrder = Annotated[int | None, typer.Option(help="m ≥ 3, with --accountant taylor (default: 4)")]


@takes_step()
def epsilon(
    step: Mechanism,
    steps: StepsInAll,
    delta: Delta,
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
    books = _accountant(accountant, adjacency, step, taylor_order)
    if group_size > 1:
        books = _group_accountant(accountant, adjacency, group_size)
    _check_steps(steps)
    if plot is not None:
        plan_plot.check(plot)
    spent = books.epsilon({step: steps}, delta)
    curve = trade_off(PldAccountant(adjacency=adjacency, rows=group_size), {step: steps}, delta)
    if plot is not None:
        replace(plot, risk_plot.draw(curve, plot))
    _print_spent(books, step, steps, spent, as_json, curve.and_also(TradeOff.of_points([spent])))


@takes_step(noise_multiplier=1.0)
def calibrate(
    step: Mechanism,
    epsilon: Epsilon,
    steps: StepsInAll,
    delta: Delta,
    adjacency: AdjacencyOption = Adjacency.ADD_REMOVE,
    accountant: AccountantOption = None,
    taylor_order: TaylorOrder = None,
    as_json: AsJson = False,
) -> None:
    """The smallest noise multiplier that stays within (ε, δ) over that many steps.

    Example: lrdp calibrate -n 5000 -b 128 --epsilon 8 --steps 10000 --delta 1e-5 --accountant pld
    """
    budget = Budget(epsilon=epsilon, delta=delta)
    books = _accountant(accountant, adjacency, step, taylor_order)
    _check_steps(steps)
    found = least_noise(step, steps, budget, books)
    _print_spent(books, found.mechanism, steps, found.spent, as_json)


def _accountant(
    name: AccountantName | None, adjacency: Adjacency, step: Mechanism, taylor_order: int | None
) -> Accountant:
    if taylor_order is not None and name is not AccountantName.TAYLOR:
        raise InvalidInput(f"--taylor-order={taylor_order} is only for --accountant taylor: no other has terms.")
    if name is AccountantName.TAYLOR:
        return TaylorAccountant(adjacency=adjacency, terms=4 if taylor_order is None else taylor_order)
    exact = RenyiAccountant(adjacency=adjacency)
    if name is AccountantName.PLD or (name is None and not _has_bound(exact, step)):
        return PldAccountant(adjacency=adjacency)
    return exact


def _has_bound(exact: RenyiAccountant, step: Mechanism) -> bool:
    step.dominating_pair(exact.adjacency)  # without a pair there is no accountant to fall back on, and it says so
    try:
        exact.epsilon({step: 1}, 0.5)
    except Unsupported:
        return False
    return True


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
    books: Accountant, step: Mechanism, steps: int, spent: PrivacySpent, as_json: bool, risk: TradeOff | None = None
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
        **({"group_size": books.rows} if isinstance(books, GroupAccountant) else {}),
        # As it was given, or with the six digits with which it was found.
        "noise_multiplier": step.noise_multiplier,
        "steps": steps,
        **{name: getattr(step, name, None) for name in ("dataset_size", "batch_size", "cap", *step.numbers)},
    }
    if isinstance(step, SizedGaussian):
        record["noise_on_mean"] = AtMost(step.noise_on_mean)
    print_record(record | ({} if risk is None else risk_figures.record(risk.risk, risk if as_json else None)), as_json)
