"""The pictures: noise against ε for each task, and what a cap costs in noise and saves in rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrdp.experiments.noise.settings import NoiseSettings
from lrdp.experiments.noise.tables import table
from lrdp.experiments.study import Results
from lrdp.experiments.study.pictures import COLOURS, MARKERS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLUMNS, _SIDE = 3, 3.1
Row = Mapping[str, Any]


def drawn(settings: NoiseSettings, results: Results, folder: Path) -> Sequence[Path]:
    """Both pictures."""
    rows = list(table(settings, results))
    return [*_multipliers(settings, rows, folder), *_frontier(settings, rows, folder)]


def _multipliers(settings: NoiseSettings, rows: Sequence[Row], folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    lines = -(-len(settings.chosen) // _COLUMNS)
    figure = Figure(figsize=(_SIDE * _COLUMNS + 1, _SIDE * lines * 0.85 + 1), layout="constrained")
    panels = figure.subplots(lines, _COLUMNS, squeeze=False)
    for axes in panels.flat[len(settings.chosen) :]:
        axes.set_axis_off()
    for axes, task in zip(panels.flat, settings.chosen, strict=False):
        for place, way in enumerate(settings.accountants):
            of_way = [row for row in rows if row["task"] == task and row["way"] == way]
            _line(axes, of_way, "epsilon", "noise_multiplier", place, way)
        _dress(axes, f"{settings.tasks[task].title}, {settings.tasks[task].setting}", "ε")
    for axes in panels[:, 0]:
        axes.set_ylabel("noise multiplier σ")
    figure.legend(*panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return saved(figure, folder / "noise-multipliers")


def _frontier(settings: NoiseSettings, rows: Sequence[Row], folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), layout="constrained")
    noise, cut = figure.subplots(1, 2)
    pairs = [(task, epsilon) for task in settings.frontier.tasks for epsilon in settings.frontier.epsilons]
    for place, (task, epsilon) in enumerate(pairs):
        of_pair = [row for row in rows if row["task"] == task and row["epsilon"] == epsilon]
        caps = [_relative(row) for row in of_pair if row["part"] == "frontier"]
        title = f"{settings.tasks[task].title}, {settings.tasks[task].setting}, ε = {epsilon:g}"
        _line(noise, caps, "rows_per_record", "over_reference", place, f"truncated: {title}")
        _fixed(noise, [_relative(row) for row in of_pair if row["part"] != "frontier"], place)
        _line(cut, [row for row in caps if row["cut_probability"] > 0], "rows_per_record", "cut_probability", place, "")
    _dress(noise, "Noise on the mean, over that of Poisson without a cap", "rows in memory / expected batch")
    _dress(cut, "Probability that the cap cuts", "rows in memory / expected batch")
    cut.set_yscale("log")
    noise.axhline(1.0, color="black", linewidth=0.8, linestyle=":")
    figure.legend(*noise.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return saved(figure, folder / "noise-frontier")


def _relative(row: Row) -> Row:
    return {**row, "rows_per_record": row["rows"] / row["batch_size"] if row["rows"] else None}


def _fixed(axes: Axes, rows: Sequence[Row], place: int) -> None:
    """Batches of fixed size hold exactly as many rows as records: single points at 1."""
    for row in rows:
        if row["rows"] == row["batch_size"]:
            axes.plot(
                1.0, row["over_reference"], marker=MARKERS[place % len(MARKERS)], color=COLOURS[place], mfc="none"
            )


def _line(axes: Axes, rows: Sequence[Row], across: str, up: str, place: int, name: str) -> None:
    colour, style = COLOURS[place % len(COLOURS)], "-" if place < len(COLOURS) else "--"
    marker = MARKERS[place % len(MARKERS)]
    values = [row[across] for row in rows], [row[up] for row in rows]
    axes.plot(*values, style, color=colour, marker=marker, markersize=3.5, linewidth=1.2, label=name or None)


def _dress(axes: Axes, title: str, below: str) -> None:
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(below)
    axes.grid(visible=True, linewidth=0.4, alpha=0.5)
