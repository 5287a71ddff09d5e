"""Statements and ``lrdp ledger show``: every number in them is read back, and none is too small."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_EVEN
from fractions import Fraction
from html import unescape
from typing import Any

import mpmath
import pytest

from ledger.worlds import World, request, round_trip
from lrdp.accounting import (
    Budget,
    FilterAnswer,
    PoissonGaussian,
    PrivacySpent,
    TradeOff,
    TruncatedPoissonGaussian,
    for_group,
)
from lrdp.commands.ledger import _in_short
from lrdp.commands.output import print_page, print_record
from lrdp.figures import AtLeast, AtMost
from lrdp.ledger import void
from lrdp.ledger.charges import State
from lrdp.ledger.policy import BudgetRule, Holder
from lrdp.ledger.summary import Summary, summarize
from lrdp.report.statement import AuditBound, Statement, record
from lrdp.report.statement_pages import html, text
from printed.claims import Claim, Side, check, claim, down, floats, up, whole

STATEMENTS = 4_000
"""Each is printed as text, as a page and in short."""

SIDES = {
    "guaranteed.epsilon": Side.UP,
    "guaranteed.delta": Side.UP,
    "guaranteed.order": Side.WHOLE,
    "spent.epsilon": Side.UP,
    "spent.delta": Side.UP,
    "spent.order": Side.WHOLE,
    "spent_elsewhere.epsilon": Side.UP,
    "spent_elsewhere.delta": Side.UP,
    "spent_elsewhere.order": Side.WHOLE,
    **{f"{group}.{each}": Side.UP for group in ("group", "group_spent") for each in ("epsilon", "delta")},
    **{f"{group}.order": Side.WHOLE for group in ("group", "group_spent")},
    "without_voids.guaranteed.epsilon": Side.UP,
    "without_voids.guaranteed.delta": Side.UP,
    "without_voids.guaranteed.order": Side.WHOLE,
    "budget.epsilon": Side.WHOLE,
    "opened_epsilon": Side.WHOLE,
    "budget.delta": Side.WHOLE,
    "policy.budget.per_run.epsilon": Side.WHOLE,
    "clip_norms": Side.WHOLE,
    "recorded.guaranteed": Side.UP,
    "recorded.spent": Side.UP,
}
"""How each figure of a summary may be printed."""
UNPRINTED = {
    *(f"{each}.{part}" for each in ("trade_off", "trade_off_spent") for part in ("presence", "absence", "advantage")),
    "without_voids.spent.epsilon",  # beside the guaranteed figures it would be one of another kind
    "without_voids.spent.delta",
    "without_voids.spent.order",
    *(f"policy.budget.{each}" for each in ("total.epsilon", "total.delta", "per_run.delta")),
    *(f"policy.mechanism.{each}" for each in ("costliest.noise_multiplier", "clip_norm", "min_clip_norm")),
    "policy.model.max_abs_weight",
    *(f"recorded.{each}" for each in ("clip_norm", "mechanism.noise_multiplier")),
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Summary:
    """A real ledger's figures, with a void and a refusal; the numbers in it are then replaced by others."""
    world = World(folder=tmp_path_factory.mktemp("base"))
    with world.create() as ledger:
        round_trip(ledger, request(1))
        lost = ledger.charge(request(2))
        void(ledger, lost.entry, "power cut", world.administrator)
        return summarize(ledger.books)


def spent(draw: random.Random, delta: float | None = None) -> PrivacySpent:
    epsilon = draw.choice((0.0, 10 ** draw.uniform(-12, 3), draw.uniform(0, 10), round(draw.uniform(0, 9), 3)))
    return PrivacySpent(
        epsilon=epsilon,
        delta=10 ** draw.uniform(-12, -2) if delta is None else delta,
        order=draw.choice((None, draw.uniform(1.01, 500))),
    )


def drawn(base: Summary, seed: int) -> Summary:
    """The same client with other figures of many digits."""
    draw = random.Random(seed)
    epsilon, delta = 10 ** draw.uniform(-1, 1.5), 10 ** draw.uniform(-10, -3)
    budget = Budget(epsilon=epsilon, delta=delta)
    per_run = Budget(epsilon=epsilon * draw.random(), delta=delta)
    rule = BudgetRule(total=budget, adjacency=base.adjacency, per_run=per_run)
    rows = draw.randint(1, 9)
    sampled: dict[str, Any] = {
        "dataset_size": draw.randint(10**4, 10**7),
        "batch_size": draw.randint(1, 4000),
        "noise_multiplier": draw.uniform(0.3, 40),
    }
    truncated = TruncatedPoissonGaussian(**sampled, cap=sampled["batch_size"] + draw.randint(1, 500))
    assert base.recorded is not None
    guaranteed, fixed = spent(draw, delta), spent(draw, delta)
    return replace(
        base,
        policy=replace(base.policy, budget=rule, identity=Holder(client="a", unit="person", max_rows_per_unit=rows)),
        budget=budget,
        guaranteed=guaranteed,
        spent=fixed,
        group=for_group(guaranteed, rows),
        group_spent=spent(draw, delta),
        trade_off=TradeOff.of_points([guaranteed]),
        trade_off_spent=TradeOff.of_points([fixed]),
        spent_elsewhere=tuple(spent(draw, delta / factor) for factor in (1, 100, 10_000)),
        without_voids=FilterAnswer(admitted=True, guaranteed=spent(draw, delta), spent=spent(draw, delta)),
        recorded=base.recorded._replace(guaranteed=spent(draw).epsilon, spent=spent(draw).epsilon),
        history={PoissonGaussian(**sampled): draw.randint(1, 10**6), truncated: 17},
        clip_norms=(draw.uniform(0.1, 10),),
        rounds_left=draw.randint(0, 1000),
    )


