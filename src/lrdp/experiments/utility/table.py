"""The study's table: a row for each task, method and ε."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean
from typing import Any

from lrdp.experiments.study import Results
from lrdp.experiments.utility.plan import UtilityPlan, rows_of
from lrdp.experiments.utility.settings import Method
from lrdp.experiments.utility.statistics import error_of_test_set, gap, spread


def rows(plan: UtilityPlan, results: Results) -> list[dict[str, Any]]:
    """All of them. What has no privacy is run once, and stands at every ε."""
    return [
        _row(plan, results, (task, name, epsilon), shown)
        for task in plan.settings.chosen_tasks
        for name, method, epsilon in plan.lines(task)
        for shown in _shown(plan, task, method, epsilon)
    ]


def _shown(plan: UtilityPlan, task: str, method: Method, epsilon: float) -> Iterator[float]:
    yield from (epsilon,) if method.private else plan.settings.shown_epsilons(plan.settings.tasks[task])


def by_seed(results: Results, task: str, method: str, epsilon: float) -> dict[int, float]:
    """Test accuracies in percent."""
    found = results.where(stage="final", task=task, method=method, epsilon=epsilon)
    return {cell["seed"]: 100 * result["test"] for cell, result in found}


def _row(plan: UtilityPlan, results: Results, line: tuple[str, str, float], shown: float) -> dict[str, Any]:
    task, name, epsilon = line
    found = list(results.where(stage="final", task=task, method=name, epsilon=epsilon))
    scores = by_seed(results, *line)
    values, mean = found[0][0].values, fmean(scores.values())
    rates = plan.settings.rates_of(task)
    return {
        "task": task,
        "method": name,
        "epsilon": shown,
        "accuracy": mean,
        "deviation": spread(list(scores.values())),
        "seeds": len(scores),
        **_gap(plan, results, line, shown, scores),
        "control_gap": _control_gap(plan, results, line, scores),
        "test_set_error": error_of_test_set(mean, found[0][1]["tested"]),
        "test_records": found[0][1]["tested"],
        "validation": 100 * fmean(result["validation"] for _, result in found),
        "rate": values["rate"],
        "rate_at_edge": values["rate"] in (min(rates), max(rates)),
        **_noise(plan, results, line),
        "dataset_size": values["mechanism"]["dataset_size"],
        "batch_size": values["mechanism"]["batch_size"],
        "rows": rows_of(values["mechanism"]),
        "rounds": values["rounds"],
        "local_steps": values["local_steps"],
        "clipped_coordinates": sum(result["clipped"] for _, result in found),
        "seconds": fmean(result["seconds"] for _, result in found),
    }


def _gap(
    plan: UtilityPlan, results: Results, line: tuple[str, str, float], shown: float, scores: dict[int, float]
) -> dict[str, Any]:
    """To the baseline at the same ε; empty where that was not run, or is this one."""
    names = ("gap", "paired_low", "paired_high", "independent_low", "independent_high")
    theirs = by_seed(results, line[0], plan.settings.baseline, shown)
    if not theirs or line[1] == plan.settings.baseline:
        return dict.fromkeys(names)
    found = gap(scores, theirs)
    return dict(zip(names, (found.mean, *found.paired, *found.independent), strict=True))


def _control_gap(
    plan: UtilityPlan, results: Results, line: tuple[str, str, float], scores: dict[int, float]
) -> float | None:
    """Of a control to the method whose rates it takes, over the seeds that it was run with."""
    other = plan.settings.methods[line[1]].rates_of
    theirs = by_seed(results, line[0], other, line[2]) if other else {}
    return gap(scores, theirs).mean if theirs else None


def _noise(plan: UtilityPlan, results: Results, line: tuple[str, str, float]) -> dict[str, Any]:
    names = ("noise_multiplier", "epsilon_own", "epsilon_rdp", "epsilon_pld", "cut_probability")
    if not line[2]:
        return dict.fromkeys(names)
    found = results.of(plan.noise_cell(results, *line))
    return {name: found[name] for name in names}
