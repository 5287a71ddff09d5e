"""Moments on a client's disk: taken up after a restart, never by another session, and nothing is lost with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from torch import nn

from federation.worlds import TRAINING, World, hospitals, initial, model, records, world
from ledger.worlds import World as LedgerWorld
from lrdp.federation import InProcessGrid, Node, Order, private_client_app
from lrdp.federation.client import kept_moments, paying
from lrdp.federation.client.kept_moments import KeptMoments
from lrdp.federation.wire.flower import from_message
from lrdp.federation.wire.questions import Contributed, read_message
from lrdp.ledger import Ledger
from lrdp.training import (
    Adam,
    AutomaticClipping,
    CrossEntropy,
    Moments,
    Optimiser,
    PublicConstants,
    Sgd,
    Task,
    TensorRecords,
)

SESSION, OTHER = bytes(32), bytes([1]) * 32


def task(optimiser: Any, network: nn.Module | None = None) -> Task:
    return Task(
        model=network or model(),
        dataset=TensorRecords(torch.zeros(9, 4), torch.zeros(9, dtype=torch.int64)),
        loss=CrossEntropy(classes=2),
        constants=PublicConstants(clip_norm=1.0, optimiser=optimiser),
    )


ADAM = Adam(lr=0.1, over_rounds=True)


def some(taken: int = 3) -> Moments:
    return Moments(taken, tuple((torch.randn(p.shape), torch.rand(p.shape)) for p in model().parameters()))


def same(found: Moments | None, kept: Moments) -> bool:
    return (
        found is not None
        and found.taken == kept.taken
        and all(
            torch.equal(mine, theirs)
            for ours, others in zip(found.kept, kept.kept, strict=True)
            for mine, theirs in zip(ours, others, strict=True)
        )
    )


@pytest.fixture
def books(tmp_path: Path) -> Iterator[Ledger]:
    with LedgerWorld(folder=tmp_path).create() as ledger:
        yield ledger


def test_what_was_kept_is_taken_up_by_another_process_and_under_another_rate(tmp_path: Path, books: Ledger) -> None:
    kept = some()
    KeptMoments(tmp_path, books).save(SESSION, ADAM, kept)
    assert same(KeptMoments(tmp_path, books).load(SESSION, task(ADAM)), kept)
    assert same(KeptMoments(tmp_path, books).load(SESSION, task(replace(ADAM, lr=0.7))), kept)
    assert (tmp_path / "moments").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("cut", [0, 3, 30, -1, -40])
def test_a_damaged_file_means_a_start_at_zero(tmp_path: Path, books: Ledger, cut: int) -> None:
    KeptMoments(tmp_path, books).save(SESSION, ADAM, some())
    whole = (tmp_path / "moments").read_bytes()
    (tmp_path / "moments").write_bytes(whole[:cut])
    assert KeptMoments(tmp_path, books).load(SESSION, task(ADAM)) is None
    (tmp_path / "moments").write_bytes(whole[: cut or None] + b"\xff" * 5000)
    assert KeptMoments(tmp_path, books).load(SESSION, task(ADAM)) is None


def test_whatever_byte_of_a_header_is_another_nothing_is_raised(tmp_path: Path, books: Ledger) -> None:
    """A client that raised would decline every round to come; numpy reads headers as Python's literals."""
    kept = some()
    KeptMoments(tmp_path, books).save(SESSION, ADAM, kept)
    whole = (tmp_path / "moments").read_bytes()
    start, end = whole.index(b"\x93NUMPY"), whole.index(b"}", whole.index(b"\x93NUMPY"))
    archive = whole[:start] + b"PK\x03\x04" + whole[start + 4 :]
    for damaged in (archive, *(whole[:at] + b"(" + whole[at + 1 :] for at in range(start, end + 1))):
        (tmp_path / "moments").write_bytes(damaged)
        found = KeptMoments(tmp_path, books).load(SESSION, task(ADAM))
        assert found is None or same(found, kept), "some bytes mean nothing"


def test_those_of_another_session_model_or_optimiser_are_not_taken_up(tmp_path: Path, books: Ledger) -> None:
    here = KeptMoments(tmp_path, books)
    here.save(SESSION, ADAM, some())
    assert here.load(OTHER, task(ADAM)) is None
    assert here.load(SESSION, task(ADAM, nn.Linear(4, 3))) is None
    assert here.load(SESSION, task(Sgd(lr=0.1, momentum=0.9, over_rounds=True))) is None
    assert here.load(SESSION, task(Adam(lr=0.1))) is None
    assert here.load(SESSION, task(ADAM)) is not None  # control
    wild = some()
    wild.kept[0][1][0] = torch.inf
    here.save(SESSION, ADAM, wild)
    assert here.load(SESSION, task(ADAM)) is None
    here.save(SESSION, ADAM, None)
    assert not (tmp_path / "moments").exists()


