"""What a trade-off curve says to people and to programs."""

from __future__ import annotations

from typing import Any

from lrdp.accounting import FALSE_POSITIVES, Risk, TradeOff
from lrdp.figures import AtMost


def record(risk: Risk, curve: TradeOff | None = None) -> dict[str, Any]:
    """The figures, each at most what is written, and the curve where it is asked for."""
    figures: dict[str, Any] = {"guess_rate": AtMost(risk.guess_rate), "advantage": AtMost(risk.advantage)}
    for false, true in zip(FALSE_POSITIVES, risk.true_positives, strict=True):
        figures[f"true_positives_at_{false}"] = AtMost(true)
    return figures if curve is None else figures | {"trade_off": [list(point) for point in curve.curve()]}


def words(risk: Risk) -> str:
    """One sentence."""
    rates = zip(FALSE_POSITIVES, risk.true_positives, strict=True)
    found = ", ".join(f"{AtMost(true):.1%} at {AtMost(false):.1%}" for false, true in rates)
    return (
        f"at most {AtMost(risk.guess_rate):.1%} of guesses are right (a coin: 50%; an advantage of at most "
        f"{AtMost(risk.advantage):.1%}), and of the records that were used "
        f"an attack finds at most {found} false alarms."
    )
