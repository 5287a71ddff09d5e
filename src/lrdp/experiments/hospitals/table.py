"""The study's results as flat rows: hospitals first, machines below."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from lrdp.experiments.hospitals.cohorts import for_training
from lrdp.experiments.hospitals.outcomes import question
from lrdp.experiments.hospitals.plan import HospitalsPlan, Line
from lrdp.experiments.study import Results
from lrdp.experiments.utility.statistics import interval, spread

WHOLE: Final = {"overall": "all together", "low": "low memory", "others": "the others"}
"""What is judged besides the groups, and what it is called."""
_COLUMNS: Final = (
    *("table", "task", "metric", "method", "epsilon", "group", "low_memory", "patients", "outcomes", "hospitals"),
    *("training_records", "epsilon_spent", "noise_multiplier", "rows", "step_bytes", "seeds", "mean", "deviation"),
    *("mean_low", "mean_high", "without", "change", "change_low", "change_high"),
    *("way", "limit_mb", "ran", "live_bytes", "process_bytes", "reason"),
)


def rows(plan: HospitalsPlan, results: Results) -> list[dict[str, Any]]:
    """One for each line and group, then one for each machine."""
    found = [row for line in plan.lines() for row in _line(plan, results, line)]
    found += [_machine(cell, result) for cell, result in results.where(stage="machines")]
    return [{**dict.fromkeys(_COLUMNS), **row} for row in found]


@dataclass(frozen=True)
class _Scores:
    """A metric by seed, with all hospitals and without those of little memory; seeds without a value are left out."""

    together: Mapping[int, float]
    without: Mapping[int, float]

    def columns(self) -> dict[str, Any]:
        """Means with 95% intervals. ``change`` is what leaving them out does: without minus with, for the same seed."""
        values, seeds = list(self.together.values()), sorted(set(self.together) & set(self.without))
        gaps = [self.without[seed] - self.together[seed] for seed in seeds]
        mean_low, mean_high = interval(values) if values else (None, None)
        low, high = interval(gaps) if gaps else (None, None)
        return {
            "seeds": len(values),
            "mean": fmean(values) if values else None,
            "deviation": spread(values),
            "mean_low": mean_low,
            "mean_high": mean_high,
            "without": fmean(self.without.values()) if self.without else None,
            "change": fmean(gaps) if gaps else None,
            "change_low": low,
            "change_high": high,
        }


def _line(plan: HospitalsPlan, results: Results, line: Line) -> Iterator[dict[str, Any]]:
    task, method, epsilon = line
    ward = plan.settings.tasks[task]
    sites = results.of(plan.sites_cell(task))
    seeds = plan.settings.seeds_of(task)
    runs = {
        left_out: {seed: results.of(plan.final_cell(results, line, seed, left_out)) for seed in seeds}
        for left_out in ((), ward.low_memory)
    }
    shared = {
        "table": "hospitals",
        "task": task,
        "metric": question(plan.settings.sources[ward.source].outcome).metric,
        "method": method,
        "epsilon": epsilon,
    }
    first = runs[()][seeds[0]]
    for whole, name in WHOLE.items():
        yield {**shared, "group": name, **_scores(runs, ward.low_memory, (whole,)).columns()}
    for name, patients in sites["groups"].items():
        yield {
            **shared,
            "group": name,
            "low_memory": name in ward.low_memory,
            "patients": patients,
            "outcomes": sites["outcomes"][name],
            **_site(plan, results, line, name, first["step_bytes"]),
            **_scores(runs, ward.low_memory, ("groups", name)).columns(),
        }


def _scores(runs: Mapping[Any, Mapping[int, Any]], left_out: Sequence[str], path: Sequence[str]) -> _Scores:
    def by_seed(found: Mapping[int, Any]) -> dict[int, float]:
        values = {seed: _at(result, path) for seed, result in found.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    return _Scores(by_seed(runs[()]), by_seed(runs[tuple(left_out)]))


def _at(result: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = result
    for name in path:
        value = value.get(name)
    return value


def _site(
    plan: HospitalsPlan, results: Results, line: Line, group: str, step_bytes: Mapping[str, int]
) -> dict[str, Any]:
    """What a hospital of the group has in its books; of several, those with most records, who take most memory."""
    found = results.of(plan.sites_cell(line[0]))
    members = found["members"][group]
    records = for_training(max(found["patients"][site] for site in members))
    counted = {"hospitals": len(members), "training_records": records}
    if not line[2]:
        return counted
    noise = results.of(plan.noise_cell(line, records))
    return {
        **counted,
        "epsilon_spent": noise["epsilon_own"],
        "noise_multiplier": noise["noise_multiplier"],
        "rows": noise["rows"],
        "step_bytes": step_bytes[str(records)],
    }


def _machine(cell: Any, result: Mapping[str, Any]) -> dict[str, Any]:
    measured = {} if cell["limit_mb"] else {name: result[name] for name in ("live_bytes", "process_bytes")}
    return {
        "table": "machines",
        "way": cell["name"],
        "limit_mb": cell["limit_mb"] or None,
        "ran": result["ran"],
        "reason": result.get("reason"),
        **measured,
    }