def right_guesses(bound: PrivacySpent) -> Fraction:
    """(e^ε + δ)/(1 + e^ε), with 100 digits."""
    with mpmath.workdps(100):
        grown = mpmath.exp(mpmath.mpf(bound.epsilon))
        return exactly((grown + mpmath.mpf(bound.delta)) / (1 + grown))


def group_delta(bound: PrivacySpent, rows: int) -> Fraction:
    """k·e^((k-1)ε)·δ, with 100 digits; at most 1."""
    with mpmath.workdps(100):
        return min(Fraction(1), exactly(rows * mpmath.exp((rows - 1) * mpmath.mpf(bound.epsilon)) * bound.delta))


def exactly(value: Any) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** int(exponent)


def claims(summary: Summary) -> list[Claim]:
    """What may stand in a statement: its summary's figures, each on its side, and what follows from them."""
    known = [claim(value, SIDES[path]) for path, value in floats(summary) if path not in UNPRINTED]
    bound, rows = summary.guaranteed, summary.policy.identity.max_rows_per_unit
    left = max(Fraction(0), Fraction(summary.budget.epsilon) - Fraction(bound.epsilon))
    known += [claim(left, Side.DOWN), *up(100 * right_guesses(bound))]
    known += up(rows * Fraction(bound.epsilon), group_delta(bound, rows))
    for risk in (summary.risk, summary.risk_spent):
        known += up(*(100 * Fraction(rate) for rate in (risk.guess_rate, risk.advantage, *risk.true_positives)))
    for step, steps in summary.history.items():
        sizes = [getattr(step, name) for name in ("batch_size", "dataset_size", "cap") if hasattr(step, name)]
        known += [*whole(step.noise_multiplier, steps, *sizes), *up(sizes[0] / sizes[1])]
    counts = [*summary.states.values(), *summary.refusals.values(), summary.runs, summary.entries, summary.rounds_left]
    counts += [sum(summary.states.values()), sum(summary.refusals.values()), rows, summary.states.get(State.SENT, 0)]
    constants = (
        100,
        50,
        1,
        128,
        0,
        0.1,
        10,
    )  # false alarms in 100; "right answers in 100, where a coin gets 50"; C(1 - 1/128); a meter's least
    return known + whole(*counts, *constants)


def check_statement(base: Summary, capture: Callable[[], str], seed: int) -> None:
    summary = drawn(base, seed)
    draw = random.Random(seed)
    audit = AuditBound(epsilon=draw.uniform(0, 3), confidence=draw.uniform(0.5, 1), method="x")
    statement = Statement(summary=summary, audit=audit)
    known = [*claims(summary), *down(audit.epsilon), *whole(audit.confidence)]
    print_page(text(statement))
    assert check(capture(), known) > 30
    body = unescape(html(statement).partition("<body>")[2])
    body = re.sub("<svg.*?</svg>", "", body, flags=re.DOTALL)  # places of a picture: tests/report/test_risk_picture.py
    assert check(body.replace("h1>", ">"), [*known, *whole(min(summary.guaranteed.epsilon, summary.budget.epsilon))])
    print_record(_in_short(summary), as_json=False)
    assert check(capture(), known) > 8
    figures = json.loads(json.dumps(record(statement), allow_nan=False))
    assert Fraction(figures["membership_guess_rate"]) >= right_guesses(summary.guaranteed)
    assert Fraction(figures["group"]["delta"]) >= group_delta(
        summary.guaranteed, summary.policy.identity.max_rows_per_unit
    )
    assert Fraction(figures["budget"]["left"]) <= max(
        Fraction(0), Fraction(summary.budget.epsilon) - Fraction(summary.guaranteed.epsilon)
    )


@pytest.fixture
def capture(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().out


@pytest.mark.parametrize("seed", range(40))
def test_every_number_of_a_statement_is_a_figure_on_its_safe_side(
    base: Summary, capture: Callable[[], str], seed: int
) -> None:
    check_statement(base, capture, seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_statements_are_on_their_safe_side(base: Summary, capture: Callable[[], str], part: int) -> None:
    for seed in range(1000 + part, 1000 + STATEMENTS, 10):
        check_statement(base, capture, seed)


@pytest.mark.parametrize("figure", [AtMost, AtLeast])
def test_control_rounding_to_the_nearest_is_caught(
    base: Summary, capture: Callable[[], str], monkeypatch: pytest.MonkeyPatch, figure: type[AtMost | AtLeast]
) -> None:
    monkeypatch.setattr(figure, "rounding", ROUND_HALF_EVEN)
    caught = 0
    for seed in range(20):
        try:
            check_statement(base, capture, seed)
        except AssertionError as problem:
            caught += "no figure on its safe side" in str(problem)
    assert caught >= 5


def test_what_voids_would_add_is_of_the_kind_that_is_guaranteed(base: Summary) -> None:
    """One order is committed to: what holds under adaptivity is more than what the same steps cost if fixed."""
    with_void = base.without_voids.guaranteed.epsilon
    assert base.without_voids.spent.epsilon < base.guaranteed.epsilon < with_void
    (scope,) = (point.text for point in Statement(summary=base).points if point.key == "scope")
    assert f"with them the guarantee would be ε = {AtMost(with_void):.4f} at" in scope


def test_a_charge_whose_epsilon_is_nought_was_a_release_all_the_same(base: Summary) -> None:
    point = PrivacySpent(epsilon=0.0, delta=base.budget.delta)
    nought = replace(base, guaranteed=point, trade_off=TradeOff.of_points([point]))
    plain, *_ = Statement(summary=nought).points
    assert "at most 50.1 right answers in 100" in plain.text
    plain, *_ = Statement(summary=replace(nought, history={})).points
    assert plain.text.startswith("Nothing has been released yet")
