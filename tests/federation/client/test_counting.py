"""Federated evaluation: off, unless server and policy both ask; then a noised count that is paid for as one step."""

import math
import struct
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import MetricRecord
from torch import nn

from federation.worlds import TRAINING, World, initial, world
from lrdp.accounting import FixedSizeGaussian
from lrdp.errors import InvalidInput
from lrdp.federation import Terms, VerifiedAverage
from lrdp.federation.client.counting import counting, private_accuracy
from lrdp.federation.wire.shares import read_share
from lrdp.ledger import Refusal
from lrdp.ledger.receipt import issue
from lrdp.training import CrossEntropy, PublicConstants, Sgd, Task, TensorRecords, check_gradients


def measured(place: World, rounds: int = 1) -> dict[int, MetricRecord]:
    terms = Terms(
        identity=place.consortium.server_identity(),
        registry=place.consortium.registry(),
        folder=place.consortium.server_folder,
        metrics=("correct",),
    )
    strategy = VerifiedAverage(terms, place.reports.append)
    return strategy.start(place.grid, initial(), num_rounds=rounds, timeout=5).evaluate_metrics_clientapp


def allow(place: World, name: str) -> None:
    policy = place.consortium.client(name).folder / "policy.toml"
    policy.write_text(policy.read_text().replace("metrics = []", 'metrics = ["correct"]'))


def test_where_the_policy_does_not_list_it_it_is_refused_and_free(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    assert measured(place) == {}
    for name in place.names:
        assert list(place.books(name).charges.history.values()) == [TRAINING.local_steps]
        assert place.books(name).refusals.by_reason[Refusal.METRICS] == 1


def test_where_it_does_one_step_is_charged_and_the_training_goes_on(tmp_path: Path) -> None:
    place = world(tmp_path, 3)
    for name in place.names[:2]:
        allow(place, name)
    found = measured(place, rounds=2)
    assert {number: record["clients"] for number, record in found.items()} == {1: 2, 2: 2}
    assert [sum(place.books(name).charges.history.values()) for name in place.names] == [8, 8, 6]
    assert all(report.verified for report in place.reports)
    assert place.audit().rounds == 2


class _Fixed(nn.Module):
    """Says class 1 for every record."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.weight * inputs[:, 0], self.weight * inputs[:, 0] + 1.0], dim=1)


def receipt(noise: float, clip_norm: float, steps: int = 1):
    mechanism = FixedSizeGaussian(dataset_size=300, batch_size=100, noise_multiplier=noise)
    return issue(mechanism=mechanism, steps=steps, clip_norm=clip_norm, request_key="0" * 64, entry=1)


def trained(model: nn.Module, records: TensorRecords) -> Task:
    constants = PublicConstants(clip_norm=1.0, optimiser=Sgd(lr=0.1))
    return Task(model=model, dataset=records, loss=CrossEntropy(classes=10), constants=constants)


@pytest.mark.parametrize("clip_norm", [0.25, 4.0])
@pytest.mark.parametrize("right", [0, 300])
def test_the_count_is_right_but_for_the_noise(right: int, clip_norm: float) -> None:
    """All or none correct: no sampling error, so the spread is the mechanism's σ over the batch, whatever the clip."""
    labels = torch.zeros(300, dtype=torch.int64)
    labels[:right] = 1
    records = TensorRecords(torch.randn(300, 2), labels)
    task = counting(trained(_Fixed(), records), clip_norm)
    task = replace(task, checked=check_gradients(receipt(3.0, clip_norm).mechanism, task))
    values = [read_share(private_accuracy(receipt(3.0, clip_norm), task)) for _ in range(200)]
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    assert mean == pytest.approx(right / 300, abs=5 * 0.03 / math.sqrt(200))
    assert 0.75 * 0.03 < spread < 1.25 * 0.03


def test_a_model_that_says_what_no_made_up_label_is_can_be_counted() -> None:
    class Ninth(_Fixed):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.cat([super().forward(inputs).repeat(1, 4), inputs.new_full((len(inputs), 2), 9.0)], 1)

    records = TensorRecords(torch.randn(300, 2), torch.full((300,), 8))
    task = counting(trained(Ninth(), records), 1.0)
    assert read_share(private_accuracy(receipt(0.5, 1.0), task)) == pytest.approx(1.0, abs=0.05)


def test_a_count_of_two_steps_is_refused() -> None:
    records = TensorRecords(torch.randn(300, 2), torch.zeros(300, dtype=torch.int64))
    with pytest.raises(InvalidInput, match="a count is one step"):
        private_accuracy(receipt(1.0, 1.0, steps=2), counting(trained(_Fixed(), records), 1.0))


def test_bytes_of_another_length_are_no_accuracy() -> None:
    with pytest.raises(InvalidInput, match="8 bytes"):
        read_share(b"123")


@pytest.mark.parametrize("share", [float("inf"), -float("inf"), float("nan")])
def test_what_is_no_finite_number_is_no_accuracy(share: float) -> None:
    with pytest.raises(InvalidInput, match="number"):
        read_share(struct.pack("<d", share))
