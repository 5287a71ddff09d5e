"""ε after k asynchronous rounds is the accountant's value for exactly the steps taken."""

import tempfile
from collections import Counter
from multiprocessing import get_context
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.worlds import STEP, World, policy, request, round_trip
from lrdp.accounting import Adjacency, Mechanism, RenyiAccountant
from lrdp.errors import BudgetExceeded

ACCOUNTANT = RenyiAccountant(adjacency=Adjacency.ADD_REMOVE)
participation = st.lists(
    st.tuples(st.booleans(), st.integers(1, 90), st.sampled_from([3.7, 5.1, 11.3]), st.booleans()), max_size=10
)


@settings(max_examples=15)
@given(rounds=participation)
def test_epsilon_equals_the_accountants_for_any_participation_across_restarts(
    rounds: list[tuple[bool, int, float, bool]],
) -> None:
    taken: Counter[Mechanism] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder=Path(folder), rules=policy(per_run_epsilon="8.0"))
        ledger = world.create()
        epsilon = 0.0
        for number, (takes_part, steps, noise, restarts) in enumerate(rounds):
            if takes_part:
                step = STEP.with_noise(noise)
                round_trip(ledger, request(number, mechanism=step, steps=steps))
                taken[step] += steps
            if restarts:
                ledger.close()
                ledger = world.open()
            spent = ledger.answer().spent
            assert spent == ACCOUNTANT.epsilon(dict(taken), 1e-6)
            assert spent.epsilon > epsilon if takes_part else spent.epsilon == epsilon
            epsilon = spent.epsilon
        ledger.close()


def test_the_recorded_epsilon_is_the_recomputed_one(world: World) -> None:
    with world.create() as ledger:
        for number in range(3):
            round_trip(ledger, request(number))
        last = ledger.books.charges.newest
        assert last is not None
        assert (last.guaranteed, last.spent) == (ledger.answer().guaranteed.epsilon, ledger.answer().spent.epsilon)
        assert last.accountant.startswith("rdp lrdp/")


def _spend(world: World, run: str) -> None:
    made = 0
    with world.open() as ledger:
        for number in range(1000):
            try:
                round_trip(ledger, request(number, run=run))
            except BudgetExceeded:
                break
            made += 1
    (world.folder / f"{run}.count").write_text(str(made))


def test_two_processes_at_once_never_exceed_the_budget_together(tmp_path: Path) -> None:
    world = World(folder=tmp_path, rules=policy(epsilon="2.0", per_run_epsilon="2.0"))
    world.create().close()
    context = get_context("fork")
    processes = [context.Process(target=_spend, args=(world, run)) for run in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    made = [int((tmp_path / f"{run}.count").read_text()) for run in "ab"]
    with world.open() as ledger:
        assert ledger.books.charges.history == {STEP: 39 * sum(made)}
        assert ledger.answer().guaranteed.epsilon <= 2.0
        assert len(ledger.books.charges.states) == sum(made)
        with pytest.raises(BudgetExceeded):
            ledger.charge(request(5000))
