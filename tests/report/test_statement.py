import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.accounting import (
    GroupAccountant,
    Mechanism,
    PrivacySpent,
    RenyiOrders,
    ReservedSlots,
    for_group,
    guess_rate,
)
from lrdp.errors import BudgetExceeded, InvalidInput, PolicyRefused
from lrdp.figures import AtMost
from lrdp.ledger import raise_budget, void
from lrdp.ledger.summary import summarize
from lrdp.report.statement import SCHEMA, AuditBound, Statement, record
from lrdp.report.statement_pages import html, text
from lrdp.report.statement_points import day
from lrdp.training.rounding import HEADROOM

POINTS = (
    "plainly unit adjacency epsilon risk trust mechanism scope covered uncovered budget versions channels tuning audit "
    "head renewal"
).split()


def made(world: World) -> Statement:
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
        with pytest.raises(PolicyRefused):
            ledger.charge(request(9, steps=4000))
        lost = ledger.charge(request(10))
        void(ledger, lost.entry, "power cut", world.administrator)
        audit = AuditBound(epsilon=0.31, confidence=0.95, method="worst-case likelihood ratio")
        return Statement(summary=summarize(ledger.books), head=ledger.head(), audit=audit)


@pytest.fixture
def statement(tmp_path: Path) -> Statement:
    return made(World(folder=tmp_path))


def test_every_point_is_filled(statement: Statement) -> None:
    assert [point.key for point in statement.points] == POINTS
    assert all(len(point.text) > 20 for point in statement.points)


def test_the_json_has_its_schema_and_the_books_figures(statement: Statement) -> None:
    figures = json.loads(json.dumps(record(statement), allow_nan=False))
    summary = statement.summary
    assert figures["schema"] == SCHEMA == "lrdp-statement/1"
    assert figures["guaranteed"]["epsilon"] == summary.guaranteed.epsilon
    assert figures["spent"]["epsilon"] == summary.spent.epsilon
    assert figures["charges"] == {"reserved": 0, "ready": 0, "sent": 3, "void": 1}
    assert figures["refusals"] == {"steps": 1}
    assert figures["mechanisms"][0]["steps"] == 117
    assert figures["mechanisms"][0]["noise_multiplier"] == STEP.noise_multiplier
    assert figures["without_voids"]["epsilon"] > figures["spent"]["epsilon"]
    assert figures["guaranteed_without_voids"]["epsilon"] > figures["guaranteed"]["epsilon"]
    assert figures["audit"]["epsilon"] == 0.31
    assert set(figures) == {
        *"schema client unit max_rows_per_unit clipped adjacency budget guaranteed spent".split(),
        *"spent_at_other_deltas group group_spent risk risk_spent".split(),
        *"without_voids guaranteed_without_voids recorded accountant membership_guess_rate mechanisms".split(),
        *"clip_norms charges refusals runs".split(),
        *"adopted_heads suspended closed clock_went_back ledger policy_sha256 audit version points".split(),
    }


def test_the_other_deltas_are_printed_as_a_person_writes_them(tmp_path: Path) -> None:
    """1e-5 / 100 is 1.0000000000000001e-07, of which rounding up to the safe side made 1.00001e-07."""
    with World(folder=tmp_path, rules=policy(delta="1e-5")).create() as ledger:
        round_trip(ledger, request(1))
        statement = Statement(summary=summarize(ledger.books), head=ledger.head())
    assert [point["delta"] for point in record(statement)["spent_at_other_deltas"]] == [1e-5, 1e-7, 1e-9]
    assert "at δ = 1e-07;" in text(statement)


def test_a_raised_budget_is_shown_as_it_was_opened_and_as_it_is_in_every_form(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(epsilon="1.5", per_run_epsilon="1.5"))
    with world.create(rule=RenyiOrders(weights={22.0: 1.0})) as ledger:
        round_trip(ledger, request(1))
    for epsilon, reason in (("2.25", "second <study>"), ("3.75", "third study")):
        world = replace(world, rules=policy(epsilon=epsilon, per_run_epsilon=epsilon))
        with world.open() as ledger:
            raise_budget(ledger, reason, world.administrator)
            statement = Statement(summary=summarize(ledger.books), head=ledger.head())
    today = day(statement.summary.opened_at)
    assert json.loads(json.dumps(record(statement)))["budget"] | {"left": 0, "rounds_left": 0} == {
        "epsilon": 3.75,
        "opened": {"epsilon": 1.5, "day": today},
        "raised": [
            {"epsilon": 2.25, "day": today, "reason": "second <study>"},
            {"epsilon": 3.75, "day": today, "reason": "third study"},
        ],
        "delta": 1e-06,
        "policy_epsilon": 3.75,
        "per_run_epsilon": 3.75,
        "left": 0,
        "rounds_left": 0,
    }
    page = html(statement)
    assert "of 3.75</meter>" in page
    told = (
        f"opened with 1.5 on {today}; raised to 2.25 on {today} (second &lt;study&gt;); raised to 3.75 on {today} "
        f"(third study), each signed by the administrator"
    )
    assert told in page


