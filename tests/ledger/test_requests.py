"""What the policy lets a server ask for: a request may be stricter in every number, and looser in none."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledger.worlds import STEP, World, digest, policy, request
from lrdp.accounting import FixedSizeGaussian, Gaussian, PoissonGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, PolicyRefused
from lrdp.ledger import ReceivedModel, Refusal, parse_policy


def model(**changes: Any) -> ReceivedModel:
    return replace(request().model, **changes)


WRONG_REQUESTS = [
    (Refusal.SAMPLING, {"mechanism": PoissonGaussian(dataset_size=5000, batch_size=128, noise_multiplier=9.0)}),
    (Refusal.SAMPLING, {"mechanism": Gaussian(noise_multiplier=900.0)}),
    (Refusal.NOISE, {"mechanism": STEP.with_noise(0.6)}),
    (Refusal.NOISE, {"mechanism": STEP.with_noise(math.nextafter(1.2, 0))}),
    (Refusal.BATCH_SIZE, {"mechanism": replace(STEP, batch_size=129)}),
    (Refusal.DATASET_SIZE, {"mechanism": replace(STEP, dataset_size=5001)}),
    (Refusal.DATASET_SIZE, {"mechanism": replace(STEP, dataset_size=4999)}),
    (Refusal.CLIP_NORM, {"clip_norm": 1.0000001}),
    (Refusal.CLIP_NORM, {"clip_norm": math.nextafter(0.25, 0)}),
    (Refusal.CLIP_NORM, {"clip_norm": 1e-300}),
    (Refusal.STEPS, {"steps": 401}),
    (Refusal.MODEL_SIZE, {"model": model(size=200_000_001)}),
    (Refusal.MODEL_WEIGHTS, {"model": model(largest_weight=1e5)}),
    (Refusal.MODEL_WEIGHTS, {"model": model(largest_weight=math.nan)}),
    (Refusal.MODEL_WEIGHTS, {"model": model(largest_weight=math.inf)}),
    (Refusal.REGISTRY, {"registry_sha256": digest("another registry")}),
    (Refusal.METRICS, {"metrics": ("loss",)}),
]


@pytest.mark.parametrize(("refusal", "change"), WRONG_REQUESTS)
def test_a_request_may_only_be_stricter(world: World, refusal: Refusal, change: dict[str, Any]) -> None:
    with world.create() as ledger:
        with pytest.raises(PolicyRefused, match="nothing was trained and nothing was spent") as caught:
            ledger.charge(replace(request(), **change))
        assert caught.value.refusal is refusal
        assert "policy.toml line" in str(caught.value)
        assert ledger.books.refusals.by_reason == {refusal: 1}
        assert ledger.answer().guaranteed.epsilon == 0.0


def test_the_refusal_says_value_limit_and_line(world: World) -> None:
    with world.create() as ledger, pytest.raises(PolicyRefused) as caught:
        ledger.charge(request(mechanism=STEP.with_noise(0.6)))
    assert str(caught.value) == (
        "the server asked for noise 0.6, the policy allows at least 1.2 (policy.toml line 17): nothing was trained and "
        "nothing was spent."
    )


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 0},
        {"steps": -1},
        {"steps": 2**63},
        {"round": -1},
        {"round": 10**5000},
        {"run": ""},
        {"run": "x" * 201},
        {"run": "a\tb"},
        {"run": "\ud800"},
    ],
)
def test_a_malformed_request_is_refused_at_birth(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        replace(request(), **change)


def test_stricter_requests_are_taken(world: World) -> None:
    with world.create() as ledger:
        ledger.charge(request(1, mechanism=FixedSizeGaussian(dataset_size=5000, batch_size=64, noise_multiplier=9.0)))
        ledger.charge(request(2, steps=1, clip_norm=0.25))


def test_truncated_poisson_takes_the_policys_cap_and_size_only(tmp_path: Path) -> None:
    text = policy().text.replace('"fixed-size"', '"truncated-poisson"').replace("min_dataset_size", "max_dataset_size")
    rules = parse_policy(text.replace("batch_size = 128", "batch_size = 96\ncap = 128"), source="policy.toml")
    step = TruncatedPoissonGaussian(dataset_size=5000, batch_size=96, cap=128, noise_multiplier=2.0)
    with World(folder=tmp_path, rules=rules).create() as ledger:
        ledger.charge(request(1, mechanism=step))
        for wrong, refusal in (
            (replace(step, cap=100), Refusal.BATCH_SIZE),
            (replace(step, batch_size=97), Refusal.BATCH_SIZE),
            (replace(step, dataset_size=6000), Refusal.DATASET_SIZE),
            (STEP, Refusal.SAMPLING),
        ):
            with pytest.raises(PolicyRefused) as caught:
                ledger.charge(request(2, mechanism=wrong))
            assert caught.value.refusal is refusal
