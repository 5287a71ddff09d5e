"""Steps of the whole data set, from the policy to the statement: drafted, paid, trained, guarded, verified."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lrdp.accounting import Budget, FullBatchGaussian, Training
from lrdp.errors import InvalidInput, NoVerifiedRound
from lrdp.federation import Consortium, guarded_client_app
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.local.consortium import pinned
from lrdp.ledger import (
    BudgetCounting,
    Holder,
    Home,
    PolicyRecipe,
    draft,
    open_budget,
    read_policy,
    summarize,
    write_draft,
)
from lrdp.report.registry_entry import entry
from lrdp.report.statement import Statement, record
from lrdp.training import CrossEntropy, Execution, TensorRecords

from .guards import guarding
from .hostile import Stage, opened, ordering, raw_order
from .test_data_set_sizes import Shelf, Twin, seen
from .worlds import RECORDS, World, model, records, world

BOUND, MICRO_BATCH, ROUNDS = RECORDS + 5, 16, 4
TRAINING = Training(
    dataset_size=BOUND, batch_size=MICRO_BATCH, rounds=ROUNDS, local_steps=3, budget=Budget(epsilon=8.0, delta=1e-5)
)


def rewritten(consortium: Consortium, name: str) -> None:
    """The client's policy and ledger anew: every record in every step."""
    home = Home(folder=consortium.client(name).folder)
    for path in (home.policy, home.ledger, home.key, home.administrator):
        path.unlink()
    holder = Holder(client=name, unit="patient", max_rows_per_unit=1)
    peers = pinned(consortium, consortium.registry())
    write_draft(home, draft(holder, TRAINING, peers, PolicyRecipe(FullBatchGaussian, BudgetCounting.RESERVED)))
    open_budget(home).close()


@pytest.fixture
def hospitals(tmp_path: Path) -> World:
    made = world(tmp_path, 3)
    for name in made.names:
        rewritten(made.consortium, name)
    return made


def steps_of(made: World, name: str) -> dict[str, int]:
    return {step.name: count for step, count in made.books(name).charges.history.items()}


def test_rounds_of_the_whole_data_set_are_paid_verified_and_end_with_the_budget(hospitals: World) -> None:
    hospitals.run(ROUNDS)
    assert [report.verified for report in hospitals.reports] == [True] * ROUNDS
    for name in hospitals.names:
        assert steps_of(hospitals, name) == {"full-batch": 3 * ROUNDS}
        assert 7.9 < hospitals.spent(name) <= 8.0
    with pytest.raises(NoVerifiedRound):
        hospitals.run(1, folder=hospitals.another_folder())
    assert all(steps_of(hospitals, name) == {"full-batch": 3 * ROUNDS} for name in hospitals.names)


def test_the_statement_and_its_record_say_what_was_done(hospitals: World) -> None:
    hospitals.run(1)
    with hospitals.consortium.client(hospitals.names[0]).ledger() as ledger:
        statement = Statement(summary=summarize(ledger.books), head=ledger.head())
    said = record(statement)
    domain = entry(statement)["entry"]["deployment"]["dp_variant"]["data_domain"]
    assert f"at most {BOUND} records" in domain
    step = said["mechanisms"][0]
    assert (step["name"], step["dataset_size"], step["batch_size"], step["probability"]) == (
        "full-batch",
        BOUND,
        None,
        1.0,
    )
    (point,) = (point["text"] for point in said["points"] if point["key"] == "mechanism")
    assert f"full-batch sampling, σ = {step['noise_multiplier']}, n = {BOUND};" in point


def test_rounds_run_through_guards(hospitals: World, tmp_path: Path) -> None:
    with ExitStack() as guards:
        for number, name in enumerate(hospitals.names):
            path = tmp_path / f"{number}.sock"
            guards.enter_context(guarding(hospitals.consortium.client(name), path, number))
            hospitals.node(name).app, hospitals.node(name).settings = guarded_client_app(), {"guard": str(path)}
        hospitals.run(2)
    assert [report.verified for report in hospitals.reports] == [True] * 2
    assert all(steps_of(hospitals, name) == {"full-batch": 6} for name in hospitals.names)


def test_the_policy_says_how_many_rows_are_computed_at_a_time(hospitals: World) -> None:
    policy = read_policy(Home(folder=hospitals.consortium.client(hospitals.names[0]).folder).policy)
    assert policy.micro_batch == MICRO_BATCH
    assert policy.mechanism.costliest.rows == BOUND
    plans: list[Any] = []
    bench = Workbench(watched(plans.append), {"partition-id": 0})
    bench.set_up(policy)
    bench.rehearse(policy)
    assert [plan.micro_batch for plan in plans] == [MICRO_BATCH]


def watched(announce: Callable[[Any], None]) -> LocalTask:
    return LocalTask(model=model, dataset=records, loss=CrossEntropy(classes=2), execution=Execution(announce=announce))


def test_replies_are_the_same_for_neighbours_also_where_an_order_asks_for_a_batch(hospitals: World) -> None:
    made = Stage(hospitals, opened(hospitals), hospitals.consortium.server_identity())
    made.greet()
    work = made.invitation()
    orders = [raw_order(), raw_order(batch_size=8), raw_order(noise_multiplier=0.1), raw_order(steps=400)]
    questions = [made.coordinator.hello, *(made.signed(ordering(work, order)) for order in orders)]
    found = []
    for count in (RECORDS - 1, RECORDS, RECORDS + 1):
        twin = Twin(made, Shelf(count), f"twin-{count}")
        found.append(([seen(twin.ask(question)) for question in questions], twin.charges()))
        shutil.rmtree(twin.home.folder)
    assert found[0] == found[1] == found[2]
    names = [reply[0] for reply in found[0][0]]
    assert names == ["Here", "Contributed", "Decline", "Decline", "Decline"]
    assert found[0][1] == 1, "what was declined cost nothing"


@pytest.mark.parametrize(("count", "why"), [(BOUND, "would reveal one record"), (BOUND + 1, "max_dataset_size")])
def test_a_data_set_at_the_bound_is_refused_when_the_client_is_set_up(hospitals: World, count: int, why: str) -> None:
    policy = read_policy(Home(folder=hospitals.consortium.client(hospitals.names[0]).folder).policy)

    def many(settings: Mapping[str, Any]) -> TensorRecords:
        return TensorRecords(*records(settings).columns_at(np.arange(count) % RECORDS))

    bench = Workbench(LocalTask(model=model, dataset=many, loss=CrossEntropy(classes=2)), {"partition-id": 0})
    with pytest.raises(InvalidInput, match=why):
        bench.set_up(policy)
