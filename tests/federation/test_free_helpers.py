"""What is to help accuracy changes no charge: hospitals of one policy pay the same with it and without.

Moments that are kept, Adam's correction, automatic clipping and another normaliser are in client/test_kept_moments.py,
a private mean, which *is* a step and is charged as one, in training/test_feature_moments.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ArrayRecord
from torch import Generator, Tensor, nn

from lrdp.accounting import History, PrivacySpent
from lrdp.federation import Averaging, InProcessGrid, Node, private_client_app
from lrdp.ledger import summarize
from lrdp.report.statement import Statement, record
from lrdp.training import Augmented, CrossEntropy, PerUnit, cached_features, standardise_weights

from .worlds import RECORDS, TRAINING, World, initial, model, records, world

LOSS = CrossEntropy(classes=2)
VIEWS = 3


def charged(place: World, name: str) -> tuple[History, PrivacySpent, Any]:
    """What the books hold: the steps that were paid, what they guarantee, and what the statement says they were."""
    books = place.books(name)
    summary = summarize(books)
    return dict(books.charges.history), summary.guaranteed, record(Statement(summary=summary))["mechanisms"]


def joined(place: World, tasks: list[dict[str, Any]]) -> World:
    """Each hospital with a task of its own, and its own policy as before."""
    policy = str(place.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml")
    common: dict[str, Any] = {"loss": LOSS, "policy": policy}
    apps = [private_client_app(**common | task) for task in tasks]
    place.grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number, app in enumerate(apps)})
    return place


def trained(place: World, first: nn.Module | None = None) -> None:
    start = initial() if first is None else ArrayRecord(first.state_dict())
    place.strategy().start(place.grid, start, num_rounds=2, timeout=5)
    assert [report.verified for report in place.reports] == [True] * 2


def all_paid_the_same(place: World) -> bool:
    found = [charged(place, name) for name in place.names]
    steps, guaranteed, _ = found[0]
    return (
        sum(steps.values()) == 2 * TRAINING.local_steps and guaranteed.epsilon > 0 and found == found[:1] * len(found)
    )


class Backbone(nn.Module):
    """Public and frozen, with as many features as the head takes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.layers(inputs)
        return found


def jitter(given: Any, chance: Generator) -> Any:
    inputs, label = given
    return inputs + 0.1 * torch.randn(inputs.shape, generator=chance), label


def shelved(folder: Path) -> Callable[[Mapping[str, Any]], Any]:
    return lambda settings: cached_features(Backbone(), records(settings), folder, rows=8)


def seen(settings: Mapping[str, Any]) -> Augmented:
    return Augmented(records(settings), views=VIEWS, augment=jitter)


def test_features_of_a_public_backbone_and_views_of_a_record_cost_what_plain_records_cost(tmp_path: Path) -> None:
    tasks: list[dict[str, Any]] = [
        {"model": model, "dataset": records},
        {"model": model, "dataset": shelved(tmp_path / "features")},
        {"model": model, "dataset": seen, "loss": PerUnit(LOSS)},
    ]
    place = joined(world(tmp_path, 3), tasks)
    trained(place)
    assert all_paid_the_same(place)
    assert (tmp_path / "features").is_dir()
    assert len(seen({"partition-id": 2})) == RECORDS, "a view is no record of its own"


def picture() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 2))


def test_standardised_weights_cost_what_plain_ones_cost(tmp_path: Path) -> None:
    """The parameters are the same tensors, so that both kinds of hospital add up to one model."""
    tasks: list[dict[str, Any]] = [
        {"model": make, "dataset": records} for make in (picture, picture, lambda: standardise_weights(picture()))
    ]
    place = joined(world(tmp_path, 3), tasks)
    trained(place, picture())
    assert all_paid_the_same(place)


@pytest.mark.parametrize("average", [None, Averaging(rounds=2, decay=0.5)])
def test_an_average_of_verified_models_costs_nothing(tmp_path: Path, average: Averaging | None) -> None:
    place = world(tmp_path, 3)
    result = place.run(2, average=average)
    assert (result.average is None) is (average is None)
    assert all_paid_the_same(place)


def test_control_a_hospital_that_took_part_in_fewer_rounds_is_found_out(tmp_path: Path) -> None:
    place = world(tmp_path, 4)
    place.run(1)
    place.node(place.names[3]).present = False
    place.run(1)
    assert not all_paid_the_same(place)
