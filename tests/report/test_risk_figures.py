"""The figures of a trade-off curve, in words and as a record."""

from lrdp.accounting import PrivacySpent, TradeOff
from lrdp.report.risk_figures import record, words

CURVE = TradeOff.of_points([PrivacySpent(epsilon=1.2, delta=1e-5)])


def test_the_record_has_the_curve_only_if_it_is_asked_for() -> None:
    figures = record(CURVE.risk)
    names = ["guess_rate", "advantage", *(f"true_positives_at_{rate}" for rate in (0.001, 0.01, 0.1))]
    assert list(figures) == names
    assert list(record(CURVE.risk, CURVE)) == [*names, "trade_off"]
    assert figures["true_positives_at_0.01"] == CURVE.true_positives(0.01)


def test_words_round_every_rate_up() -> None:
    # e^1.2 · 1% + 1e-5 = 3.3211%.
    assert "3.4% at 1.0%" in words(CURVE.risk)
    assert "at most 76.9% of guesses" in words(CURVE.risk)
