"""The table of the study: a row for each task, way and ε."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lrdp.experiments.noise.calibrating import NoiseTask, in_clip_norms
from lrdp.experiments.noise.settings import NoiseSettings
from lrdp.experiments.study import Cell, Results
from lrdp.experiments.study.conducting import Rows

_DIGITS = 6


def table(settings: NoiseSettings, results: Results) -> Rows:
    """Multipliers first, then the frontier: those are the ways that the settings do not name."""
    found = [row for cell, record in results for row in _rows(settings, cell, record)]
    reference = {
        (row["task"], row["epsilon"]): row["noise_multiplier"] for row in found if row["way"] == settings.reference
    }
    for row in found:
        poisson = reference.get((row["task"], row["epsilon"]))
        row["over_reference"] = "" if poisson is None else _short(row["noise_multiplier"] / poisson)
    return found


def _rows(settings: NoiseSettings, cell: Cell, record: Mapping[str, Any]) -> list[dict[str, Any]]:
    task = NoiseTask(**cell["of"])
    return [
        {
            "task": cell["task"],
            "title": task.title,
            "setting": task.setting,
            "way": cell["way"],
            "part": "multipliers" if cell["way"] in settings.accountants else "frontier",
            "epsilon": each["epsilon"],
            "delta": cell["delta"],
            "records": task.records,
            "batch_size": task.batch_size,
            "steps": task.steps,
            "noise_multiplier": each["noise_multiplier"],
            "spent": _short(each["spent"]),
            "over_reference": "",
            "noise_on_mean": _short(each["noise_multiplier"] / task.batch_size),
            "noise_in_clip_norms": _short(in_clip_norms(task, each["noise_multiplier"], settings.clients)),
            "rows": each["rows"] or "",
            "cap_deviations": cell["by"]["cap_deviations"] if cell["by"]["sampling"] == "truncated-poisson" else "",
            "cut_probability": each["cut_probability"] if each["rows"] else "",
            "assumed": task.assumed,
        }
        for each in record["found"]
    ]


def _short(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
