"""The pictures: bytes per iteration in the form of the paper's figure 1, and what a card would have reserved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lrdp.experiments.memory.settings import Settings
from lrdp.experiments.memory.steps import Series, live_series, process_series, reserved_by_seed
from lrdp.experiments.study import Results
from lrdp.experiments.study.pictures import COLOURS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 10.0, 4.6
_GIGABYTE: Final = 1e9


def drawn(settings: Settings, results: Results, folder: Path) -> Sequence[Path]:
    """Both pictures."""
    return [*_per_iteration(settings, results, folder), *_reserved(settings, results, folder)]


def _per_iteration(settings: Settings, results: Results, folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    for axes, series_of, title in zip(
        panels, (live_series, process_series), ("tensors that live at once", "whole process"), strict=True
    ):
        for place, name in enumerate(settings.contestants):
            _line(axes, series_of(settings, results, name), name, COLOURS[place % len(COLOURS)])
        _dress(axes, title, "iteration")
    panels[0].set_ylabel("peak within an iteration, GB")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Memory per iteration: {settings.model}, {settings.records:,} records, batches of {settings.batch_size}"
    )
    return saved(figure, folder / "memory-per-iteration")


def _line(axes: Axes, series: Series, name: str, colour: str) -> None:
    values = [value / _GIGABYTE for value in series.values]
    axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=1.3, label=name)


def _reserved(settings: Settings, results: Results, folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT + 0.6), layout="constrained")
    axes: Any = figure.subplots()
    for place, name in enumerate(settings.replay.runs):
        colour, style = COLOURS[place % len(COLOURS)], "-" if place < len(COLOURS) else "--"
        for seed, reserved in reserved_by_seed(results, name).items():
            values = [value / _GIGABYTE for value in reserved]
            label = name if seed == 0 else None
            axes.plot(range(1, len(values) + 1), values, style, color=colour, linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.set_ylabel("reserved, GB")
    _dress(axes, "Model of a CUDA card's allocator: bytes reserved (what nvidia-smi shows)", "iteration")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return saved(figure, folder / "memory-reserved")


def _dress(axes: Axes, title: str, below: str) -> None:
    axes.set_yscale("log")
    axes.set_title(title, fontsize="medium")
    axes.set_xlabel(below)
    axes.grid(visible=True, which="both", axis="y", linewidth=0.4, alpha=0.5)
    axes.yaxis.set_major_formatter("{x:g}")
