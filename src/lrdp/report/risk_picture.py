"""The trade-off curves of a statement as a picture inside its page: no package is needed to draw it."""

from __future__ import annotations

import math
from typing import Final

from lrdp.accounting import TradeOff

_SIDE: Final = 300.0
_LEFT: Final = 56.0
_BELOW: Final = 44.0
_DECADES: Final = 6
_TICKS: Final = {-6: "0.0001%", -4: "0.01%", -2: "1%", 0: "100%"}
LABEL: Final = (
    "Largest share of records an attack finds, by its share of false alarms, both from one in a million to all: "
    "guaranteed (solid), had the steps been fixed in advance (dashed), and blind guessing (dotted)."
)


def svg(guaranteed: TradeOff, spent: TradeOff) -> str:
    """Both curves and the diagonal, on logarithmic axes; colours are those of the page."""
    lines = ((guaranteed, ""), (spent, "6 4"))
    curves = "\n".join(f'<polyline points="{_points(curve)}" stroke-dasharray="{dashes}"/>' for curve, dashes in lines)
    width, height = _LEFT + _SIDE + 16, _SIDE + _BELOW + 8
    return f"""<svg role="img" aria-label="{LABEL}" viewBox="0 0 {width} {height}" class="curve">
{_axes()}
<line class="chance" x1="{_at(-_DECADES)[0]}" y1="{_at(-_DECADES)[1]}" x2="{_at(0)[0]}" y2="{_at(0)[1]}"/>
{curves}
<text x="{_LEFT + _SIDE / 2}" y="{height - 4}" text-anchor="middle">false alarms</text>
<text transform="translate(12 {8 + _SIDE / 2}) rotate(-90)" text-anchor="middle">found</text>
</svg>"""


def _axes() -> str:
    ticks = [f'<rect x="{_LEFT}" y="8" width="{_SIDE}" height="{_SIDE}"/>']
    for decade, name in _TICKS.items():
        x, y = _at(decade)
        ticks.append(f'<text x="{x}" y="{_SIDE + 24}" text-anchor="middle">{name}</text>')
        ticks.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{name}</text>')
    return "\n".join(ticks)


def _points(curve: TradeOff) -> str:
    places = ((_at(math.log10(false))[0], _at(math.log10(true))[1]) for false, true in curve.curve() if true > 0)
    return " ".join(f"{x},{y}" for x, y in places)


def _at(decade: float) -> tuple[float, float]:
    """Where a power of ten lies, across and down; never drawn lower than it is."""
    share = max(0.0, 1 + decade / _DECADES)
    return round(_LEFT + _SIDE * share, 1), math.floor(10 * (8 + _SIDE * (1 - share))) / 10
