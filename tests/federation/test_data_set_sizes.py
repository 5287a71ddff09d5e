"""How many records a client has is compared once, when it is set up and with one to spare, and never in a reply."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lrdp.accounting import FixedSizeGaussian, Mechanism, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.federation.client.guard import Ward, inspected
from lrdp.federation.client.home import ClientHome
from lrdp.federation.client.local_task import LocalTask, Workbench
from lrdp.federation.client.participant import Participant
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Contributed, Decline, Here, Question, read_message, to_frame
from lrdp.ledger import Refusal
from lrdp.training import CrossEntropy, Dataset
from lrdp.training.sampling import check_room, sampler_for

from .hostile import HONEST, VICTIM, Stage, change_policy, ordering, raw_order, stage
from .worlds import TRAINING, model

STATED = TRAINING.dataset_size


class Shelf:
    """Records that can be taken away while the client runs."""

    def __init__(self, count: int, wrong: int = 0) -> None:
        source = torch.Generator().manual_seed(5)
        self.count = count
        self.inputs = torch.randn(count, 4, generator=source)
        self.labels = torch.randint(0, 2, (count,), generator=source)
        self.labels[:wrong] = 7

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> tuple[Tensor, Tensor]:
        if number >= self.count:
            raise IndexError(number)
        return self.inputs[number], self.labels[number]


class Columns(Shelf):
    def columns_at(self, numbers: np.ndarray) -> tuple[Tensor, ...]:
        places = torch.from_numpy(numbers)
        return self.inputs[: self.count][places], self.labels[: self.count][places]


def bench_of(dataset: Dataset) -> Workbench:
    return Workbench(LocalTask(model=model, dataset=lambda _: dataset, loss=CrossEntropy(classes=2)), {})


class Twin:
    """The victim as it would be with another data set: the same folder, its own copy."""

    def __init__(self, made: Stage, dataset: Dataset, name: str) -> None:
        folder = made.world.consortium.client(VICTIM).folder
        self.home = ClientHome(folder=folder.with_name(name))
        shutil.copytree(folder, self.home.folder)
        self._participant = Participant(self.home, bench_of(dataset))

    def ask(self, question: Question) -> Frame:
        return self._participant.handle(to_frame(question))

    def charges(self) -> int:
        with self.home.ledger() as ledger:
            return len(ledger.books.charges.states)


def seen(reply: Frame) -> tuple[Any, ...]:
    """All of a reply that does not lie in its noise, keys and clocks."""
    answer = read_message(reply)
    code = answer.code if isinstance(answer, Decline) else ""
    return type(answer).__name__, code, len(reply.prefix), [len(body) for body in reply.bodies]


def questions(made: Stage) -> list[Question]:
    """A greeting, an update, one that is refused, and a count."""
    hello, work = made.coordinator.hello, made.invitation()
    orders = [HONEST.encode(), raw_order(steps=4), raw_order(metrics=["correct"])]
    return [hello, *(made.signed(ordering(work, order)) for order in orders)]


@pytest.fixture
def greeted(tmp_path: Path) -> Stage:
    made = stage(tmp_path, metrics='["correct"]')
    made.greet()
    return made


# ---------------------------------------- after set-up
@pytest.mark.parametrize("kind", [Shelf, Columns])
def test_replies_are_the_same_whether_records_at_the_bound_are_there_or_not(greeted: Stage, kind: type[Shelf]) -> None:
    asked, found = questions(greeted), []
    for lost in (0, 1, 2):
        shelf = kind(STATED + 1)
        twin = Twin(greeted, shelf, f"twin-{lost}")
        first = twin.ask(asked[0])
        shelf.count -= lost
        found.append(([seen(first), *(seen(twin.ask(question)) for question in asked[1:])], twin.charges()))
    assert found[0] == found[1] == found[2]
    (greeting, update, refused, count), charged = found[0]
    assert (greeting[0], update[0], refused[:2], count[0]) == ("Here", "Contributed", ("Decline", "steps"), "Counted")
    assert charged == 2


def test_control_a_check_in_every_reply_tells_of_a_record(greeted: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it was before: the mechanism's own check, made on the records as they are when a message comes."""
    monkeypatch.setattr(Workbench, "set_up", lambda bench, policy: bench._counted(1))
    _, work, *_ = questions(greeted)
    replies = [seen(Twin(greeted, Shelf(count), f"twin-{count}").ask(work)) for count in (STATED, STATED - 1)]
    assert [reply[:2] for reply in replies] == [("Contributed", ""), ("Decline", "invalid")]


