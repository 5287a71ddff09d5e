"""The pictures: bytes per iteration in the form of the paper's figure 1, and what a card would have reserved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lrdp.experiments.memory.settings import MemorySettings
from lrdp.experiments.memory.steps import Series, live_series, process_series, reserved_by_seed
from lrdp.experiments.study import Results
from lrdp.experiments.study.pictures import COLOURS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH, _HEIGHT = 10.0, 4.8
_GIGABYTE: Final = 1e9
_TICKS: Final = tuple(part * 10**power for power in range(-4, 3) for part in (1, 2, 5))
_PANELS: Final = (("tensors that live at once", live_series), ("whole process", process_series))
PAPER: Final = {"14 GB: the paper, fixed size": 14, "46 GB: the paper, Poisson": 46}


def drawn(settings: MemorySettings, results: Results, folder: Path) -> Sequence[Path]:
    """Both pictures."""
    return [*_per_iteration(settings, results, folder), *_reserved(settings, results, folder)]


def _per_iteration(settings: MemorySettings, results: Results, folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), layout="constrained")
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    for axes, (title, series_of) in zip(panels, _PANELS, strict=True):
        for place, name in enumerate(settings.contestants):
            _line(axes, series_of(settings, results, name), name, COLOURS[place % len(COLOURS)])
        _dress(axes, title)
    panels[0].set_ylabel("peak within an iteration, GB")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.suptitle(
        f"Memory per iteration on a CPU: {settings.model}, {settings.records:,} records, batches of "
        f"{settings.batch_size}",
        fontsize="medium",
    )
    return saved(figure, folder / "memory-per-iteration")


def _line(axes: Axes, series: Series, name: str, colour: str) -> None:
    values = [value / _GIGABYTE for value in series.values]
    axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=1.2, label=name)


def _reserved(settings: MemorySettings, results: Results, folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT + 1.2), layout="constrained")
    axes: Any = figure.subplots()
    for place, name in enumerate(settings.replay.runs):
        colour, style = COLOURS[place % len(COLOURS)], "-" if place < len(COLOURS) else "--"
        for seed, reserved in reserved_by_seed(results, name).items():
            values = [value / _GIGABYTE for value in reserved]
            shown = {"label": name, "linewidth": 1.6} if seed == 0 else {"linewidth": 0.6, "alpha": 0.5}
            axes.plot(range(1, len(values) + 1), values, style, color=colour, **shown)
    _marks(axes)
    axes.set_xscale("log")
    axes.set_ylabel("reserved, GB")
    _dress(axes, "What torch's allocator would have reserved on a CUDA card (a model; thin lines are other sequences)")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    return saved(figure, folder / "memory-reserved")


def _marks(axes: Any) -> None:
    """The paper's own figures, where they are within sight."""
    _, top = axes.get_ylim()
    for words, height in PAPER.items():
        if height < 2 * top:
            axes.axhline(height, color="black", linewidth=0.8, linestyle=":")
            axes.annotate(words, (1.0, height), xytext=(2, 3), textcoords="offset points", fontsize="small")


def _dress(axes: Any, title: str) -> None:
    from matplotlib.ticker import NullFormatter

    axes.set_title(title, fontsize="medium")
    axes.set_xlabel("iteration")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in _TICKS if low / 2 <= tick <= high * 2])
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(visible=True, axis="y", linewidth=0.4, alpha=0.6)
