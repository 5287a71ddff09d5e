"""A private mean and scale of features is a step of training, and is as private and as dear as one."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord
from torch import nn

from federation.worlds import TRAINING, model, records, reopened, world
from lrdp.accounting import FixedSizeGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, ReceiptRefused
from lrdp.federation import InProcessGrid, Node, Order, private_client_app
from lrdp.ledger.receipt import issue
from lrdp.training import (
    FeatureMoments,
    FeatureSum,
    Sgd,
    Standardised,
    TensorRecords,
    moments_task,
    private_update,
    unaccounted_private_update,
)
from lrdp.training.research import seeded_randomness

WIDTH, COUNT, CLIP, REACH = 6, 271, 0.37, 2.5
WHOLE = FixedSizeGaussian(dataset_size=COUNT - 1, batch_size=COUNT - 2, noise_multiplier=1e-5)


def features(seed: int = 3) -> torch.Tensor:
    source = torch.Generator().manual_seed(seed)
    scale, mean = torch.tensor([0.1, 0.2, 0.3, 0.4, 0.2, 0.1]), torch.tensor([0.5, -0.3, 0.0, 0.1, 0.0, -0.2])
    return torch.randn(COUNT, WIDTH, generator=source) * scale + mean


def found(given: torch.Tensor, mechanism=WHOLE, steps: int = 1) -> FeatureMoments:
    """The moments after an update of so many steps, added to the weights as a federation adds it."""
    empty = FeatureMoments(WIDTH, reach=REACH, clip_norm=CLIP)
    task = moments_task(empty, TensorRecords(given, torch.zeros(len(given), dtype=torch.long)), CLIP, steps)
    update = unaccounted_private_update(mechanism, steps, task, seeded_randomness(5, 0, 0))
    with torch.no_grad():
        empty.total.weight += update.delta["total.weight"]
    return empty


def test_with_hardly_any_noise_they_are_mean_and_deviation():
    given = features()
    moments, told = found(given), given.double().numpy()
    np.testing.assert_allclose(moments.standardised().mean.numpy(), told.mean(0), atol=0.02)
    np.testing.assert_allclose(moments.standardised().scale.numpy(), told.std(0), rtol=0.1)
    ready = moments.standardised()(given)
    assert float(ready.mean(0).abs().max()) < 0.1
    assert float((ready.std(0) - 1).abs().max()) < 0.1
    together = math.sqrt(float(told.var(0).mean()))
    np.testing.assert_allclose(moments.centred().scale.numpy(), np.full(WIDTH, together), rtol=0.1)
    assert float(given.mean(0).abs().max()) > 0.4  # the control: they were not centred before


def test_noise_is_that_of_the_mechanism():
    """On records of zeros the weights are noise alone: σ·C/B, whatever the reach."""
    mechanism = TruncatedPoissonGaussian(dataset_size=COUNT, batch_size=90, cap=140, noise_multiplier=3.0)
    records = TensorRecords(torch.zeros(COUNT - 1, 500), torch.zeros(COUNT - 1, dtype=torch.long))
    task = moments_task(FeatureMoments(500, reach=REACH, clip_norm=CLIP), records, CLIP)
    drawn = unaccounted_private_update(mechanism, 1, task, seeded_randomness(5, 0, 0)).delta["total.weight"]
    deviation = float(drawn.std())
    expected = 3.0 * CLIP / 90
    assert deviation == pytest.approx(expected, rel=0.12)
    assert deviation != pytest.approx(expected * 1.4, rel=0.12)


@pytest.mark.parametrize("wild", [1e3, 1e30, math.inf, math.nan])
def test_one_record_moves_the_sum_by_no_more_than_the_clip_norm(wild):
    """Two data sets with one record between them, the same batch and the same noise."""
    plain, other = features(), features()
    other[7] = wild
    plain[7] = 0.0
    moved = (found(other).total.weight - found(plain).total.weight).detach()
    assert bool(torch.isfinite(moved).all())
    assert float(moved.norm()) * WHOLE.batch_size <= CLIP * 1.001
    unclipped = torch.cat([other[7] / REACH, (other[7] / REACH).square()]).norm() * CLIP / math.sqrt(2)
    assert not float(unclipped) <= CLIP


def test_what_is_within_reach_is_not_shortened():
    """The longest vector of features and squares that there is: one feature that is as long as the reach."""
    zeros, one = torch.zeros(COUNT, WIDTH), torch.zeros(COUNT, WIDTH)
    one[:, 2] = REACH
    moved = (found(one).total.weight - found(zeros).total.weight).detach()
    assert CLIP * 0.98 < float(moved.norm()) <= CLIP
    assert float(found(one).standardised().mean[2]) == pytest.approx(REACH, rel=1e-4)
    assert float(found(2 * one).standardised().mean[2]) < 1.5 * REACH  # the control: beyond it, they are


def test_more_steps_are_their_mean():
    given = features()
    mechanism = FixedSizeGaussian(dataset_size=COUNT - 1, batch_size=60, noise_multiplier=0.5)
    one, nine = (found(given, mechanism, steps).standardised().mean for steps in (1, 9))
    errors = [float((each - given.mean(0)).norm()) for each in (one, nine)]
    assert errors[1] < errors[0]


def test_they_take_a_receipt_like_every_step_and_a_receipt_is_good_once():
    empty = FeatureMoments(WIDTH, reach=REACH, clip_norm=CLIP)
    task = moments_task(empty, TensorRecords(features(), torch.zeros(COUNT, dtype=torch.long)), CLIP)
    paid = issue(mechanism=WHOLE, steps=1, clip_norm=CLIP, request_key="0" * 64, entry=1)
    assert private_update(paid, task).steps == 1
    with pytest.raises(ReceiptRefused):
        private_update(paid, task)
    dearer = issue(mechanism=WHOLE, steps=1, clip_norm=2 * CLIP, request_key="1" * 64, entry=2)
    with pytest.raises(InvalidInput, match="that was charged"):
        private_update(dearer, task)


def test_features_of_another_width_are_refused_before_the_receipt_is_redeemed():
    paid = issue(mechanism=WHOLE, steps=1, clip_norm=CLIP, request_key="0" * 64, entry=1)
    narrow = FeatureMoments(WIDTH - 1, reach=REACH, clip_norm=CLIP)
    wrong = moments_task(narrow, TensorRecords(features(), torch.zeros(COUNT, dtype=torch.long)), CLIP)
    with pytest.raises(InvalidInput, match="features"):
        private_update(paid, wrong)
    right = FeatureMoments(WIDTH, reach=REACH, clip_norm=CLIP)
    private_update(paid, moments_task(right, wrong.dataset, CLIP))


@pytest.mark.parametrize("wrong", [{"width": 0}, {"reach": 0.0}, {"reach": math.nan}, {"clip_norm": -1.0}])
def test_constants_outside_their_limits_are_refused(wrong):
    with pytest.raises(InvalidInput):
        FeatureMoments(**{"width": WIDTH, "reach": REACH, "clip_norm": CLIP, **wrong})


def test_a_variance_that_is_lost_in_noise_is_no_division_by_nothing():
    lost = FeatureMoments(WIDTH, reach=REACH, clip_norm=CLIP)
    with torch.no_grad():
        lost.total.weight[0, WIDTH:] = -1.0
    ready = lost.standardised()(features())
    assert bool(torch.isfinite(ready).all())


def test_a_federation_finds_them_in_a_verified_round_and_trains_behind_them(tmp_path: Path) -> None:
    """The ledger has one step for the mean and the training's own after it, and nothing else was released."""
    place = world(tmp_path, 3)
    app = private_client_app(
        policy=str(place.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=lambda: FeatureMoments(4, reach=6.0, clip_norm=1.0),
        dataset=records,
        loss=FeatureSum(),
        optimiser=Sgd(lr=1.0),
    )
    place.grid = InProcessGrid({1 + number: Node(app, {"partition-id": number}) for number in range(3)})
    first = ArrayRecord(FeatureMoments(4, reach=6.0, clip_norm=1.0).state_dict())
    result = place.strategy(order=Order(steps=1)).start(place.grid, first, num_rounds=1, timeout=5)
    assert place.audit().rounds == 1
    for name in place.names:
        assert list(place.books(name).charges.history.values()) == [1]
    learned = FeatureMoments(4, reach=6.0, clip_norm=1.0)
    learned.load_state_dict(result.arrays.to_torch_state_dict())
    centre = learned.standardised()
    assert isinstance(centre, Standardised)
    assert not list(centre.parameters())  # nothing of it is trained again

    def behind() -> nn.Module:
        return nn.Sequential(centre, model())

    second = private_client_app(
        policy=str(place.consortium.folder / "clients" / "hospital-{partition-id}" / "policy.toml"),
        model=behind,
        dataset=records,
        loss=nn.functional.cross_entropy,
    )
    after = reopened(tmp_path, 3)
    after.grid = InProcessGrid({1 + number: Node(second, {"partition-id": number}) for number in range(3)})
    trained = {name: value.detach() for name, value in behind().named_parameters()}
    after.strategy(folder=after.another_folder()).start(after.grid, ArrayRecord(trained), num_rounds=2, timeout=5)
    assert after.audit().rounds == 2
    for name in after.names:
        assert sum(after.books(name).charges.history.values()) == 1 + 2 * TRAINING.local_steps
