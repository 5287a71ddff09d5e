"""A federation of tasks as Flower's users write them: dict records, torch's losses and optimisers, peft's names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord
from torch import nn, optim
from torch.nn import functional

from lrdp.errors import InvalidInput, NoVerifiedRound
from lrdp.federation import InProcessGrid, LocalTask, Node, Order, found, private_client_app
from lrdp.federation.wire.layout import Layout

from .worlds import RECORDS, TRAINING, World, hospitals, initial, model

LEARNING_RATE = 0.25


def rows(settings: Mapping[str, Any], kind: torch.dtype = torch.float64) -> list[dict[str, Any]]:
    """As Hugging Face's data sets have them, two clouds in float64."""
    source = torch.Generator().manual_seed(int(settings["partition-id"]))
    labels = torch.randint(0, 2, (RECORDS,), generator=source)
    values = torch.randn(RECORDS, 4, generator=source, dtype=torch.float64) + 2.0 * labels[:, None]
    return [{"img": one, "label": label} for one, label in zip(values, labels.to(kind), strict=True)]


def world(folder: Path, **task: Any) -> World:
    names = hospitals(3)
    ours = found(folder / "consortium", dict.fromkeys(names, TRAINING))
    app = private_client_app(
        policy=str(ours.folder / "clients" / "hospital-{partition-id}" / "policy.toml"), model=model, **task
    )
    grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(3)})
    place = World(consortium=ours, names=names, grid=grid)
    for name in names:
        policy = ours.client(name).folder / "policy.toml"
        policy.write_text(policy.read_text().replace("metrics = []", 'metrics = ["correct"]'))
    return place


def test_a_flower_user_s_task_is_trained_verified_and_counted(tmp_path: Path) -> None:
    place = world(
        tmp_path,
        dataset=partial(rows, kind=torch.int32),
        loss=functional.cross_entropy,
        optimizer=partial(optim.SGD, lr=0.1),
    )
    strategy = place.strategy(metrics=("correct",))
    result = strategy.start(
        place.grid, initial(), num_rounds=1, timeout=60, train_config=ConfigRecord({"lr": LEARNING_RATE})
    )
    assert [report.verified for report in place.reports] == [True]
    assert result.evaluate_metrics_clientapp[1]["clients"] == 3
    for name in place.names:
        assert sum(place.books(name).charges.history.values()) == TRAINING.local_steps + 1, (
            "the steps, and one for the count"
        )


def test_a_node_that_lacks_a_setting_says_so_in_one_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = world(tmp_path, dataset=rows, loss=functional.cross_entropy)
    place.grid.nodes = {**place.grid.nodes, 1: Node(place.grid.nodes[1].app, {})}
    with pytest.raises(NoVerifiedRound, match=r"1 more nodes are connected and not in the session \(1 × invalid\)"):
        place.strategy(arrival=0.1).start(place.grid, initial(), num_rounds=1, timeout=60)
    said = [record for record in caplog.records if "names the setting 'partition-id'" in record.getMessage()]
    assert said
    assert all("nothing was spent" in record.getMessage() and record.exc_info is None for record in said)


def test_what_cannot_be_counted_is_declined_before_it_is_charged(tmp_path: Path) -> None:
    place = world(tmp_path, dataset=rows, loss=_first_logit)
    result = place.strategy(metrics=("correct",)).start(place.grid, initial(), num_rounds=1, timeout=60)
    assert [report.verified for report in place.reports] == [True]
    assert result.evaluate_metrics_clientapp == {}
    for name in place.names:
        assert sum(place.books(name).charges.history.values()) == TRAINING.local_steps, "nothing for the count"


def _first_logit(given: nn.Module, batch: Any) -> torch.Tensor:
    """Of a number, which is no class."""
    difference: torch.Tensor = given(batch["img"].float())[:, 0] - batch["label"]
    return difference.square()


def test_flower_s_lr_is_the_order_s_learning_rate_and_nothing_is_said_twice() -> None:
    with pytest.raises(InvalidInput, match=r"an order has no epochs, .* has any of .*learning_rate, lr, .*steps"):
        Order().with_config({"epochs": 3})
    assert Order(steps=2).with_config({"lr": 0.5}) == Order(steps=2, learning_rate=0.5)
    with pytest.raises(InvalidInput, match="says one thing twice: learning-rate, lr"):
        Order().with_config({"lr": 0.5, "learning-rate": 0.1})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"model": nn.Linear(4, 2)}, "model=Net or model=lambda: Net"),
        ({"dataset": [(torch.zeros(4), 1)]}, "dataset=lambda settings"),
        ({"loss": nn.CrossEntropyLoss(weight=torch.ones(2))}, "divides by the labels of the whole batch"),
        ({"optimiser": optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.5)}, r"write Sgd\(lr=0.5"),
    ],
)
def test_what_is_written_wrongly_is_refused_where_it_is_written(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        LocalTask(**{"model": model, "dataset": rows, "loss": functional.cross_entropy, **wrong})


# ---------------------------------------- peft's names
OURS = Layout((("m.q.lora_A.default.weight", (2, 8)), ("m.head.modules_to_save.default.bias", (2,))))


def test_peft_s_own_state_names_the_same_parameters() -> None:
    assert OURS.is_described_by(OURS.described)
    assert OURS.is_described_by(Layout((("m.q.lora_A.weight", (2, 8)), ("m.head.bias", (2,)))).described)


@pytest.mark.parametrize(
    "other",
    [
        Layout((("m.head.bias", (2,)), ("m.q.lora_A.weight", (2, 8)))).described,
        Layout((("m.q.lora_A.weight", (8, 2)), ("m.head.bias", (2,)))).described,
        Layout((("m.q.lora_B.weight", (2, 8)), ("m.head.bias", (2,)))).described,
        Layout((("m.q.lora_A.weight", (2, 8)),)).described,
        *(b"", b"[]", b"3", b"[[1,2]]", b'[["a"]]', b"[" * 60, b'{"a":1}', b"\xff\xff"),
    ],
)
def test_other_names_orders_and_shapes_are_another_model(other: bytes) -> None:
    assert not OURS.is_described_by(other)


def test_names_that_would_fall_together_are_not_taken_for_each_other() -> None:
    ours = Layout((("a.default.w", (2,)), ("a.w", (2,))))
    assert not ours.is_described_by(Layout((("a.w", (2,)), ("a.w", (2,)))).described)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_server_may_start_from_what_peft_saves(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    from .test_adapters import adapted, sentences, trained

    place = world(tmp_path, dataset=sentences, loss=nn.CrossEntropyLoss())
    app = private_client_app(
        policy=str(place.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=adapted,
        dataset=sentences,
        loss=nn.CrossEntropyLoss(),
    )
    grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(3)})
    state = peft.get_peft_model_state_dict(adapted())
    assert set(state) != set(trained(adapted()))
    result = place.strategy().start(grid, ArrayRecord(state), num_rounds=1, timeout=60)
    assert [report.verified for report in place.reports] == [True]
    assert set(result.arrays) == set(state)
