"""Accuracy against ε in the form of the paper's figures 2 and 3: a panel for each task, a line for each method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lrdp.experiments.study.pictures import COLOURS, MARKERS, saved
from lrdp.experiments.utility.settings import UtilitySettings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]


def drawn(settings: UtilitySettings, rows: Sequence[Row], folder: Path) -> list[Path]:
    """A picture for each figure that tasks name, and where it was written."""
    figures: dict[str, list[str]] = {}
    for name, task in settings.chosen_tasks.items():
        figures.setdefault(task.figure, []).append(name)
    return [path for figure, tasks in figures.items() for path in _figure(settings, rows, folder / figure, tasks)]


def _figure(settings: UtilitySettings, rows: Sequence[Row], stem: Path, tasks: Sequence[str]) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(tasks), 4.0), layout="constrained")
    panels = figure.subplots(1, len(tasks), squeeze=False)[0]
    for panel, task in zip(panels, tasks, strict=True):
        _panel(panel, settings, [row for row in rows if row["task"] == task])
        panel.set_title(f"{settings.tasks[task].title} · {settings.model or settings.tasks[task].model}")
    panels[0].set_ylabel("test accuracy in %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize="small")
    return saved(figure, stem.with_name(f"utility-{stem.name}"))


def _panel(panel: Axes, settings: UtilitySettings, rows: Sequence[Row]) -> None:
    """Bars are one standard deviation over seeds; lines are moved apart a little, so that bars can be told apart."""
    for place, (name, method) in enumerate(settings.chosen_methods.items()):
        own = [row for row in rows if row["method"] == name]
        shift = 0.06 * (place - len(settings.chosen_methods) / 2)
        single = len(own) < len(settings.epsilons)
        panel.errorbar(
            [row["epsilon"] + shift for row in own],
            [row["accuracy"] for row in own],
            yerr=[row["deviation"] or 0.0 for row in own],
            label=method.title,
            color=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            linestyle="none" if single else "-" if method.private else ":",
            markersize=4.5,
            linewidth=1.1,
            capsize=2,
        )
    panel.set_xlabel("ε")
    panel.set_xticks(list(settings.epsilons))
    panel.grid(alpha=0.25)