def test_records_that_are_left_out_are_counted_like_any_other(greeted: Stage) -> None:
    asked, found = questions(greeted), []
    for wrong in (0, 1, 40):
        twin = Twin(greeted, Shelf(STATED + 1, wrong=wrong), f"twin-{wrong}")
        found.append([seen(twin.ask(question)) for question in asked])
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("count", [STATED + 1, STATED + 2, 10 * STATED])
def test_a_policy_that_states_another_size_is_refused_whatever_the_number_of_records(
    tmp_path: Path, count: int
) -> None:
    made = stage(tmp_path)
    made.greet()
    bench = bench_of(Shelf(count))
    participant = Participant(made.world.consortium.client(VICTIM), bench)
    assert isinstance(read_message(participant.handle(to_frame(made.coordinator.hello))), Here)
    for stated in (STATED + 1, STATED + 50, STATED - 50):
        change_policy(made.world, VICTIM, min_dataset_size=str(stated))
        for question in questions(made)[:2]:
            assert read_message(participant.handle(to_frame(question))) == Decline(code="dataset-size")
    change_policy(made.world, VICTIM, min_dataset_size=str(STATED))
    assert isinstance(read_message(participant.handle(to_frame(questions(made)[1]))), Contributed)


def test_the_refusal_says_to_start_again(tmp_path: Path) -> None:
    made = stage(tmp_path)
    bench, home = bench_of(Shelf(STATED + 1)), made.world.consortium.client(VICTIM)
    bench.set_up(home.policy())
    change_policy(made.world, VICTIM, min_dataset_size="90")
    with pytest.raises(PolicyRefused, match=r"start it again.* nothing was spent") as caught:
        bench.set_up(home.policy())
    assert caught.value.refusal is Refusal.DATASET_SIZE


# ---------------------------------------- at set-up
SENTENCE = (
    f"the data set has {STATED} records, and with {STATED - 1} it would be refused, which would reveal one "
    f"record: "
    f"dataset must hold at least dataset_size={STATED} records, got {STATED - 1}: .* account with a smaller"
)


def test_set_up_refuses_a_data_set_without_a_record_to_spare(tmp_path: Path) -> None:
    home = stage(tmp_path).world.consortium.client(VICTIM)
    task = LocalTask(model=model, dataset=lambda _: Shelf(STATED), loss=CrossEntropy(classes=2))
    for set_up in (
        lambda: bench_of(Shelf(STATED)).set_up(home.policy()),
        lambda: inspected(Ward(home=home, task=task)),
    ):
        with pytest.raises(InvalidInput, match=SENTENCE):
            set_up()
    bench_of(Shelf(STATED + 1)).set_up(home.policy())


def test_a_client_that_could_not_be_set_up_answers_every_message_alike_and_enters_nothing(greeted: Stage) -> None:
    asked = questions(greeted)
    for count in (STATED, STATED - 1, 1):
        twin = Twin(greeted, Shelf(count), f"twin-{count}")
        before = sorted((path.name, path.read_bytes()) for path in twin.home.standing.iterdir())
        assert [read_message(twin.ask(question)) for question in asked] == [Decline(code="invalid")] * len(asked)
        assert sorted((path.name, path.read_bytes()) for path in twin.home.standing.iterdir()) == before
        assert twin.charges() == 0


FIXED = FixedSizeGaussian(dataset_size=100, batch_size=8, noise_multiplier=2.0)
TRUNCATED = TruncatedPoissonGaussian(dataset_size=100, batch_size=8, cap=20, noise_multiplier=2.0)


@pytest.mark.parametrize(
    ("mechanism", "inside", "with_room"),
    [(FIXED, range(100, 1000), range(101, 1000)), (TRUNCATED, range(1, 101), range(2, 100))],
    ids=["fixed-size", "truncated-poisson"],
)
def test_there_is_room_for_exactly_those_whose_neighbours_can_all_be_trained(
    mechanism: Mechanism, inside: range, with_room: range
) -> None:
    for records in range(200):
        assert _passes(lambda size: sampler_for(mechanism, size), records) == (records in inside)
        assert _passes(lambda size: check_room(mechanism, size), records) == (records in with_room)
        for rows in (2, 5, 40):
            both = records - rows in inside and records + rows in inside
            assert _passes(lambda size, rows=rows: check_room(mechanism, size, rows), records) == both  # type: ignore[misc]


def test_a_unit_of_several_rows_needs_room_for_all_of_them(tmp_path: Path) -> None:
    """The statement promises ε for the unit: with it gone, the rest must still be what the bound is proved for."""
    made = stage(tmp_path)
    home = made.world.consortium.client(VICTIM)
    change_policy(made.world, VICTIM, max_rows_per_unit="5")
    for spare in (1, 4):
        with pytest.raises(
            InvalidInput, match=f"with {STATED + spare - 5} it would be refused.* one unit of 5 records"
        ):
            bench_of(Shelf(STATED + spare)).set_up(home.policy())
    bench_of(Shelf(STATED + 5)).set_up(home.policy())


def _passes(check: Callable[[int], object], records: int) -> bool:
    try:
        check(records)
    except InvalidInput:
        return False
    return True
