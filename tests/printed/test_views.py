"""The operator's view, runs, refusals, the guard: every number in them is read back, and none is too small."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.commands.fleet import print_fleet
from lrdp.figures import AtMost
from lrdp.ledger.decisions import decide
from lrdp.report import run_table
from printed import test_accounting, test_statements
from printed.claims import Side, check, claim, down, up, whole

FLEETS, RUNS, REFUSALS = 600, 1_500, 400


def check_fleet(capture: Callable[[], str], seed: int) -> None:
    """A fleet as :func:`print_fleet` sees it: columns of numbers."""
    draw = np.random.default_rng(seed)
    budgets, used = draw.uniform(0.1, 9, 5), 10 ** draw.uniform(-9, 1, 5)
    rounds = draw.integers(0, 999, 5)
    seen: Any = Seen(Columns(np.array(list("abcde")), budgets), used, used / 3, rounds)
    print_fleet(seen, list(range(5)), as_json=False)
    lines = capture().splitlines()[1:]
    for row, line in enumerate(lines):
        left = max(Fraction(0), Fraction(float(budgets[row])) - Fraction(float(used[row])))
        known = [*whole(float(budgets[row]), int(rounds[row])), *up(float(used[row])), claim(left, Side.DOWN)]
        assert check(line, known) == 4
    print_fleet(seen, list(range(5)), as_json=True)
    for row, shown in enumerate(json.loads(capture())["next_to_run_out"]):
        assert Fraction(shown["epsilon_left"]) <= max(
            Fraction(0), Fraction(float(budgets[row])) - Fraction(float(used[row]))
        )


class Columns(NamedTuple):
    """Two columns of a fleet's books."""

    names: Any
    epsilons: Any


class Seen(NamedTuple):
    """What of a view is printed."""

    books: Columns
    guaranteed: Any
    spent: Any
    rounds: Any


def check_run(seed: int) -> None:
    draw = random.Random(seed)
    least, most, accuracy = 10 ** draw.uniform(-9, 0), 10 ** draw.uniform(0, 2), draw.random()
    attempt = {
        **{"round": 3, "attempt": 2, "participants": ["a", "b"], "away": [], "killed": [], "refused": {}},
        **{"verified": True, "epsilon_least": least, "epsilon_most": most, "accuracy": accuracy},
    }
    shown = run_table.line(attempt).plain.replace("–", " ")
    assert check(shown, [*up(least, most), *whole(2, 3), *down(100 * Fraction(accuracy))]) == 6
    budget, delta, seconds = draw.uniform(1, 9), 10 ** draw.uniform(-9, -3), draw.uniform(1, 900)
    client = {**{"client": "a", "rounds": 4, "steps": 7, "lost": 1, "refusals": {}}, "epsilon": most, "budget": budget}
    assert check(" ".join(run_table._cells(client)), [*whole(4, 7, 1, budget), *up(most)]) == 5
    summary = {
        **{"clients": [{"delta": delta}], "rounds_verified": 4, "rounds_run": 7, "seconds": seconds},
        **{"accuracy_before": accuracy / 2, "accuracy_after": accuracy},
    }
    known = [*whole(delta, 4, 7), *up(seconds), *down(50 * Fraction(accuracy), 100 * Fraction(accuracy))]
    assert check(" ".join(run_table.sentences(summary)), known) == 6


def check_refusal(world: World, seed: int) -> None:
    """The sentence of a refusal, for a budget that some steps nearly use up."""
    draw = random.Random(seed)
    with world.open() as ledger:
        round_trip(ledger, request(2 + seed, steps=draw.randint(1, 3)))
        books = ledger.books
        total = draw.uniform(0.3, 0.6)
        rules = policy(epsilon=repr(total), per_run_epsilon=repr(draw.choice((total, total / 2))))
        asked = request(1, run="other", steps=draw.randint(300, 400), mechanism=STEP.with_noise(draw.uniform(1.3, 2.0)))
        sentence = decide(books, rules, asked).sentence
        ledger_now = books.filter(books.budget).guaranteed.epsilon
    share = rules.budget.per_run.epsilon
    known = [*whole(asked.steps, total, share, books.budget.epsilon, books.budget.delta), *up(ledger_now, 0.0)]
    lines = [rules.lines[f"budget.{key}"] for key in ("epsilon", "per_run_epsilon")]
    assert "do not fit" in sentence
    assert check(sentence, [*known, *whole(*lines)]) >= 4


@pytest.fixture
def capture(capsys: pytest.CaptureFixture[str]) -> Callable[[], str]:
    return lambda: capsys.readouterr().out


@pytest.fixture
def charged(tmp_path: Path) -> World:
    world = World(folder=tmp_path)
    with world.create() as ledger:
        round_trip(ledger, request(1))
    return world


def check_all(capture: Callable[[], str], charged: World, seeds: range) -> None:
    for seed in seeds:
        check_fleet(capture, seed)
        check_run(seed)
        check_refusal(charged, seed)


def test_fleets_runs_and_refusals_print_figures_on_their_safe_side(capture: Callable[[], str], charged: World) -> None:
    check_all(capture, charged, range(15))


@pytest.mark.slow
def test_thousands_of_them_are_on_their_safe_side(capture: Callable[[], str], charged: World) -> None:
    check_all(capture, charged, range(1000, 1000 + REFUSALS))
    for seed in range(1000 + REFUSALS, 1000 + FLEETS):
        check_fleet(capture, seed)
    for seed in range(1000 + REFUSALS, 1000 + RUNS):
        check_run(seed)


def test_the_slow_suite_reads_back_ten_thousand_outputs() -> None:
    commands = test_accounting.EPSILONS + 2 * test_accounting.CALIBRATIONS + test_accounting.PLANS
    statements = 3 * test_statements.STATEMENTS
    assert commands + test_accounting.POLICIES + statements + FLEETS + 3 * RUNS + REFUSALS >= 10_000


@pytest.mark.parametrize("checked", [check_run, "fleet", "refusal"])
def test_control_rounding_to_the_nearest_is_caught(
    capture: Callable[[], str], charged: World, monkeypatch: pytest.MonkeyPatch, checked: Any
) -> None:
    monkeypatch.setattr(AtMost, "rounding", ROUND_HALF_EVEN)
    checks: dict[Any, Callable[[int], None]] = {
        "fleet": lambda seed: check_fleet(capture, seed),
        "refusal": lambda seed: check_refusal(charged, seed),
    }
    with pytest.raises(AssertionError, match="no figure on its safe side"):
        list(map(checks.get(checked, check_run), range(20)))
