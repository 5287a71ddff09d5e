"""What a plan promises is what the opened ledger admits, round for round; what affords nothing is not opened."""

from collections import deque
from pathlib import Path

import pytest

from lrdp.accounting import (
    Budget,
    FixedSizeGaussian,
    RenyiAccountant,
    RenyiOrders,
    ReservedSlots,
    SampledGaussian,
    Training,
    TruncatedPoissonGaussian,
)
from lrdp.errors import BudgetExceeded, InvalidInput, PolicyRefused
from lrdp.ledger import (
    BudgetCounting,
    Holder,
    Home,
    Ledger,
    PolicyRecipe,
    Refusal,
    SigningKey,
    draft,
    open_budget,
    promised,
    read_policy,
    summarize,
    write_draft,
)

from .worlds import World, policy, request, round_trip

HOLDER = Holder(client="hospital-a", unit="patient", max_rows_per_unit=1)
TRAINING = Training(dataset_size=4100, batch_size=37, rounds=9, local_steps=13, budget=Budget(epsilon=1.7, delta=3e-6))
WAYS = [
    (FixedSizeGaussian, BudgetCounting.RENYI, RenyiOrders),
    (TruncatedPoissonGaussian, BudgetCounting.RENYI, RenyiOrders),
    (TruncatedPoissonGaussian, BudgetCounting.RESERVED, ReservedSlots),
]


def home_of(folder: Path, kind: type[SampledGaussian], counting: BudgetCounting) -> Home:
    home = Home(folder=folder)
    write_draft(home, draft(HOLDER, TRAINING, recipe=PolicyRecipe(kind, counting)))
    return home


def edit(home: Home, key: str, value: str) -> None:
    lines = home.policy.read_text().splitlines()
    home.policy.write_text("\n".join(f"{key} = {value}" if line.startswith(f"{key} =") else line for line in lines))


@pytest.mark.parametrize(("kind", "counting", "rule"), WAYS)
def test_the_rounds_that_are_promised_are_admitted_and_not_one_more(
    tmp_path: Path, kind: type[SampledGaussian], counting: BudgetCounting, rule: type
) -> None:
    home = home_of(tmp_path, kind, counting)
    promise = promised(read_policy(home.policy))
    assert promise.rounds >= TRAINING.rounds
    with open_budget(home) as ledger:
        asked = ledger.policy.mechanism
        assert type(ledger.books.rule) is rule
        assert summarize(ledger.books).rounds_left == promise.rounds
        for number in range(promise.rounds):
            round_trip(ledger, request(number, mechanism=asked.costliest, steps=asked.max_steps_per_round))
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(99, mechanism=asked.costliest, steps=asked.max_steps_per_round))
        assert ledger.answer().guaranteed.epsilon <= TRAINING.budget.epsilon


@pytest.mark.parametrize("share", ["8.0", "7.0"])
def test_rounds_left_are_admitted_with_their_counts_and_within_a_servers_share(tmp_path: Path, share: str) -> None:
    """A count is charged to the next round: the newest charge is one step, and the round it belongs to is dearer."""
    step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.7)
    world = World(folder=tmp_path, rules=policy(metrics='["correct"]', per_run_epsilon=share))
    with world.create() as ledger:

        def counted(number: int) -> None:
            round_trip(ledger, request(number, mechanism=step, steps=39, model="trained"))
            round_trip(ledger, request(number + 1, mechanism=step, steps=1, model="counted"))

        fresh = summarize(ledger.books).rounds_left
        counted(1)
        first = summarize(ledger.books).rounds_left
        counted(2)
        left = summarize(ledger.books).rounds_left
        assert fresh < first, "before the first they are of the costliest kind, of the smaller of budget and share"
        assert 0 < left < first
        for number in range(3, 3 + left):
            counted(number)
        with pytest.raises(BudgetExceeded):
            deque(map(counted, range(3 + left, 8 + left)), maxlen=0)
        assert summarize(ledger.books).rounds_left == 0


