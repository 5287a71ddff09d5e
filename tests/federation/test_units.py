"""Patients in a federation: a hospital's rows are grouped by whose they are, and every figure is a patient's."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import pytest
import torch

from federation.worlds import TRAINING, World, hospitals, initial, model
from lrdp.accounting import FullBatchGaussian, Training
from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.federation import InProcessGrid, Node, found, guarded_client_app, private_client_app
from lrdp.federation.client.counting import counting
from lrdp.federation.client.guard import Guard, Ward, inspected
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.local.consortium import enrol, pinned
from lrdp.federation.wire.sockets import listening
from lrdp.ledger import (
    FIXED_SIZE,
    RECOMMENDED,
    BudgetCounting,
    Clipped,
    Holder,
    PolicyRecipe,
    draft,
    summarize,
)
from lrdp.report.statement import Statement, record
from lrdp.training import CrossEntropy, PublicConstants, Sgd, TensorRecords

MOST = 5
PATIENTS = 120


class Visits(TensorRecords):
    """Several rows for each patient, in no order, one of them with far more than the policy's most."""

    def __init__(self, number: int, patients: int = PATIENTS) -> None:
        source = torch.Generator().manual_seed(number)
        rows = torch.cat(
            [torch.arange(patients), torch.randint(0, patients, (200,), generator=source), torch.zeros(40)]
        )
        self.patients = rows[torch.randperm(len(rows), generator=source)].long()
        labels = self.patients % 2
        super().__init__(torch.randn(len(rows), 4, generator=source) + 2.0 * labels[:, None], labels)


def visits(settings: Mapping[str, Any]) -> Visits:
    return Visits(int(settings["partition-id"]))


def patients(rows: Visits) -> torch.Tensor:
    return rows.patients


BY_PATIENT = LocalTask(model=model, dataset=visits, loss=CrossEntropy(classes=2), units=patients)
BY_ROW = LocalTask(model=model, dataset=visits, loss=CrossEntropy(classes=2))


class Way(NamedTuple):
    """A kind of step with how it is counted, and the training that a policy of it states."""

    recipe: PolicyRecipe
    training: Training

    @property
    def stated(self) -> int:
        return self.training.dataset_size


MANY = replace(TRAINING, dataset_size=PATIENTS + 9)  # far fewer than there are rows
FIXED = Way(FIXED_SIZE, TRAINING)
WAYS = {
    "fixed size": FIXED,
    "truncated Poisson": Way(RECOMMENDED, MANY),
    "full batch": Way(PolicyRecipe(FullBatchGaussian, BudgetCounting.RESERVED), MANY),
}
in_every_way = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def of_patients(folder: Path, count: int = 3, way: Way = FIXED) -> World:
    """A consortium whose policies clip units."""
    names = hospitals(count)
    consortium = found(folder / "consortium", dict.fromkeys(names, TRAINING))
    for name in names:
        home = consortium.client(name)
        for made in (home.folder / "policy.toml", home.folder / "ledger.db", *home.folder.glob("keys/[ac]*.pem")):
            made.unlink()
        holder = Holder(client=name, unit="patient", max_rows_per_unit=MOST, clipped=Clipped.UNITS)
        enrol(home, draft(holder, way.training, pinned(consortium, consortium.registry()), way.recipe))
    app = private_client_app(
        model=model,
        dataset=visits,
        loss=CrossEntropy(classes=2),
        units=patients,
        policy=str(consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
    )
    nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(count)}
    return World(consortium, names, InProcessGrid(nodes))


@in_every_way
def test_hospitals_train_by_patient_and_their_books_and_statements_are_about_patients(tmp_path: Path, way: Way) -> None:
    place = of_patients(tmp_path, way=way)
    result = place.run(2)
    assert [report.verified for report in place.reports] == [True] * 2
    assert place.audit().failure is None
    before = initial()
    assert any(
        not torch.equal(torch.tensor(before[name].numpy()), torch.tensor(result.arrays[name].numpy()))
        for name in before
    )
    for name in place.names:
        summary = summarize(place.books(name))
        assert summary.policy.identity.clipped is Clipped.UNITS
        assert summary.group.epsilon == summary.guaranteed.epsilon > 0.0
        assert {(step.name, getattr(step, "dataset_size", None)) for step in summary.history} == {
            (way.recipe.kind.name, way.stated)
        }
        assert summary.group_spent.epsilon == summary.spent.epsilon > 0.0
        said = record(Statement(summary=summary))
        assert (said["unit"], said["clipped"]) == ("patient", "units")
        (unit,) = (point["text"] for point in said["points"] if point["key"] == "unit")
        assert (
            f"One patient, with all rows: they are drawn together, at most {MOST} of them, and clipped as one." in unit
        )


