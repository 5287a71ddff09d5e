"""The plan as a table for people and as a record for programs."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from lrdp.accounting import Option, Plan
from lrdp.figures import AtMost

WIDTH = 133  # columns that the table needs to stay in one piece

_WORDS = ("mechanism", "accountant", "adjacency")
_NUMBERS = ("σ", "batch", "rows held", "noise on mean", "ε of 1 round", "rounds", "at equal noise")


def record(plan: Plan) -> dict[str, Any]:
    """The whole plan, ready for JSON."""
    training = plan.training
    return {
        "dataset_size": training.dataset_size,
        "batch_size": training.batch_size,
        "rounds": training.rounds,
        "local_steps": training.local_steps,
        "epsilon": training.budget.epsilon,
        "delta": training.budget.delta,
        "options": [_option_record(plan, option) for option in plan.options],
        "recommended": _option_record(plan, plan.recommended),
        "reason": plan.reason,
    }


def table(plan: Plan) -> Table:
    """One row per option, the recommended one in bold."""
    training = plan.training
    result = Table(
        title=f"n = {training.dataset_size}, {training.rounds} rounds of {training.local_steps} steps, "
        f"ε = {training.budget.epsilon} at δ = {training.budget.delta}",
        title_justify="left",
    )
    for heading in _WORDS:
        result.add_column(heading, no_wrap=True)
    for heading in _NUMBERS:
        result.add_column(heading, justify="right")
    for option in plan.options:
        result.add_row(*_cells(option), style="bold green" if option is plan.recommended else None)
    return result


def _cells(option: Option) -> tuple[str, ...]:
    step = option.mechanism
    return (
        step.name,
        option.accountant.name,
        option.accountant.adjacency.value,
        f"{AtMost(step.noise_multiplier)}",
        f"{step.normaliser}",
        "varies" if step.rows is None else f"{step.rows}",
        f"{AtMost(step.noise_on_mean):.5f}",
        f"{AtMost(option.one_round.epsilon):.3f}",
        f"{option.rounds_affordable}",
        f"{option.rounds_at_equal_noise}",
    )


def _option_record(plan: Plan, option: Option) -> dict[str, Any]:
    return {
        "mechanism": option.mechanism.name,
        "accountant": option.accountant.name,
        "adjacency": option.accountant.adjacency.value,
        "noise_multiplier": option.mechanism.noise_multiplier,
        "batch_size": option.mechanism.normaliser,
        "rows_in_memory": option.mechanism.rows,
        "noise_on_mean": option.mechanism.noise_on_mean,
        "epsilon": option.spent.epsilon,
        "delta": option.spent.delta,
        "order": option.spent.order,
        "epsilon_of_one_round": option.one_round.epsilon,
        "rounds_affordable": option.rounds_affordable,
        "rounds_at_equal_noise": option.rounds_at_equal_noise,
        "recommended": option is plan.recommended,
    }
