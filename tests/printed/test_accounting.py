"""``lrdp epsilon``, ``calibrate``, ``plan`` and ``init``: what they print, read back, keeps what it says."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN
from fractions import Fraction
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lrdp.accounting import (
    FALSE_POSITIVES,
    Accountant,
    Adjacency,
    Budget,
    FixedSizeGaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    PrivacySpent,
    RenyiAccountant,
    SampledGaussian,
    TaylorAccountant,
    TradeOff,
    Training,
    calibration,
    least_noise,
    trade_off,
)
from lrdp.cli import app
from lrdp.figures import AtMost
from lrdp.ledger import read_policy
from lrdp.ledger.policy import Holder
from lrdp.ledger.starting import Home, open_budget, write_policy
from printed.claims import Claim, check, down, numbers, unit, up, whole

EPSILONS, CALIBRATIONS, PLANS, POLICIES = 3_000, 600, 8, 400
USUAL = Adjacency.ADD_REMOVE
KINDS: dict[str, type[SampledGaussian]] = {kind.name: kind for kind in (FixedSizeGaussian, PoissonGaussian)}
ACCOUNTANTS: dict[str, Accountant] = {
    kind.name: kind(adjacency=USUAL) for kind in (RenyiAccountant, TaylorAccountant, PldAccountant)
}


class Asked:
    """A random question, as words of the command line and as values; numbers have many digits."""

    def __init__(self, draw: random.Random) -> None:
        # Most by the fast accountant: rounding does not know who computed.
        self.accountant = draw.choices(list(ACCOUNTANTS), weights=(48, 1, 1))[0]
        self.mechanism = draw.choice(list(KINDS)) if self.accountant != "taylor" else FixedSizeGaussian.name
        self.dataset_size = draw.randint(50, 100_000)
        self.batch_size = draw.randint(1, self.dataset_size // 2)
        self.steps = round(10 ** draw.uniform(0, 4 if self.accountant == "rdp" else 2))
        self.delta = 10 ** draw.uniform(-9, -3)
        self.noise = 10 ** draw.uniform(-0.3, 2)
        self.epsilon = 10 ** draw.uniform(-1, 1.3)

    def step(self, noise: float) -> SampledGaussian:
        return KINDS[self.mechanism](dataset_size=self.dataset_size, batch_size=self.batch_size, noise_multiplier=noise)

    def cost(self, noise: float) -> float:
        return ACCOUNTANTS[self.accountant].epsilon({self.step(noise): self.steps}, self.delta).epsilon

    def words(self) -> str:
        return (
            f"-n {self.dataset_size} -b {self.batch_size} -t {self.steps} --delta {self.delta!r} "
            f"--mechanism {self.mechanism} --accountant {self.accountant}"
        )


def printed(words: str) -> dict[str, str]:
    result = CliRunner().invoke(app, words.split(), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines())


def check_epsilon(seed: int) -> None:
    asked = Asked(random.Random(seed))
    shown = printed(f"epsilon {asked.words()} --noise-multiplier {asked.noise!r}")
    spent = ACCOUNTANTS[asked.accountant].epsilon({asked.step(asked.noise): asked.steps}, asked.delta)
    sides = {
        "epsilon": up(spent.epsilon),
        "delta": whole(asked.delta),
        "order": whole(spent.order or 0.0),
        "noise multiplier": whole(asked.noise),
        "noise on mean": up(asked.noise / asked.batch_size),
        "steps": whole(asked.steps),
        "dataset size": whole(asked.dataset_size),
        "batch size": whole(asked.batch_size),
        **told(asked, spent),
    }
    for key, text in shown.items():
        check(text, sides.get(key, []))


def told(asked: Asked, spent: PrivacySpent) -> dict[str, list[Claim]]:
    """What any test can tell of one record."""
    books = PldAccountant(adjacency=Adjacency.ADD_REMOVE)
    curve = trade_off(books, {asked.step(asked.noise): asked.steps}, asked.delta)
    risk = curve.and_also(TradeOff.of_points([spent])).risk
    rates = dict(zip(FALSE_POSITIVES, risk.true_positives, strict=True))
    return {
        "guess rate": up(risk.guess_rate),
        "advantage": up(risk.advantage),
        **{f"true positives at {false}": up(true) for false, true in rates.items()},
    }


def check_calibrate(seed: int) -> None:
    """The σ on the screen keeps the budget when it is typed in; a little less of it does not."""
    asked = Asked(random.Random(seed))
    shown = printed(f"calibrate {asked.words()} --epsilon {asked.epsilon!r}")
    noise = float(shown["noise multiplier"])
    cost = asked.cost(noise)
    assert cost <= asked.epsilon, f"σ = {shown['noise multiplier']} costs {cost}, the budget was {asked.epsilon}"
    assert noise < 0.011 or asked.cost(noise * (1 - 3e-5)) > asked.epsilon
    check(shown["epsilon"], up(cost))
    check(shown["noise on mean"], up(noise / asked.batch_size))
    typed_in = printed(f"epsilon {asked.words()} --noise-multiplier {shown['noise multiplier']}")
    assert typed_in["epsilon"] == shown["epsilon"]


def check_plan(seed: int) -> None:
    draw = random.Random(seed)
    size, budget = draw.randint(500, 3000), Budget(epsilon=draw.uniform(1, 6), delta=10 ** draw.uniform(-5, -3))
    rounds, local, batch = draw.randint(2, 8), draw.randint(1, 5), draw.randint(5, 60)
    words = f"plan -n {size} -b {batch} --rounds {rounds} --local-steps {local} --epsilon {budget.epsilon!r}"
    result = CliRunner().invoke(app, [*words.split(), "--delta", repr(budget.delta)], catch_exceptions=False)
    title, *lines = result.stdout.splitlines()
    check(title, whole(size, rounds, local, budget.epsilon, budget.delta))
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    assert len(rows) == 10
    quietest = rows[0]
    for mechanism, accountant, adjacency, noise, size_of_batch, *_, on_mean, one_round, most, _equal in rows:
        if mechanism not in KINDS:
            continue
        kind: Callable[..., Accountant] = type(ACCOUNTANTS[accountant])
        step = KINDS[mechanism](dataset_size=size, batch_size=int(size_of_batch), noise_multiplier=float(noise))
        books = kind(adjacency=Adjacency(adjacency))
        assert books.epsilon({step: rounds * local}, budget.delta).epsilon <= budget.epsilon
        assert books.epsilon({step: int(most) * local}, budget.delta).epsilon <= budget.epsilon
        check(on_mean, up(step.noise_on_mean))
        check(one_round, up(books.epsilon({step: local}, budget.delta).epsilon))
    (reason,) = [line for line in lines if line.startswith("Recommended")]
    chosen = [row for row in rows if f" {row[0]} / {row[1]} " in reason and row[2] == "add-remove"]
    mean = min(float(row[3]) / int(row[4]) for row in chosen)
    share = 100 * mean / (float(quietest[3]) / int(quietest[4]))
    check(reason, [*up(mean, share), *whole(batch, size)])


def check_policy(seed: int, folder: Path) -> None:
    """What ``lrdp init`` writes reads back as the budget that is opened, and its noise keeps the whole plan in it."""
    draw = random.Random(seed)
    size = draw.randint(50, 50_000)
    training = Training(
        dataset_size=size,
        batch_size=draw.randint(1, size // 2),
        rounds=draw.randint(1, 60),
        local_steps=draw.randint(1, 40),
        budget=Budget(epsilon=10 ** draw.uniform(-1, 1.3), delta=10 ** draw.uniform(-9, -3)),
    )
    home = Home(folder=folder / str(seed))
    write_policy(home, Holder(client="a", unit="b", max_rows_per_unit=1), training)
    policy = read_policy(home.policy)
    assert policy.budget.total == training.budget
    plan: dict[Mechanism, int] = {policy.mechanism.costliest: training.steps}
    assert RenyiAccountant(adjacency=USUAL).epsilon(plan, training.budget.delta).epsilon <= training.budget.epsilon
    with open_budget(home, training.rounds) as ledger:
        assert ledger.books.budget == training.budget
        _, answer = ledger.books.filter(training.budget).charge(policy.mechanism.costliest, training.steps)
    assert answer.admitted


@pytest.mark.parametrize("seed", range(40))
def test_the_epsilon_that_is_printed_is_never_too_small(seed: int) -> None:
    check_epsilon(seed)


@pytest.mark.parametrize("seed", range(12))
def test_the_noise_that_is_printed_keeps_its_own_budget(seed: int) -> None:
    check_calibrate(seed)


@pytest.mark.parametrize("seed", range(10))
def test_a_policy_reads_back_as_the_budget_that_is_opened(seed: int, tmp_path: Path) -> None:
    check_policy(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_thousands_of_commands_print_figures_on_their_safe_side(part: int, tmp_path: Path) -> None:
    for seed in range(1000 + part, 1000 + EPSILONS, 10):
        check_epsilon(seed)
    for seed in range(1000 + part, 1000 + CALIBRATIONS, 10):
        check_calibrate(seed)
    for seed in range(1000 + part, 1000 + PLANS, 10):
        check_plan(seed)
    for seed in range(1000 + part, 1000 + POLICIES, 10):
        check_policy(seed, tmp_path)


def test_control_rounding_to_the_nearest_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AtMost, "rounding", ROUND_HALF_EVEN)
    caught = 0
    for seed in range(60):
        try:
            check_epsilon(seed)
        except AssertionError as problem:
            caught += "no figure on its safe side" in str(problem)
    assert caught >= 20


def test_control_noise_in_fewer_digits_than_were_evaluated_breaks_its_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was: the noise that was found has sixteen digits, and six of them are printed, to the nearest."""
    monkeypatch.setattr(calibration, "AtMost", float)
    broken = 0
    for seed in range(60):
        asked = Asked(random.Random(seed))
        if asked.accountant == "rdp":
            budget = Budget(epsilon=asked.epsilon, delta=asked.delta)
            found = least_noise(asked.step(1.0), asked.steps, budget, ACCOUNTANTS["rdp"]).mechanism
            broken += asked.cost(float(f"{found.noise_multiplier:.6g}")) > asked.epsilon
    assert broken >= 5


def test_reading_back_knows_the_last_digit() -> None:
    assert (unit("3.14"), unit("1.2e-07"), unit("128")) == (Fraction("0.01"), Fraction("1e-8"), Fraction(1))
    assert numbers("ε = 0.5 at δ = 1e-06, v0.1.0, 3.11.7, " + "ab" * 20 + ", 12 rounds.") == ["0.5", "1e-06", "12"]
    assert check("1.2346 0.7 3", [*up(1.23456), *down(0.79), *whole(3)]) == 3
    for wrong in ("1.2345", "1.2347", "0.8", "0.6", "4"):
        with pytest.raises(AssertionError):
            check(wrong, [*up(1.23456), *down(0.79), *whole(3)])
