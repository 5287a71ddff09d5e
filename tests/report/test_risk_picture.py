"""The picture of a statement's trade-off curves: every place in it is a rate, and none is drawn too low."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from lrdp.accounting import Adjacency, FixedSizeGaussian, PldAccountant, PrivacySpent, TradeOff, trade_off
from lrdp.report.risk_picture import svg

POINT = TradeOff.of_points([PrivacySpent(epsilon=4.1, delta=1e-5)])
STEP = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=6.0)
CURVE = trade_off(PldAccountant(adjacency=Adjacency.ADD_REMOVE), {STEP: 1000}, 1e-5)
TOP, LEFT, SIDE = 8.0, 56.0, 300.0


def drawn(text: str) -> list[list[tuple[float, float]]]:
    """Rates read off the picture: false alarms, and what is found."""
    picture = ElementTree.fromstring(text)
    lines = [each.attrib["points"] for each in picture.iter() if each.tag == "polyline"]
    places = [[tuple(map(float, place.split(","))) for place in line.split()] for line in lines]
    return [[(10 ** (6 * ((x - LEFT) / SIDE - 1)), 10 ** (-6 * (y - TOP) / SIDE)) for x, y in line] for line in places]


@pytest.mark.parametrize("curve", [POINT, CURVE])
def test_no_place_is_below_the_curve_or_far_above_it(curve: TradeOff) -> None:
    for line in drawn(svg(curve, curve)):
        assert len(line) == 61
        for false, true in line:
            reached = curve.true_positives(min(1.0, false))
            assert reached * (1 - 1e-9) <= true <= reached * 10 ** (6 * 0.1 / SIDE) * (1 + 1e-9)


def test_the_guarantee_is_solid_and_drawn_first() -> None:
    guaranteed, spent = drawn(svg(POINT, CURVE))
    assert all(one[1] >= other[1] for one, other in zip(guaranteed, spent, strict=True))
    assert re.findall('stroke-dasharray="([^"]*)"', svg(POINT, CURVE)) == ["", "6 4"]
    assert math.isclose(guaranteed[0][0], 1e-6)
