"""A server that listens to how it is refused: what a refusal says is the same for every data set."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from torch import nn

from lrdp.federation import InProcessGrid, Node, private_client_app
from lrdp.federation.wire.flower import from_message, to_records
from lrdp.federation.wire.frames import Frame
from lrdp.federation.wire.questions import Closing, Contributed, Decline, Question, read_message, to_frame
from lrdp.training import CrossEntropy, TensorRecords

from .hostile import HONEST, VICTIM, Stage, ordering, raw_order, shown, stage
from .worlds import RECORDS, records

Records = Callable[[Mapping[str, Any]], TensorRecords]


def _altered(settings: Mapping[str, Any], record: int, value: float) -> TensorRecords:
    inputs, labels = records(settings).columns_at(np.arange(RECORDS))
    inputs[record] = value
    return TensorRecords(inputs, labels)


NEIGHBOURS: Mapping[str, Records] = {
    "one record fewer": lambda settings: TensorRecords(*records(settings).columns_at(np.arange(RECORDS - 1))),
    "the first record is infinite": lambda settings: _altered(settings, 0, float("inf")),
    "the first record is undefined": lambda settings: _altered(settings, 0, float("nan")),
    "the last record is huge": lambda settings: _altered(settings, RECORDS - 1, 1e30),
}


def _attacks(made: Stage) -> list[Question]:
    work = made.invitation()
    orders = [raw_order(steps=4), raw_order(noise_multiplier=0.5), raw_order(batch_size=50), raw_order(clip_norm=3.0)]
    orders += [raw_order(metrics=["correct"]), raw_order(batch_size=RECORDS - 1), raw_order(batch_size=RECORDS), b"{"]
    questions: list[Question] = [made.signed(ordering(work, order)) for order in orders]
    questions += [replace(work, invitation=made.signed_train(round=5)), shown(work, model=b""), Closing(tags=b"")]
    return [*questions, replace(made.coordinator.hello, layout=b"[]")]


def _replies(made: Stage, dataset: Records, attacks: list[Question]) -> list[Frame]:
    """The victim's replies, bytes and all, if its data set were this one."""
    folder = made.world.consortium.client(VICTIM).folder
    twin = folder.with_name("twin")
    shutil.copytree(folder, twin)
    app = private_client_app(
        policy=str(twin / "policy.toml"), model=lambda: nn.Linear(4, 2), dataset=dataset, loss=CrossEntropy(classes=2)
    )
    made.world.grid.nodes[99] = Node(app, {"partition-id": 0})  # type: ignore[index]
    try:
        return [from_message(_asked(made.world.grid, question)) for question in attacks]
    finally:
        shutil.rmtree(twin)


def _asked(grid: InProcessGrid, question: Question) -> Any:
    from flwr.app import Message

    (reply,) = grid.send_and_receive([Message(to_records(to_frame(question)), 99, "train")])
    assert not reply.has_error()
    return reply


@pytest.mark.parametrize("neighbour", NEIGHBOURS.values(), ids=NEIGHBOURS.keys())
def test_a_refusal_has_the_same_bytes_whatever_the_data(settled: Stage, neighbour: Records) -> None:
    attacks = _attacks(settled)
    here, there = _replies(settled, records, attacks), _replies(settled, neighbour, attacks)
    assert here == there
    assert all(isinstance(read_message(reply), Decline) for reply in here)


# ---------------------------------------- weights chosen for one record
WIDTH = 32
TARGET = torch.randn(WIDTH, generator=torch.Generator().manual_seed(3))
SEEDS = range(12)


def _deep() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.Linear(8, 2))


def _people(with_target: bool) -> TensorRecords:
    source = torch.Generator().manual_seed(5)
    inputs, labels = torch.randn(RECORDS, WIDTH, generator=source), torch.randint(0, 2, (RECORDS,), generator=source)
    if with_target:
        inputs[0] = TARGET
    return TensorRecords(inputs, labels)


def aimed(seed: int) -> nn.Module:
    """Weights within the policy on which one person's gradient is nothing but rounding, and everybody else's is zero.

    Everything the target's features add up to is subtracted again, and what rounding leaves is multiplied by 10^8: how
    it is rounded depends on how many records are computed at once.
    """
    source = torch.Generator().manual_seed(seed)
    model: Any = _deep()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        weights = torch.randn(WIDTH, generator=source)
        weights *= 9000 / weights.abs().max()
        shift = -(weights.double() @ TARGET.double()).float()
        scale = max(1.0, float(shift.abs()) / 9999)
        model[0].weight[0], model[0].bias[0] = weights / scale, shift / scale
        model[1].weight[0, 0], model[1].weight[1, 0] = 9999.0, -9999.0
    return model


def _with_data(made: Stage, with_target: bool) -> Stage:
    """The victim trains the deep model, with the target among its records or not."""
    app = private_client_app(
        policy=str(made.world.consortium.client(VICTIM).folder / "policy.toml"),
        model=_deep,
        dataset=lambda _: _people(with_target),
        loss=CrossEntropy(classes=2),
    )
    made.world.grid.nodes[1] = Node(app, {"partition-id": 0})  # type: ignore[index]
    return made


@pytest.mark.parametrize("with_target", [True, False])
def test_weights_aimed_at_one_record_do_not_make_its_client_refuse(tmp_path: Path, with_target: bool) -> None:
    """A check that fails on one person's record only would tell, with certainty and unaccounted, that it is there."""
    made = _with_data(stage(tmp_path, epsilon="8.0", max_steps_per_round="1", min_noise_multiplier="9.0"), with_target)
    for seed in SEEDS:
        session = made.world.strategy()._terms.open(ArrayRecord(aimed(seed).state_dict()))
        answer = _first_round(replace(made, coordinator=session))
        assert isinstance(answer, Contributed), (seed, answer)


def _first_round(made: Stage) -> Any:
    made.ask(made.coordinator.hello)
    return made.ask(replace(made.from_model(made.coordinator.model), order=replace(HONEST, steps=1).encode()))


def test_control_on_the_record_itself_rounding_does_show() -> None:
    """So a client that compared gradients on its own records would refuse, on this record and on no other."""
    without, rounded = (sum(_rounds_otherwise(seed, one) for seed in SEEDS) for one in (False, True))
    assert without == 0
    assert rounded >= 1


def _rounds_otherwise(seed: int, with_target: bool) -> bool:
    """Whether the first record's loss alone is another than among three."""
    model, (inputs, labels) = aimed(seed), _people(bool(with_target)).columns_at(np.arange(3))
    alone = nn.functional.cross_entropy(model(inputs[:1]), labels[:1])
    among = nn.functional.cross_entropy(model(inputs), labels, reduction="none")[0]
    return not torch.isclose(alone, among, rtol=1e-3, atol=1e-7)
