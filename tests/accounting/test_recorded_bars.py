"""The records of what plans recommend and of how long one ε takes: each keeps its bars, and none was left out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

RESULTS = Path(__file__).parents[2] / "docs/results"
PAPER = ("mnist", "emnist", "cifar10", "sst2", "qnli", "qqp")
HOSPITALS = ("heart", "tcga", "eicu-regions", "eicu-hospitals")
MOST_ROWS = 32
BARS = {"of_poisson": 1.02, "of_l_rdp_same_batch": 0.55, "of_l_rdp_own_batch": 0.55, "rows_at_a_time": MOST_ROWS}
MOST_MS = {"rdp_ms": 5.0, "pld_ms": 500.0}
QUESTIONS = ("truncated Poisson", "full batch", "fixed size", "Poisson")

Row = Mapping[str, Any]


def rows_of(name: str) -> list[Row]:
    rows: list[Row] = json.loads((RESULTS / name).read_text(encoding="utf-8"))["rows"]
    return rows


def beyond(row: Row, bars: Mapping[str, float]) -> list[str]:
    """The bars that a row does not keep; a figure that is no number keeps none."""
    return [name for name, most in bars.items() if not 0 < row[name] <= most]


def data_set(row: Row) -> str:
    return str(row["task"]).split(",")[0].removesuffix("-paper")


def test_every_recommendation_keeps_its_bars_on_all_ten_sets_at_both_budgets() -> None:
    rows = rows_of("plans.json")
    assert [(row["task"], row["epsilon"], beyond(row, BARS)) for row in rows if beyond(row, BARS)] == []
    assert {(data_set(row), row["epsilon"]) for row in rows} == {
        (name, epsilon) for name in (*PAPER, *HOSPITALS) for epsilon in (2.0, 8.0)
    }
    assert {row["task"] for row in rows} >= {f"{name}-paper" for name in PAPER}


def test_one_epsilon_of_every_newer_pair_is_in_time() -> None:
    rows = rows_of("pairs.json")
    assert [(row["question"], beyond(row, MOST_MS)) for row in rows if beyond(row, MOST_MS)] == []
    kinds = {(row["question"].split(",")[0], row["rows"] > 1) for row in rows}
    assert {kind for kind, _ in kinds} == set(QUESTIONS)
    assert kinds >= {("truncated Poisson", False), ("full batch", False)}
    assert {kind for kind, several in kinds if several} == set(QUESTIONS)


@pytest.mark.parametrize(
    ("name", "figure", "bars"),
    [("plans.json", name, BARS) for name in BARS] + [("pairs.json", name, MOST_MS) for name in MOST_MS],
)
def test_control_a_figure_past_its_bar_is_found(name: str, figure: str, bars: Mapping[str, float]) -> None:
    row = rows_of(name)[0]
    assert beyond({**row, figure: 1.01 * bars[figure]}, bars) == [figure]
    assert beyond({**row, figure: float("nan")}, bars) == [figure]