def test_a_round_that_was_lost_to_a_kill_does_not_make_the_next_ones_dearer(tmp_path: Path) -> None:
    step = FixedSizeGaussian(dataset_size=5000, batch_size=128, noise_multiplier=1.7)
    with World(folder=tmp_path, rules=policy(per_run_epsilon="8.0")).create() as ledger:
        ledger.charge(request(1, mechanism=step))
        round_trip(ledger, request(1, mechanism=step, model="again"))
        left = summarize(ledger.books).rounds_left
        for number in range(2, 2 + left):
            round_trip(ledger, request(number, mechanism=step))
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(99, mechanism=step))


def test_a_budget_of_reserved_rounds_is_not_said_to_be_raised_by_a_signature(tmp_path: Path) -> None:
    home = home_of(tmp_path, TruncatedPoissonGaussian, BudgetCounting.RESERVED)
    open_budget(home).close()
    edit(home, "epsilon", "3.0")
    with Ledger.open(home.ledger, policy=read_policy(home.policy), key=SigningKey.read(home.key)) as ledger:
        assert "never counts" in summarize(ledger.books, ledger.policy).policy_note


def test_a_share_that_affords_nothing_is_not_opened(tmp_path: Path) -> None:
    home = home_of(tmp_path, FixedSizeGaussian, BudgetCounting.RENYI)
    edit(home, "per_run_epsilon", "0.1")
    with pytest.raises(InvalidInput, match=r"affords no round to any server.*so nothing was opened"):
        open_budget(home)
    assert not home.ledger.exists()
    edit(home, "per_run_epsilon", "1.65")
    with open_budget(home) as ledger:
        assert 0 < summarize(ledger.books).rounds_left < promised(ledger.policy).rounds


def test_slots_stand_behind_the_ledger_only_where_they_afford_more(tmp_path: Path) -> None:
    reserved = promised(read_policy(home_of(tmp_path / "a", TruncatedPoissonGaussian, BudgetCounting.RESERVED).policy))
    by_orders = promised(read_policy(home_of(tmp_path / "b", FixedSizeGaussian, BudgetCounting.RENYI).policy))
    assert isinstance(reserved.rule, ReservedSlots)
    assert isinstance(by_orders.rule, RenyiOrders), "nobody asked for slots, which refuse every other step"
    step = reserved.policy.mechanism.costliest
    books = RenyiAccountant(adjacency=reserved.policy.budget.adjacency)
    told = books.epsilon({step: reserved.rounds * TRAINING.local_steps}, TRAINING.budget.delta)
    assert told.epsilon > TRAINING.budget.epsilon, "an order would not have admitted as many"


@pytest.mark.parametrize(("kind", "counting", "_rule"), WAYS)
def test_a_policy_that_affords_no_round_opens_nothing_and_says_what_would(
    tmp_path: Path, kind: type[SampledGaussian], counting: BudgetCounting, _rule: type
) -> None:
    home = home_of(tmp_path, kind, counting)
    edit(home, "min_noise_multiplier", "0.3")
    edit(home, "epsilon", "0.4")
    edit(home, "per_run_epsilon", "0.4")
    with pytest.raises(InvalidInput, match="affords no round: one of 13 steps costs") as caught:
        open_budget(home)
    assert not home.ledger.exists()
    assert not home.key.exists()
    enough = str(caught.value).split("min_noise_multiplier to ")[1].split()[0]
    edit(home, "min_noise_multiplier", enough)
    with open_budget(home) as ledger:
        assert summarize(ledger.books).rounds_left >= 1


def test_a_reserved_place_is_for_exactly_the_policys_step(tmp_path: Path) -> None:
    home = home_of(tmp_path, TruncatedPoissonGaussian, BudgetCounting.RESERVED)
    with open_budget(home) as ledger:
        step = ledger.policy.mechanism.costliest
        with pytest.raises(PolicyRefused, match="reserved for exactly the step of its policy") as caught:
            ledger.charge(request(1, mechanism=step.with_noise(2 * step.noise_multiplier), steps=1))
        assert caught.value.refusal is Refusal.SAMPLING, "not the budget's: a server would take the client for spent"
        ledger.charge(request(2, mechanism=step, steps=1))
