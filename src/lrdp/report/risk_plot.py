"""The trade-off curve as a picture: what any test of one record's presence can reach."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

from lrdp.accounting import FALSE_POSITIVES, TradeOff
from lrdp.figures import AtMost


def draw(curve: TradeOff, path: Path) -> bytes:
    """The curve beside the diagonal of blind guessing, in the format that the ending of ``path`` names."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 5.5), layout="constrained")
    axes = figure.subplots()
    false, true = zip(*curve.curve(), strict=True)
    axes.plot(false, true, color="#0072B2", linewidth=2, label="no attack is above")
    axes.plot(false, false, color="#555555", linewidth=1, linestyle=":", label="blind guessing")
    for rate, reached in zip(FALSE_POSITIVES, curve.risk.true_positives, strict=True):
        axes.plot([rate], [reached], marker="o", color="#D55E00", markersize=4)
        axes.annotate(f"{AtMost(reached):.1%}", (rate, reached), xytext=(6, -10), textcoords="offset points")
    axes.set(xscale="log", yscale="log", xlabel="false-positive rate", ylabel="true-positive rate")
    title = f"Is one record in the data? At most {AtMost(curve.risk.guess_rate):.1%} of guesses are right"
    axes.set_title(title, loc="left", fontsize="medium")
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.legend(fontsize="small", frameon=False, loc="lower right")
    picture = BytesIO()
    figure.savefig(picture, format=path.suffix.removeprefix("."))
    return picture.getvalue()
