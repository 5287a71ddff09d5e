"""The search of a plan as a table for people, as words, and as a record for programs."""

from __future__ import annotations

from typing import Any, Final

from rich.table import Table

from lrdp.accounting import BatchFrontier, Candidate
from lrdp.figures import AtMost

WIDTH = 118  # columns that the table needs to stay in one piece

_WORDS: Final = ("", "mechanism", "accountant")
_NUMBERS: Final = ("batch", "rows a step", "steps", "σ", "noise over training", "rows in all")
_LITTLE: Final = 0.9  # of the noise of small batches: above it, large ones are not worth a word
_FAR_BELOW: Final = 4


def record(frontier: BatchFrontier) -> dict[str, Any]:
    """The whole search, ready for JSON."""
    aim = frontier.aim
    return {
        "dataset_size": aim.dataset_size,
        "passes": aim.passes,
        "rows": aim.rows,
        "epsilon": aim.budget.epsilon,
        "delta": aim.budget.delta,
        "least_steps": aim.least_steps,
        "searched": [_candidate(each) for each in frontier.searched],
        "finalists": [_candidate(each) for each in frontier.finalists],
        "measured_by": [_candidate(each) for each in frontier.measures],
        "recommended": _candidate(frontier.recommended),
        "reason": reason(frontier),
    }


def table(frontier: BatchFrontier) -> Table:
    """What was decided between and what it is measured against, the recommended one in bold."""
    aim, best = frontier.aim, frontier.recommended
    result = Table(
        title=f"n = {aim.dataset_size}, {aim.passes} passes, {aim.rows} rows at a time, "
        f"ε = {aim.budget.epsilon} at δ = {aim.budget.delta}",
        title_justify="left",
    )
    for heading in _WORDS:
        result.add_column(heading, no_wrap=True)
    for heading in _NUMBERS:
        result.add_column(heading, justify="right")
    for each in sorted(frontier.finalists, key=lambda each: each.mechanism.normaliser):
        chosen = each is best
        result.add_row("recommended" if chosen else "also", *_cells(each), style="bold green" if chosen else None)
    result.add_section()
    for each in frontier.measures:
        result.add_row("measured by", *_cells(each))
    return result


def reason(frontier: BatchFrontier) -> str:
    """Why that one, in a few sentences."""
    aim, best = frontier.aim, frontier.recommended
    step = best.mechanism
    words = [
        f"{best.label}, batches of {step.normaliser} in {best.rounds} rounds of {best.local_steps} steps, computed "
        f"{aim.rows} rows at a time, gathers the least noise over training ({AtMost(best.noise_over_training):.3g})"
    ]
    same = [each for each in frontier.measures if each is not frontier.small]
    words += [f"{_share(best, each)} of {each.label} with batches of {each.mechanism.normaliser}" for each in same]
    text = ", ".join(words) + "."
    if best.steps < aim.least_steps:
        text += f" So few passes allow only {best.steps} of the {aim.least_steps} steps that were asked for."
    return f"{text}{_gain(frontier)} It holds for {step.scope}."


def _gain(frontier: BatchFrontier) -> str:
    """What large batches gain here; or that they gain next to nothing."""
    best, near, small = frontier.recommended, frontier.closest, frontier.small
    if small is None:
        return ""
    share, size = best.noise_over_training / small.noise_over_training, small.mechanism.normaliser
    times = f"{AtMost(1 / share):.2f} times the noise in {AtMost(_time(small) / _time(best)):.2f} times the rows"
    if share > _LITTLE:
        return (
            f" There is next to nothing to gain from larger batches at this many passes: batches of {size} have "
            f"{times}."
        )
    text = f" Batches of {size} would have {times}."
    if near.mechanism.normaliser * _FAR_BELOW <= best.mechanism.normaliser:
        text += (
            f" Beyond batches of {near.mechanism.normaliser} ({near.steps} steps) there is at most a tenth to gain: "
            f"at this many passes larger ones save more time than noise."
        )
    return text


def _time(candidate: Candidate) -> float:
    return float(candidate.rows_computed or candidate.mechanism.normaliser * candidate.steps)


def _share(best: Candidate, other: Candidate) -> str:
    return f"{AtMost(best.noise_over_training / other.noise_over_training):.1%}"


def _cells(candidate: Candidate) -> tuple[str, ...]:
    step = candidate.mechanism
    return (
        step.name,
        candidate.accountant.name,
        f"{step.normaliser}",
        "varies" if step.rows is None else f"{step.rows}",
        f"{candidate.steps}",
        f"{AtMost(step.noise_multiplier)}",
        f"{AtMost(candidate.noise_over_training):.3g}",
        "varies" if candidate.rows_computed is None else f"{candidate.rows_computed}",
    )


def _candidate(candidate: Candidate) -> dict[str, Any]:
    step = candidate.mechanism
    return {
        "mechanism": step.name,
        "accountant": candidate.accountant.name,
        "noise_multiplier": step.noise_multiplier,
        "batch_size": step.normaliser,
        "rows_per_step": step.rows,
        "rounds": candidate.rounds,
        "local_steps": candidate.local_steps,
        "steps": candidate.steps,
        "noise_over_training": candidate.noise_over_training,
        "rows_computed": candidate.rows_computed,
        "epsilon": candidate.spent.epsilon,
        "delta": candidate.spent.delta,
        "order": candidate.spent.order,
    }