def test_an_upgraded_accountant_shows_both_values(statement: Statement) -> None:
    figures = record(statement)
    assert figures["recorded"]["accountant"].startswith("rdp lrdp/")
    point = next(point for point in statement.points if point.key == "epsilon")
    assert f"{AtMost(figures['recorded']['spent']):.4f} spent" in point.text
    assert "recomputed by rdp lrdp/" in point.text


def test_the_statement_names_the_headroom_that_training_keeps(statement: Statement) -> None:
    (versions,) = (point.text for point in statement.points if point.key == "versions")
    assert "C(1 - 1/128)" in versions
    assert HEADROOM[torch.float32] == 1 / 128


def test_the_text_says_it_is_no_certificate(statement: Statement) -> None:
    page = text(statement)
    assert max(map(len, page.splitlines())) <= 300
    assert "not a certificate of compliance" in page
    assert "HIPAA" not in page
    assert statement.head is not None
    assert statement.head.signature in page.replace("\n  ", "")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [str(value) for name, value in attrs if name in ("src", "href", "action")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_asks_the_network_for_nothing(statement: Statement) -> None:
    page = _Page()
    page.feed(html(statement))
    assert page.open == []
    assert page.links == []
    assert not page.tags & {"script", "img", "link", "iframe"}
    assert not re.search(r"https?://|url\(", html(statement))


def test_a_hostile_name_stays_text(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(client='"<script>alert(1)</script>&"'))
    page = html(made(world))
    assert "<script>" not in page
    assert "&lt;script&gt;" in page


def test_an_empty_ledger_has_a_statement_too(tmp_path: Path) -> None:
    with World(folder=tmp_path).create() as ledger:
        statement = Statement(summary=summarize(ledger.books))
    assert "Nothing has been released yet" in text(statement)
    assert record(statement)["recorded"] is None
    assert html(statement)


def test_what_is_left_shrinks_with_the_policy(tmp_path: Path) -> None:
    world = World(folder=tmp_path)
    with world.create() as ledger:
        round_trip(ledger, request())
        before = summarize(ledger.books)
    with replace(world, rules=policy(epsilon="2.0", per_run_epsilon="2.0")).open() as ledger:
        after = summarize(ledger.books)
        for number in range(100, 100 + after.rounds_left):
            round_trip(ledger, request(number, run="next"))
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(99, run="next"))
    assert after.left == pytest.approx(before.left - 6.0)
    assert 0 < after.rounds_left < before.rounds_left


def test_rows_per_unit_enlarge_epsilon(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(max_rows_per_unit="3"))
    with world.create() as ledger:
        round_trip(ledger, request())
        summary = summarize(ledger.books)
    epsilon, delta = summary.guaranteed.epsilon, summary.guaranteed.delta
    assert summary.group.epsilon == pytest.approx(3 * epsilon)
    assert summary.group.delta == pytest.approx(3 * math.exp(2 * epsilon) * delta)
    words = " ".join(text(Statement(summary=summary)).split())
    assert f"ε = {AtMost(3 * epsilon):.4f}" in words
    assert summary.group_spent.epsilon < summary.group.epsilon
    assert summary.group_spent.delta == delta
    assert f"in advance, ε = {AtMost(summary.group_spent.epsilon):.4f}" in words


