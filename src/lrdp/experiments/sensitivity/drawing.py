"""A panel for each parameter, and how far off one account for all is for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from lrdp.experiments.sensitivity.claims import CLAIMS
from lrdp.experiments.sensitivity.plan import SensitivityPlan
from lrdp.experiments.study import Results
from lrdp.experiments.study.pictures import COLOURS, MARKERS, saved

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = Mapping[str, Any]
_ACROSS: Final = 4
_BINS: Final = 60
_TITLES: Final = {
    "clients": "clients (the same records in all)",
    "rounds": "rounds",
    "local_steps": "local steps in a round",
    "batch_size": "batch size",
    "participation": "participation rate",
    "dropout": "updates lost after being charged",
    "alpha": "Dirichlet α of the classes (0: alike)",
}
_SPREAD: Final = ("clients", "rounds", "local_steps", "batch_size")  # drawn on a logarithmic scale


def drawn(plan: SensitivityPlan, results: Results, rows: Sequence[Row], folder: Path) -> list[Path]:
    """The pictures, and where they were written."""
    varied = [row for row in rows if row["table"] == "parameters"]
    paths = [path for task in plan.settings.chosen for path in _parameters(plan, task, varied, folder)]
    return [*paths, *_claims(plan, results, folder)]


def _parameters(plan: SensitivityPlan, task: str, rows: Sequence[Row], folder: Path) -> Sequence[Path]:
    from matplotlib.figure import Figure

    names = list(plan.settings.varied)
    across, down = min(len(names), _ACROSS), -(-len(names) // _ACROSS)
    figure = Figure(figsize=(3.6 * across, 3.3 * down + 0.8), layout="constrained")
    panels = figure.subplots(down, across, squeeze=False, sharey=True).flatten()
    for panel, name in zip(panels, names, strict=False):
        _panel(plan, panel, name, [row for row in rows if row["task"] == task and row["parameter"] == name])
    for panel in panels[len(names) :]:
        panel.axis("off")
    for panel in panels[::across]:
        panel.set_ylabel("test accuracy in %")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    base = ", ".join(f"{getattr(plan.settings.base, name):g} {name.replace('_', ' ')}" for name in names[:4])
    title = f"{plan.settings.tasks[task].title}: one parameter at a time around {base} (dashed); mean ± deviation"
    figure.suptitle(title, fontsize="medium")
    return saved(figure, folder / f"sensitivity-{task}")


def _panel(plan: SensitivityPlan, panel: Axes, name: str, rows: Sequence[Row]) -> None:
    values = plan.settings.values_of(name)
    even = name not in _SPREAD
    lines = dict.fromkeys((row["method"], row["epsilon"]) for row in rows)
    for place, line in enumerate(lines):
        own = [row for row in rows if (row["method"], row["epsilon"]) == line]
        panel.errorbar(
            [values.index(row["value"]) if even else row["value"] for row in own],
            [row["accuracy"] for row in own],
            yerr=[row["deviation"] or 0.0 for row in own],
            label=f"{plan.settings.methods[line[0]].title}, ε = {line[1]:g}",
            color=COLOURS[1 + place],
            marker=MARKERS[1 + place],
            markersize=4.5,
            linewidth=1.1,
            capsize=2,
        )
    base = float(getattr(plan.settings.base, name))
    panel.axvline(values.index(base) if even else base, color=COLOURS[-1], linewidth=0.8, linestyle="--")
    if not even:
        panel.set_xscale("log")
        panel.minorticks_off()
    panel.set_xticks(range(len(values)) if even else values, [f"{value:g}" for value in values], fontsize="small")
    panel.set_xlabel(_TITLES[name])
    panel.grid(alpha=0.25)


def _claims(plan: SensitivityPlan, results: Results, folder: Path) -> Sequence[Path]:
    """Histograms of claimed minus true ε: a row for each pattern, a column for each method."""
    from matplotlib.figure import Figure

    patterns, methods = list(plan.settings.crowd.patterns), list(plan.settings.methods)
    figure = Figure(figsize=(5.6 * len(methods), 2.6 * len(patterns) + 1.0), layout="constrained")
    panels = figure.subplots(len(patterns), len(methods), squeeze=False, sharex=True)
    for line, pattern in zip(panels, patterns, strict=True):
        for panel, method in zip(line, methods, strict=True):
            result = results.of(plan.crowd_cell(results, pattern, method))
            _histogram(panel, result["gaps"])
            words = f"{pattern}, {plan.settings.methods[method].title}"
            panel.set_title(f"{words}: true ε {min(result['true']):.2f} to {max(result['true']):.2f}", fontsize="small")
    for panel in panels[-1]:
        panel.set_xlabel("claimed ε − true ε of a client (below 0: under-charged)")
    for line in panels:
        line[0].set_ylabel("clients")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles), frameon=False)
    crowd = plan.settings.crowd
    figure.suptitle(
        f"{crowd.clients} clients, {crowd.rounds} rounds: one account at the server against each client's own books",
        fontsize="medium",
    )
    return saved(figure, folder / "sensitivity-participation")


def _histogram(panel: Axes, gaps: Mapping[str, Sequence[float]]) -> None:
    values = np.concatenate([np.array(gap) for gap in gaps.values()])
    edges = np.linspace(values.min() - 1e-9, values.max() + 1e-9, _BINS)
    for place, name in enumerate(CLAIMS):
        style: dict[str, Any] = {"histtype": "stepfilled", "alpha": 0.5, "color": COLOURS[1 + place]}
        panel.hist(gaps[name], bins=edges.tolist(), label=name, edgecolor=COLOURS[1 + place], **style)
    panel.axvline(0.0, color=COLOURS[0], linewidth=0.9)
    panel.set_yscale("log")
    panel.grid(alpha=0.25)