def test_those_of_steps_that_the_books_do_not_hold_are_not_taken_up(tmp_path: Path) -> None:
    """Killed once they were kept, and restored from a backup of before: nobody else has seen the head."""
    place = world(tmp_path, 3, trainings=dict.fromkeys(hospitals(3), replace(TRAINING, rounds=60)))
    folder = place.consortium.client("hospital-0").folder
    taken_up: list[int | None] = []

    class Watched(KeptMoments):
        def load(self, session: bytes, task: Task) -> Moments | None:
            found = super().load(session, task)
            if self.folder.parent == folder:
                taken_up.append(found.taken if found else None)
            return found

    class Dying(KeptMoments):
        def save(self, session: bytes, optimiser: Optimiser, moments: Moments | None) -> None:
            super().save(session, optimiser, moments)
            if self.folder.parent == folder:
                raise Killed

    def more(rounds: int, kind: type[KeptMoments]) -> None:
        app = app_of(place, optimiser=Sgd(lr=0.1, momentum=0.9, over_rounds=True))
        place.grid.nodes = {1 + number: Node(app, {"partition-id": number}) for number in range(3)}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(paying, "KeptMoments", kind)
            place.strategy().start(place.grid, initial(), num_rounds=rounds, timeout=5)

    more(2, Watched)
    assert taken_up == [None, 3], "control: they go on from round to round"
    backup = (folder / "ledger.db").read_bytes()
    with pytest.raises(Killed):
        more(3, Dying)
    (folder / "ledger.db").write_bytes(backup)
    assert place.books("hospital-0").charges.steps == 6
    more(4, Watched)
    assert taken_up[2] is None
    assert [report.verified for report in place.reports][-1]


class Killed(BaseException):
    """Nothing that a client catches."""


def test_a_disk_that_takes_nothing_costs_the_moments_and_no_reply(tmp_path: Path, books: Ledger) -> None:
    here = KeptMoments(tmp_path / "missing", books)
    here.save(SESSION, ADAM, some())
    assert here.load(SESSION, task(ADAM)) is None


def app_of(place: World, **settings: Any) -> ClientApp:
    return private_client_app(
        policy=str(place.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=model,
        dataset=records,
        loss=CrossEntropy(classes=2),
        **settings,
    )


def test_rounds_go_on_over_a_restart_and_a_reply_that_is_asked_for_again_is_the_same(tmp_path: Path) -> None:
    """After each reply the client is another process, which is asked the same once more."""
    asked: list[Message] = []
    again: list[bool] = []
    taken: list[int] = []
    place = world(tmp_path, 3)
    file = place.consortium.client("hospital-0").standing / "moments"

    def keep(message: Message) -> Message:
        if message.metadata.dst_node_id == 1:
            asked.append(message)
        return message

    def watch(message: Message) -> Message:
        answer = read_message(from_message(message))
        if isinstance(answer, Contributed) and message.metadata.src_node_id == 1:
            kept = file.read_bytes()
            taken.append(kept_moments._LABEL.decode(kept[4 : 4 + int.from_bytes(kept[:4], "big")])["taken"])
            nodes[1] = Node(app_of(place, optimiser=ADAM), {"partition-id": 0})
            message = nodes[1].app(asked[-1], place.grid.context_of(1))  # the first reply is lost
            second = read_message(from_message(message))
            same_bytes = isinstance(second, Contributed) and second.values == answer.values
            again.append(same_bytes and file.read_bytes() == kept)
        return message

    nodes = {1 + number: Node(app_of(place, optimiser=ADAM), {"partition-id": number}) for number in range(3)}
    place.grid = InProcessGrid(nodes, before=keep, after=watch)
    place.run(3)
    assert [report.verified for report in place.reports] == [True] * 3
    assert taken == [3, 6, 9]
    assert again == [True] * 3
    assert len(place.books("hospital-0").charges.states) == 3


def test_no_public_constant_of_a_task_changes_what_a_round_costs(tmp_path: Path) -> None:
    """Five hospitals of one policy, each with another of them: the same charges, the same ε."""
    place = world(tmp_path, 5)
    apps = [
        app_of(place),
        app_of(place, optimiser=ADAM),
        app_of(place, optimiser=Sgd(lr=0.1, momentum=0.9, over_rounds=True)),
        app_of(place, clipping=AutomaticClipping(gamma=0.01)),
        app_of(place, normaliser=50.0),
    ]
    place.grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number, app in enumerate(apps)})
    place.run(2, order=Order(normaliser=11.0))
    assert [report.verified for report in place.reports] == [True] * 2
    kept = [(place.consortium.client(name).standing / "moments").exists() for name in place.names]
    assert kept == [False, True, True, False, False]
    histories = [place.books(name).charges.history for name in place.names]
    assert all(history == histories[0] for history in histories)
    assert len({place.spent(name) for name in place.names}) == 1
    assert place.spent(place.names[0]) > 0.0