def test_the_number_that_the_policy_bounds_is_that_of_patients(tmp_path: Path) -> None:
    """360 rows of 90 patients are too few for a policy that was accounted for 100."""
    home = of_patients(tmp_path).consortium.client("hospital-0")
    few = LocalTask(model=model, dataset=lambda _: Visits(0, 90), loss=CrossEntropy(classes=2), units=patients)
    with pytest.raises(InvalidInput, match="dataset_size=100 records, got 90"):
        Workbench(few, {}).set_up(home.policy())
    Workbench(BY_PATIENT, {"partition-id": 0}).set_up(home.policy())


@pytest.mark.parametrize("way", list(WAYS.values())[1:], ids=list(WAYS)[1:])
def test_an_upper_bound_too_is_one_on_patients(tmp_path: Path, way: Way) -> None:
    """360 rows of 120 patients fit in a policy for 129; as many patients as it bounds leave no room for one more."""
    home = of_patients(tmp_path, way=way).consortium.client("hospital-0")
    many = LocalTask(model=model, dataset=lambda _: Visits(0, way.stated), loss=CrossEntropy(classes=2), units=patients)
    with pytest.raises(InvalidInput, match=f"the data set has {way.stated} records"):
        Workbench(many, {}).set_up(home.policy())
    Workbench(BY_PATIENT, {"partition-id": 0}).set_up(home.policy())


def test_task_and_policy_must_agree_on_what_a_record_is(tmp_path: Path) -> None:
    home = of_patients(tmp_path).consortium.client("hospital-0")
    policy = home.folder / "policy.toml"
    with pytest.raises(InvalidInput, match=r"line 10 clips units, and the task makes records of rows: say whose"):
        Workbench(BY_ROW, {"partition-id": 0}).set_up(home.policy())
    bench = Workbench(BY_PATIENT, {"partition-id": 0})
    bench.set_up(home.policy())
    policy.write_text(policy.read_text(encoding="utf-8").replace('clipped = "units"', 'clipped = "rows"'), "utf-8")
    with pytest.raises(InvalidInput, match="clips rows, and the task makes records of units: leave units out"):
        Workbench(BY_PATIENT, {"partition-id": 0}).set_up(home.policy())
    with pytest.raises(PolicyRefused, match="another sampling, data set size or unit"):
        bench.set_up(home.policy())
    with pytest.raises(PolicyRefused, match="what is clipped"):
        home.ledger()


def test_correct_records_are_not_counted_where_a_record_is_a_patient(tmp_path: Path) -> None:
    home = of_patients(tmp_path).consortium.client("hospital-0")
    bench = Workbench(BY_PATIENT, {"partition-id": 0})
    bench.set_up(home.policy())
    with pytest.raises(InvalidInput, match="a label for each of its rows: nothing was counted or spent"):
        counting(bench.with_constants(PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=1.0))), 1.0)


@pytest.mark.one_in(3, begin=1)  # the recommended kind every day
@in_every_way
def test_a_guard_trains_by_patient(tmp_path: Path, way: Way) -> None:
    place = of_patients(tmp_path, way=way)
    home: ClientHome = place.consortium.client("hospital-0")
    with pytest.raises(InvalidInput, match="makes records of rows"):
        inspected(Ward(home=home, task=BY_ROW, settings={"partition-id": 0}))
    bench, _ = inspected(Ward(home=home, task=BY_PATIENT, settings={"partition-id": 0}))
    path = tmp_path / "guard.sock"
    told, tell = socket.socketpair()
    with closing(told), closing(tell), listening(path) as listener:
        thread = Thread(target=Guard(home, Participant(home, bench), lambda _: None, 5.0).serve, args=(listener, told))
        thread.start()
        try:
            place.grid.nodes[1] = Node(guarded_client_app(str(path)))  # type: ignore[index]
            place.run(1)
        finally:
            tell.send(b"!")
            thread.join()
    assert [report.verified for report in place.reports] == [True]
    assert len(place.books("hospital-0").charges.states) == 1
