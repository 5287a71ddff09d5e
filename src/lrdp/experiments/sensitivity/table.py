"""The study's results as flat rows: parameters first, then claims, then ledgers."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any, Final

from lrdp.experiments.sensitivity.plan import Line, SensitivityPlan
from lrdp.experiments.study import Results
from lrdp.experiments.utility.statistics import interval, spread

_COLUMNS: Final = (
    *("table", "task", "method", "epsilon", "parameter", "value", "base", "rate", "seeds", "accuracy", "deviation"),
    *("accuracy_low", "accuracy_high", "noise_multiplier", "updates_per_round", "noise_on_mean", "epsilon_least"),
    *("epsilon_mean", "epsilon_most", "pattern", "claim", "clients", "participation", "undercharged", "overcharged"),
    *("gap_mean", "gap_least", "gap_most", "client", "rounds_trained", "updates_lost", "epsilon_ledger"),
    *("epsilon_accountant", "agrees"),
)


def rows(plan: SensitivityPlan, results: Results) -> list[dict[str, Any]]:
    """Each with the same columns, of which many are empty."""
    found = [
        _varied(plan, results, line, name, value)
        for line in plan.lines()
        for name in plan.settings.varied
        for value in plan.settings.values_of(name)
    ]
    found += [row for pattern in plan.settings.crowd.patterns for row in _claims(plan, results, pattern)]
    found += _ledgers(results)
    return [{**dict.fromkeys(_COLUMNS), **row} for row in found]


def _varied(plan: SensitivityPlan, results: Results, line: Line, name: str, value: float) -> dict[str, Any]:
    setting = plan.settings.base.with_value(name, value)
    found = [results.of(plan.final_cell(results, line, setting, seed)) for seed in plan.settings.seeds]
    accuracies = [100 * each["test"] for each in found]
    low, high = interval(accuracies)
    noise = results.of(plan.noise_cell(results, line, setting))["noise_multiplier"]
    contributing = fmean(each["updates"] for each in found) / setting.rounds
    task, method, epsilon = line
    return {
        "table": "parameters",
        "task": task,
        "method": method,
        "epsilon": epsilon,
        "parameter": name,
        "value": value,
        "base": setting == plan.settings.base,
        "rate": plan.rate(results, line),
        "seeds": len(found),
        "accuracy": fmean(accuracies),
        "deviation": spread(accuracies),
        "accuracy_low": low,
        "accuracy_high": high,
        "noise_multiplier": noise,
        "updates_per_round": contributing,
        "noise_on_mean": noise / setting.batch_size / math.sqrt(max(contributing, 1.0)),
        **{key: fmean(each[key] for each in found) for key in ("epsilon_least", "epsilon_mean", "epsilon_most")},
    }


def _claims(plan: SensitivityPlan, results: Results, pattern: str) -> list[dict[str, Any]]:
    found = []
    for method in plan.settings.methods:
        result = results.of(plan.crowd_cell(results, pattern, method))
        for claim, gap in result["compared"].items():
            true = result["true"]
            found.append(
                {
                    "table": "claims",
                    "pattern": pattern,
                    "method": method,
                    "claim": claim,
                    "clients": len(true),
                    "participation": result["rate"],
                    "epsilon_least": min(true),
                    "epsilon_mean": fmean(true),
                    "epsilon_most": max(true),
                    "undercharged": gap["under"],
                    "overcharged": gap["over"],
                    "gap_mean": gap["mean"],
                    "gap_least": gap["least"],
                    "gap_most": gap["most"],
                }
            )
    return found


def _ledgers(results: Results) -> list[dict[str, Any]]:
    return [
        {
            "table": "ledgers",
            "client": book["client"],
            "rounds_trained": book["trained"],
            "updates_lost": book["lost"],
            "epsilon_ledger": book["epsilon"],
            "epsilon_accountant": book["expected"],
            "agrees": book["agrees"],
        }
        for _, result in results.where(stage="ledgers")
        for book in result["books"]
    ]
