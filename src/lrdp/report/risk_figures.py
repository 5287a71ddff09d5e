"""What a trade-off curve says to people and to programs."""

from __future__ import annotations

from typing import Any

from lrdp.accounting import FALSE_POSITIVES, TradeOff
from lrdp.figures import AtMost


def record(curve: TradeOff, *, whole: bool = False) -> dict[str, Any]:
    """The figures, each at most what is written; with the curve itself if it is ``whole``."""
    figures: dict[str, Any] = {"guess_rate": curve.guess_rate, "advantage": AtMost(curve.advantage)}
    figures |= {f"true_positives_at_{rate}": curve.true_positives(rate) for rate in FALSE_POSITIVES}
    return figures | ({"trade_off": [list(point) for point in curve.curve()]} if whole else {})


def words(curve: TradeOff) -> str:
    """One sentence."""
    rates = ", ".join(f"{curve.true_positives(rate):.1%} at {rate:.1%}" for rate in FALSE_POSITIVES)
    return (
        f"at most {curve.guess_rate:.1%} of guesses are right (a coin: 50%), and of the records that were used an "
        f"attack finds at most {rates} false alarms."
    )
