"""The plan as a picture: ε against rounds at equal noise on the mean."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from lrdp.accounting import Mechanism, Option, Plan
from lrdp.errors import InvalidInput
from lrdp.figures import AtMost

_POINTS = 13
# Okabe and Ito's palette, distinguishable without full colour vision; the line styles tell accountants apart as well.
_COLOURS = {
    "fixed-size": "#0072B2",
    "fixed-size-with-replacement": "#56B4E9",
    "truncated-poisson": "#D55E00",
    "poisson": "#555555",
    "full-batch": "#CC79A7",
}
_OTHER = "#009E73"
_STYLES = {"rdp": "-", "taylor": ":", "pld": "--"}


@dataclass(frozen=True, kw_only=True)
class Curve:
    """ε of one option after each number of rounds, with as much noise on the mean as the plan's first option."""

    option: Option
    rounds: tuple[int, ...]
    epsilons: tuple[float, ...]


def colour_of(mechanism: Mechanism) -> str:
    """One for each kind; kinds that were added later share one."""
    return _COLOURS.get(mechanism.name, _OTHER)


def check(path: Path) -> None:
    """Refuse, before any work, a picture that could not be written."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidInput(
            "--plot needs matplotlib, which is missing: nothing was computed; install it with pip install 'lrdp[plot]'."
        ) from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".") not in formats:
        raise InvalidInput(f"--plot {path} must end in one of {', '.join(sorted(formats))}: nothing was computed.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"--plot {path} cannot be written: {problem.strerror}; nothing was computed.") from None
    if path.is_dir():
        raise InvalidInput(f"--plot {path} is a folder: nothing was computed; name a file.")


def curves(plan: Plan) -> Iterator[Curve]:
    """One curve per option, in turn, so that a caller can show progress."""
    training = plan.training
    rounds = tuple(sorted({round(value) for value in np.geomspace(1, 2 * training.rounds, _POINTS)}))
    for option in plan.options:
        mechanism = plan.at_equal_noise(option)
        epsilons = (
            option.accountant.epsilon({mechanism: count * training.local_steps}, training.budget.delta).epsilon
            for count in rounds
        )
        yield Curve(option=option, rounds=rounds, epsilons=tuple(epsilons))


def draw(plan: Plan, drawn: list[Curve], path: Path) -> bytes:
    """The curves as a picture, in the format that the ending of ``path`` names."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, NullLocator

    figure = Figure(figsize=(10, 5.5), layout="constrained")
    axes = figure.subplots()
    for curve in drawn:
        option = curve.option
        axes.plot(
            curve.rounds,
            curve.epsilons,
            label=option.label,
            color=colour_of(option.mechanism),
            linestyle=_STYLES[option.accountant.name],
            linewidth=3 if option is plan.recommended else 1.4,
            marker="s" if option.accountant.adjacency.value == "replace-one" else None,
            markersize=3,
        )
    budget = plan.training.budget
    axes.axhline(budget.epsilon, color="black", linewidth=0.8)
    axes.annotate(f"budget ε = {budget.epsilon}", (1, budget.epsilon), xytext=(4, 4), textcoords="offset points")
    axes.axvline(plan.training.rounds, color="black", linewidth=0.8, linestyle=(0, (1, 3)))
    axes.set(xscale="log", yscale="log", xlabel="rounds", ylabel=f"ε at δ = {budget.delta}")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    noise = plan.options[0].mechanism.noise_on_mean
    axes.set_title(
        f"What rounds cost when all put the same noise on the mean ({AtMost(noise):.3g} C)",
        loc="left",
        fontsize="medium",
    )
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.legend(fontsize="small", frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix.removeprefix("."))
    return picture.getvalue()
