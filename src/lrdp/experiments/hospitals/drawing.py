"""Each hospital's metric by method, what leaving the small ones out does, and which machine runs what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lrdp.experiments.hospitals.settings import HospitalsSettings
from lrdp.experiments.hospitals.table import WHOLE
from lrdp.experiments.study.pictures import COLOURS, MARKERS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
Line = tuple[str, float]
_MEGA: Final = 1e6
_APART: Final = 0.13  # of the distance between two groups
_ACROSS: Final = 3
_JUDGED: Final = {WHOLE["low"]: "left out", WHOLE["others"]: "the others", WHOLE["overall"]: "all"}
_SERVED: Final = "Metric on own test records: mean over seeds, 95% interval; the number of patients below, * low memory"
_CHANGED: Final = (
    "Trained without the hospitals of low memory minus with them, same seeds: mean and 95% interval.\n"
    "Below 0, leaving them out does harm."
)


def drawn(settings: HospitalsSettings, rows: Sequence[Row], folder: Path) -> list[Path]:
    """The pictures, and where they were written."""
    pictures = _Pictures(settings, rows, folder)
    paths = [
        *pictures.panels("metric", _SERVED, pictures.served),
        *pictures.panels("left-out", _CHANGED, pictures.changed),
    ]
    machines = [row for row in rows if row["table"] == "machines"]
    return [*paths, *_machines(machines, folder)] if machines else paths


class _Pictures:
    """A panel for each task, a mark for each method and ε."""

    def __init__(self, settings: HospitalsSettings, rows: Sequence[Row], folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._rows = [row for row in rows if row["table"] == "hospitals"]
        lines = dict.fromkeys(line for task in settings.chosen for line in settings.lines(task))
        self._places = {line: place for place, line in enumerate(lines)}

    def panels(self, name: str, title: str, fill: Callable[[Axes, str], None]) -> Sequence[Path]:
        from matplotlib.figure import Figure

        tasks = list(self._settings.chosen)
        across, down = min(len(tasks), _ACROSS), -(-len(tasks) // _ACROSS)
        figure = Figure(figsize=(5.2 * across, 3.9 * down + 0.8), layout="constrained")
        panels = figure.subplots(down, across, squeeze=False).flatten()
        for panel, task in zip(panels, tasks, strict=False):
            fill(panel, task)
            panel.grid(alpha=0.25, axis="y")
        for panel in panels[len(tasks) :]:
            panel.axis("off")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.suptitle(title, fontsize="medium")
        return saved(figure, self._folder / f"hospitals-{name}")

    def served(self, panel: Axes, task: str) -> None:
        """Each hospital or group on its own."""
        own = [row for row in self._of(task) if row["group"] not in _JUDGED]
        labels = {row["group"]: f"{row['group']}\n{row['patients']}{' *' * bool(row['low_memory'])}" for row in own}
        self._marks(panel, task, list(labels), ("mean", "mean_low", "mean_high"))
        panel.set_xticks(range(len(labels)), list(labels.values()), fontsize="small")
        panel.set_title(self._settings.tasks[task].title, fontsize="medium")
        panel.set_ylabel(own[0]["metric"])
        panel.axhline(0.5, color=COLOURS[-1], linewidth=0.8, linestyle=":")

    def changed(self, panel: Axes, task: str) -> None:
        """Those left out, the others, and all."""
        self._marks(panel, task, list(_JUDGED), ("change", "change_low", "change_high"))
        panel.axhline(0.0, color=COLOURS[0], linewidth=0.8)
        panel.set_xticks(range(len(_JUDGED)), list(_JUDGED.values()))
        ward = self._settings.tasks[task]
        panel.set_title(f"{ward.title}: without {', '.join(ward.low_memory)}", fontsize="small")
        panel.set_ylabel(f"change of the {self._of(task)[0]['metric']}")

    def _of(self, task: str) -> list[Row]:
        return [row for row in self._rows if row["task"] == task]

    def _marks(self, panel: Axes, task: str, groups: Sequence[str], names: tuple[str, str, str]) -> None:
        for line in self._settings.lines(task):
            found = {row["group"]: row for row in self._of(task) if (row["method"], row["epsilon"]) == line}
            there = [found[group] for group in groups if found[group][names[0]] is not None]
            place = self._places[line]
            shift = _APART * (place - (len(self._places) - 1) / 2)
            values = np.array([row[names[0]] for row in there], float)
            ends = [[row[names[0]] if row[end] is None else row[end] for row in there] for end in names[1:]]
            panel.errorbar(
                [groups.index(row["group"]) + shift for row in there],
                values,
                yerr=np.abs(np.array(ends, float) - values),
                label=self._label(line),
                color=COLOURS[place % len(COLOURS)],
                marker=MARKERS[place % len(MARKERS)],
                linestyle="none",
                markersize=4.5,
                capsize=2,
                linewidth=1.1,
            )

    def _label(self, line: Line) -> str:
        title = self._settings.methods[line[0]].title
        return f"{title}, ε = {line[1]:g}" if line[1] else title


def _machines(rows: Sequence[Row], folder: Path) -> Sequence[Path]:
    """Live bytes of each way, and the limits at which it ran or did not."""
    from matplotlib.figure import Figure

    ways = list(dict.fromkeys(row["way"] for row in rows))
    figure = Figure(figsize=(10.0, 0.5 * len(ways) + 1.8), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    live = {row["way"]: row["live_bytes"] / _MEGA for row in rows if row["limit_mb"] is None}
    bars = left.barh(range(len(ways)), [live[way] for way in ways], color=COLOURS[3])
    left.bar_label(bars, fmt="%.0f", padding=3, fontsize="small")
    left.set_yticks(range(len(ways)), ways)
    left.invert_yaxis()
    left.set_xlabel("most live tensors in MB")
    for ran, colour, marker, label in ((True, COLOURS[4], "o", "runs"), (False, COLOURS[5], "X", "out of memory")):
        found = [row for row in rows if row["limit_mb"] is not None and row["ran"] is ran]
        places = [ways.index(row["way"]) for row in found]
        right.scatter([row["limit_mb"] for row in found], places, color=colour, marker=marker, label=label)
    right.set_xlabel("hard limit on the process in MB, libraries included")
    right.grid(alpha=0.25)
    figure.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    return saved(figure, folder / "hospitals-machines")