def test_rows_per_unit_pay_for_reserved_slots_together(tmp_path: Path) -> None:
    """Where slots are counted, all rows of a unit have a pair of their own, which is far below the formula."""
    slots: dict[Mechanism, int] = {STEP: 117}
    with World(folder=tmp_path, rules=policy(max_rows_per_unit="3")).create(rule=ReservedSlots(slots=slots)) as ledger:
        round_trip(ledger, request())
        summary = summarize(ledger.books)
    together = GroupAccountant(adjacency=summary.adjacency, rows=3)
    assert summary.group == together.epsilon(slots, summary.guaranteed.delta)
    assert summary.group.delta == summary.guaranteed.delta  # the formula's would be larger
    assert summary.guaranteed.epsilon < summary.group.epsilon
    assert summary.group.epsilon < together.by_formula(slots, summary.guaranteed.delta).epsilon  # control
    assert summary.group_spent == together.epsilon(summary.history, summary.guaranteed.delta)
    words = " ".join(text(Statement(summary=summary)).split())
    assert f"ε = {AtMost(summary.group.epsilon):.4f}" in words
    assert f"in advance, ε = {AtMost(summary.group_spent.epsilon):.4f}" in words
    assert record(Statement(summary=summary))["group"]["epsilon"] == summary.group.epsilon


def test_what_was_charged_for_units_needs_no_group_and_the_statement_says_whom_it_is_for(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    (tmp_path / "units").mkdir()
    by_row = World(folder=tmp_path / "rows", rules=policy(max_rows_per_unit="40"))
    by_unit = World(folder=tmp_path / "units", rules=policy(max_rows_per_unit='40\nclipped = "units"'))
    found = []
    for world in (by_row, by_unit):
        with world.create() as ledger:
            receipt = ledger.charge(request())
            assert receipt.by_unit is (world is by_unit)
            found.append(summarize(ledger.books))
    rows, units = found
    assert units.guaranteed == rows.guaranteed  # the accounting knows nothing of it
    assert units.group.epsilon == units.guaranteed.epsilon
    assert rows.group.epsilon > 39 * rows.guaranteed.epsilon  # control
    said = " ".join(text(Statement(summary=units)).split())
    assert "One patient, with all rows: they are drawn together, at most 40 of them, and clipped as one." in said
    assert "whether one patient with all rows was used" in said
    assert "with and without one patient with all rows" in said
    assert "together ε" not in said
    assert record(Statement(summary=units))["clipped"] == "units"
    assert "One record; a patient has at most 40 of them." in text(Statement(summary=rows))


def test_books_that_clipped_rows_once_are_read_as_rows(tmp_path: Path) -> None:
    """The ledger refuses such a change; an auditor reads books that anybody may have written."""
    by_unit = World(folder=tmp_path, rules=policy(max_rows_per_unit='40\nclipped = "units"'))
    with by_unit.create() as ledger:
        ledger.charge(request())
        books = ledger.books
        assert summarize(books).group.epsilon == summarize(books).guaranteed.epsilon
        books.policies.insert(0, books.policies[0]._replace(text=policy(max_rows_per_unit="40").text))
        assert summarize(books).group.epsilon > 39 * summarize(books).guaranteed.epsilon


def test_the_statement_gives_what_is_guaranteed_against_guessing_beside_what_the_whole_curve_says(
    statement: Statement,
) -> None:
    summary, figures = statement.summary, record(statement)
    assert figures["membership_guess_rate"] == figures["risk"]["guess_rate"]
    assert figures["risk"]["guess_rate"] == pytest.approx(guess_rate(summary.guaranteed), abs=1e-12)
    assert 0.5 < figures["risk_spent"]["guess_rate"] < figures["risk"]["guess_rate"]
    words = " ".join(text(statement).split())
    for risk in (summary.risk, summary.risk_spent):
        assert f"at most {AtMost(risk.guess_rate):.1%} of guesses are right" in words
        assert f"{AtMost(risk.true_positives[1]):.1%} at 1.0%" in words


def test_the_guess_rate_is_the_largest_of_all_tests() -> None:
    assert guess_rate(PrivacySpent(epsilon=0.0, delta=0.0)) == 0.5
    assert guess_rate(PrivacySpent(epsilon=0.0, delta=0.1)) == pytest.approx(0.55)
    assert guess_rate(PrivacySpent(epsilon=math.log(3), delta=0.0)) == pytest.approx(0.75)
    assert guess_rate(PrivacySpent(epsilon=1e9, delta=1e-6)) == 1.0
    assert for_group(PrivacySpent(epsilon=50.0, delta=1e-6), 40).delta == 1.0


def test_an_audit_without_a_confidence_is_refused() -> None:
    with pytest.raises(InvalidInput):
        AuditBound(epsilon=0.1, confidence=1.0, method="x")
