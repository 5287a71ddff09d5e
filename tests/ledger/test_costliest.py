"""``costliest`` is the costliest: no step that a policy admits costs more, at any order and to any test.

Adopting a lost branch charges its steps as ``costliest``: if some step cost more, the figure would be too small. The
oracle is the closed form of one step's profile, which shares no code with the accountants.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from ledger.worlds import policy, request
from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    PldAccountant,
    RenyiAccountant,
    SizedGaussian,
    TruncatedPoissonGaussian,
)
from lrdp.ledger import Policy, Refusal, parse_policy
from lrdp.ledger.decisions import policy_objection

ORDERS = np.array([1.05, 1.3, 1.5, 2.0, 2.5, 3.7, 6.0, 11.0, 24.5, 64.0, 256.0])
LOSSES = (1e-3, 0.03, 0.2, 0.7, 1.5, 4.0)


def gaussian(epsilon: float, deviation: float) -> float:
    """H_{e^ε}(N(1,s²) ‖ N(0,s²)) for any real ε."""
    half, slope = 1 / (2 * deviation), epsilon * deviation
    return float(ndtr(half - slope) - math.exp(epsilon + log_ndtr(-half - slope)))


def removal(epsilon: float, q: float, deviation: float) -> float:
    return q * gaussian(math.log1p(math.expm1(epsilon) / q), deviation)


def addition(epsilon: float, q: float, deviation: float) -> float:
    rest = 1 - math.exp(epsilon) * (1 - q)
    return rest * gaussian(epsilon + math.log(q / rest), deviation) if rest > 0 else 0.0


def profile(step: Any, epsilon: float) -> tuple[float, float]:
    """δ(ε) of removal and of addition; under replace-one both are that of removal."""
    q, sigma = step.batch_size / step.dataset_size, step.noise_multiplier
    if isinstance(step, FixedSizeGaussian):
        return removal(epsilon, q, sigma / 2), addition(epsilon, q, sigma / 2)
    assert isinstance(step, TruncatedPoissonGaussian)
    cut = float(binom.sf(step.cap - 1, step.dataset_size - 1, q))
    return tuple(  # type: ignore[return-value]
        (1 - cut) * side(epsilon, q, sigma) + cut * side(epsilon, q, sigma / 2) for side in (removal, addition)
    )


def truncated(batch: int, cap: int, size: int, noise: float) -> Policy:
    text = policy(min_noise_multiplier=repr(noise)).text.replace('"fixed-size"', '"truncated-poisson"')
    text = text.replace("min_dataset_size = 5000", f"max_dataset_size = {size}")
    return parse_policy(text.replace("batch_size = 128", f"batch_size = {batch}\ncap = {cap}"), source="policy.toml")


def some_policy(chance: random.Random) -> Policy:
    batch, noise = chance.randint(2, 400), chance.uniform(0.6, 9.0)
    size = batch + chance.choice([1, 7, 90, 4000, 90_000])
    if chance.random() < 0.5:
        return policy(batch_size=str(batch), min_dataset_size=str(size), min_noise_multiplier=repr(noise))
    return truncated(batch, batch + chance.choice([0, 1, 9, 60, 500]), size, noise)


def near(chance: random.Random, step: Any) -> SizedGaussian | None:
    """What a server might ask for: each number as the policy has it, or stricter, or looser."""
    change: dict[str, Any] = {
        "batch_size": step.batch_size + chance.choice([0, -1, 1, -chance.randint(0, step.batch_size)]),
        "dataset_size": step.dataset_size + chance.choice([0, 0, 0, -1, 1, -step.dataset_size // 2]),
        "noise_multiplier": step.noise_multiplier * chance.choice([1.0, 1.0, 1.0001, 1.7, 30.0, 0.999]),
    }
    if isinstance(step, TruncatedPoissonGaussian):
        change["cap"] = step.cap + chance.choice([0, 0, 0, 1, -1, 100])
    try:
        return replace(step, **change)
    except ValueError:
        return None


def admissible(seed: int, count: int) -> list[tuple[SizedGaussian, SizedGaussian]]:
    """(asked, costliest) of requests that a policy does not object to."""
    chance = random.Random(seed)
    found: list[tuple[SizedGaussian, SizedGaussian]] = []
    while len(found) < count:
        rules = some_policy(chance)
        for _ in range(6):
            asked = near(chance, rules.mechanism.costliest)
            if asked is not None and policy_objection(rules, request(mechanism=asked)) is None:
                found.append((asked, rules.mechanism.costliest))
    return found


def check(seed: int, count: int) -> None:
    for asked, costliest in admissible(seed, count):
        for adjacency in Adjacency if isinstance(costliest, FixedSizeGaussian) else [Adjacency.ADD_REMOVE]:
            exact = RenyiAccountant(adjacency=adjacency)
            most = exact.divergence({costliest: 1}, ORDERS)
            assert (exact.divergence({asked: 1}, ORDERS) <= most * (1 + 1e-8)).all(), (asked, costliest)
        for epsilon in LOSSES:
            for mine, limit in zip(profile(asked, epsilon), profile(costliest, epsilon), strict=True):
                assert mine <= limit * (1 + 1e-9) + 1e-15, (asked, costliest, epsilon)


def test_no_admissible_request_costs_more_than_the_costliest() -> None:
    check(seed=3, count=80)


@pytest.mark.slow
def test_no_admissible_request_costs_more_than_the_costliest_among_thousands() -> None:
    check(seed=4, count=5000)


def test_no_admissible_request_has_a_larger_loss_distribution() -> None:
    for asked, costliest in admissible(seed=5, count=12):
        for adjacency in Adjacency if isinstance(costliest, FixedSizeGaussian) else [Adjacency.ADD_REMOVE]:
            loss = PldAccountant(adjacency=adjacency)
            for epsilon in LOSSES[2:]:
                mine, limit = (loss.delta({step: 1}, epsilon).delta for step in (asked, costliest))
                assert mine <= limit * 1.01 + 1e-12, "discretised apart, so equal to a hundredth only"


def test_a_data_set_counted_as_smaller_costs_more_and_is_refused() -> None:
    """The control: the rule before admitted it, and 250 rounds were spent in three."""
    rules = policy()
    smaller = replace(rules.mechanism.costliest, dataset_size=129)
    objection = policy_objection(rules, request(mechanism=smaller))
    assert objection is not None
    assert objection[0] is Refusal.DATASET_SIZE
    assert "exactly 5000" in objection[1]
    assert profile(smaller, 0.7)[0] > 30 * profile(rules.mechanism.costliest, 0.7)[0]


def test_a_smaller_cap_costs_more_and_is_refused() -> None:
    rules = truncated(batch=96, cap=128, size=5000, noise=2.0)
    tighter = replace(rules.mechanism.costliest, cap=96)  # type: ignore[call-arg]
    assert policy_objection(rules, request(mechanism=tighter)) is not None
    assert profile(tighter, 0.7)[0] > 5 * profile(rules.mechanism.costliest, 0.7)[0]
