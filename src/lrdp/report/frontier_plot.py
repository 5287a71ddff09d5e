"""The search of a plan as a picture: noise against memory, and against time."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from lrdp.accounting import BatchFrontier, Candidate
from lrdp.report.plan_plot import colour_of

_LABELS = 5  # points of a kind that have their batch written beside them


def draw(frontier: BatchFrontier, path: Path) -> bytes:
    """The picture, in the format that the ending of ``path`` names."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 5), layout="constrained")
    memory, time = figure.subplots(1, 2, sharey=True)
    _memory(memory, frontier)
    _time(time, frontier)
    aim = frontier.aim
    figure.suptitle(
        f"n = {aim.dataset_size}, {aim.passes} passes, ε = {aim.budget.epsilon} at δ = {aim.budget.delta}: "
        f"every batch at its own least σ",
        fontsize="medium",
    )
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix.removeprefix("."))
    return picture.getvalue()


def _memory(axes: Any, frontier: BatchFrontier) -> None:
    """Each batch twice: where it would be if it were held at once, and where it is in passes of a few rows."""
    rows = frontier.aim.rows
    for each in _bounded(frontier):
        noise, colour = each.noise_over_training, colour_of(each.mechanism)
        axes.plot([rows, each.mechanism.rows], [noise] * 2, color=colour, linewidth=0.5, alpha=0.5)
        axes.plot([each.mechanism.rows], [noise], "o", color=colour, fillstyle="none", markersize=5)
        axes.plot([rows], [noise], "o", color=colour, markersize=4)
    best = frontier.recommended
    axes.plot([rows], [best.noise_over_training], "*", color="black", markersize=14)
    axes.set(xscale="log", yscale="log", xlabel="rows held at a time (hollow: the whole batch)")
    axes.set_ylabel("noise over training, σ/(B√T)")
    axes.grid(visible=True, which="major", linewidth=0.3)


def _time(axes: Any, frontier: BatchFrontier) -> None:
    """Rows computed in all, padding included; the batch is written beside some points."""
    by_kind: dict[str, list[Candidate]] = {}
    for each in _bounded(frontier):
        by_kind.setdefault(each.mechanism.name, []).append(each)
    for name, points in by_kind.items():
        colour = colour_of(points[0].mechanism)
        places = [each.rows_computed for each in points]
        noises, label = [each.noise_over_training for each in points], f"{name}, {points[0].accountant.name}"
        axes.plot(places, noises, "o-", color=colour, markersize=4, label=label)
        for each in points[:: max(1, len(points) // _LABELS)]:
            place = (each.rows_computed, each.noise_over_training)
            axes.annotate(f" {each.mechanism.normaliser}", place, fontsize="x-small", color=colour)
    best = frontier.recommended
    label = f"recommended, {best.accountant.name}"
    axes.plot([best.rows_computed], [best.noise_over_training], "*", color="black", markersize=14, label=label)
    axes.set(xscale="log", yscale="log", xlabel="rows computed in all (written: the batch)")
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.legend(fontsize="small", frameon=False)


def _bounded(frontier: BatchFrontier) -> list[Candidate]:
    return [each for each in frontier.searched if each.mechanism.rows is not None]
