"""Mechanisms are values: checked at birth, frozen, and refusing what nobody has proved."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from accounting.given import ADD_REMOVE, NEVER_A_COUNT, NEVER_POSITIVE, REPLACE_ONE, fixed_size, mechanisms, sampled
from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    Mechanism,
    PldAccountant,
    PoissonGaussian,
    RenyiAccountant,
    TaylorAccountant,
    TruncatedPoissonGaussian,
)
from lrdp.errors import InvalidInput, Unsupported

SIZES: dict[str, Any] = {"dataset_size": 5000, "batch_size": 96, "noise_multiplier": 1.7}
KINDS: list[tuple[type[Mechanism], dict]] = [
    (Gaussian, {"noise_multiplier": 1.7}),
    (FixedSizeGaussian, SIZES),
    (FixedSizeWithReplacementGaussian, SIZES),
    (PoissonGaussian, SIZES),
    (TruncatedPoissonGaussian, {**SIZES, "cap": 128}),
]


def said(value: object) -> str:
    """A pattern that finds ``value`` in a message."""
    return re.escape(str(value))


@pytest.mark.parametrize(("kind", "fields"), KINDS)
@pytest.mark.parametrize("value", [*NEVER_POSITIVE, "a lot", None])
def test_noise_that_is_no_positive_number_is_refused_with_the_value(
    kind: type[Mechanism], fields: dict, value: object
) -> None:
    with pytest.raises(InvalidInput, match=f"noise_multiplier.*got .*{said(value)}"):
        kind(**{**fields, "noise_multiplier": value})


@pytest.mark.parametrize(("kind", "fields"), KINDS[1:])
@pytest.mark.parametrize("field", ["dataset_size", "batch_size"])
@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_a_size_that_is_no_count_is_refused_with_the_value(
    kind: type[Mechanism], fields: dict, field: str, value: object
) -> None:
    with pytest.raises(InvalidInput, match=f"{field} must .*got .*{said(value)}"):
        kind(**{**fields, field: value})


@pytest.mark.parametrize("value", NEVER_A_COUNT)
def test_a_cap_that_is_no_count_is_refused_with_the_value(value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"cap must .*got .*{said(value)}"):
        TruncatedPoissonGaussian(**SIZES, cap=value)


@pytest.mark.parametrize("text", ["1.7", "nan", b"1.7"])
def test_noise_that_only_looks_like_a_number_is_refused(text: Any) -> None:
    with pytest.raises(InvalidInput, match="noise_multiplier"):
        Gaussian(noise_multiplier=text)


@pytest.mark.parametrize(("kind", "fields"), KINDS[1:])
@pytest.mark.parametrize(("n", "batch"), [(100, 100), (100, 128), (1, 1), (2, 2)])
def test_a_batch_that_leaves_no_record_out_is_refused(kind: type[Mechanism], fields: dict, n: int, batch: int) -> None:
    with pytest.raises(InvalidInput, match=rf"(must be below dataset_size={n}, got {batch})|(at least 2, got {n})"):
        kind(**{**fields, "dataset_size": n, "batch_size": batch})


@given(n=st.integers(-3, 9), batch=st.integers(-3, 12))
def test_exactly_the_batches_from_one_to_all_but_one_are_accepted(n: int, batch: int) -> None:
    if 1 <= batch <= n - 1:
        assert fixed_size(1.7, n=n, batch=batch).probability == batch / n
    else:
        with pytest.raises(InvalidInput, match="must be"):
            fixed_size(1.7, n=n, batch=batch)


def test_a_cap_below_the_expected_batch_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cap must be at least the expected batch_size=96, got 95"):
        TruncatedPoissonGaussian(**SIZES, cap=95)


@pytest.mark.parametrize(("kind", "fields"), KINDS)
def test_a_mechanism_cannot_change_and_equal_ones_are_one_key(kind: type[Mechanism], fields: dict) -> None:
    one, other = kind(**fields), kind(**fields)
    assert one == other
    assert {one: 3}[other] == 3
    assert one.with_noise(2.9) == dataclasses.replace(one, noise_multiplier=2.9) != one
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.noise_multiplier = 5.0  # type: ignore[misc]


@pytest.mark.parametrize("value", NEVER_POSITIVE)
def test_changing_the_noise_checks_it_again(value: float) -> None:
    with pytest.raises(InvalidInput, match=said(value)):
        fixed_size(1.7).with_noise(value)


def test_rows_in_memory_are_the_batch_the_cap_or_unknown() -> None:
    assert [mechanism.rows for mechanism in sampled(1.7)] == [96, 96, None, 128]
    assert {mechanism.noise_on_mean for mechanism in sampled(1.7)} == {1.7 / 96}


@pytest.mark.parametrize(("kind", "fields"), KINDS[2:])
@pytest.mark.parametrize("accountant", [RenyiAccountant, TaylorAccountant, PldAccountant])
def test_replace_one_is_refused_with_the_reason_where_no_pair_is_proved(
    kind: type[Mechanism], fields: dict, accountant: type
) -> None:
    with pytest.raises(Unsupported, match=f"{kind.name} .*replace-one.*no dominating pair"):
        accountant(adjacency=REPLACE_ONE).epsilon({kind(**fields): 3}, 1e-5)


@pytest.mark.parametrize("accountant", [RenyiAccountant, TaylorAccountant])
def test_sampling_with_replacement_is_refused_by_renyi_accountants_with_the_reason(accountant: type) -> None:
    with pytest.raises(Unsupported, match=r"with replacement.*pld"):
        accountant(adjacency=ADD_REMOVE).epsilon({sampled(1.7)[1]: 3}, 1e-5)


def test_the_plain_gaussian_under_replace_one_costs_what_half_the_noise_costs() -> None:
    # The factor that dp-accounting's Rényi accountant forgets: test_peers.py.
    for accountant in (RenyiAccountant, PldAccountant):
        replaced = accountant(adjacency=REPLACE_ONE).epsilon({Gaussian(noise_multiplier=4.0): 3}, 1e-5).epsilon
        halved = accountant(adjacency=ADD_REMOVE).epsilon({Gaussian(noise_multiplier=2.0): 3}, 1e-5).epsilon
        assert replaced == pytest.approx(halved, rel=1e-9)


@given(mechanism=mechanisms(adjacency=REPLACE_ONE), steps=st.integers(1, 500))
def test_replace_one_never_costs_less_than_add_remove(mechanism: Mechanism, steps: int) -> None:
    costs = [RenyiAccountant(adjacency=which).epsilon({mechanism: steps}, 1e-5).epsilon for which in Adjacency]
    assert costs[1] >= costs[0] * (1 - 1e-6)


def test_an_add_remove_epsilon_reported_as_replace_one_would_be_a_tenth_too_small() -> None:
    history: dict[Mechanism, int] = {fixed_size(4.696): 10_000}
    usual, replaced = (PldAccountant(adjacency=which).epsilon(history, 1e-5).epsilon for which in Adjacency)
    assert usual < 0.9 * replaced


@pytest.mark.parametrize(
    ("n", "batch", "cap"), [(5000, 90, 128), (5000, 96, 128), (9, 3, 5), (60_000, 500, 511), (6, 2, 6)]
)
def test_the_chance_of_being_cut_is_that_of_the_other_records_filling_the_cap(n: int, batch: int, cap: int) -> None:
    mechanism = TruncatedPoissonGaussian(dataset_size=n, batch_size=batch, cap=cap, noise_multiplier=1.7)
    truth = binom.sf(cap - 1, n - 1, batch / n)
    assert truth * (1 - 1e-10) <= mechanism.cut_probability <= truth * (1 + 1e-8)


@pytest.mark.parametrize("accountant", [RenyiAccountant, PldAccountant])
def test_truncation_costs_between_nothing_and_the_price_of_fixed_size(accountant: type) -> None:
    def cost(mechanism: Mechanism) -> float:
        return accountant(adjacency=ADD_REMOVE).epsilon({mechanism: 200}, 1e-5).epsilon

    capped = [cost(TruncatedPoissonGaussian(**SIZES, cap=cap)) for cap in (96, 110, 128, 160, 4000)]
    assert capped == sorted(capped, reverse=True)
    assert cost(PoissonGaussian(**SIZES)) == pytest.approx(capped[-1], rel=1e-3)
    assert capped[0] < cost(FixedSizeGaussian(**SIZES))
