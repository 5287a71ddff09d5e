"""What is said of every data set up to a size: checked against exact fractions, size by size."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.special import betainc

from lrdp.accounting.mechanisms.cut_batches import Cuts, _offsets, cuts, reached, swapped
from lrdp.limits import LARGEST_COUNT


def exactly(size: int, chance: Fraction, cap: int) -> tuple[Fraction, Fraction]:
    """P(K ≥ cap) of the other records, and the mean of p·cap/(K+1) where that is so."""
    others = size - 1
    drawn = {k: comb(others, k) * chance**k * (1 - chance) ** (others - k) for k in range(cap, size)}
    reach = sum(drawn.values(), Fraction(0))
    return reach, sum((each * chance * cap / (k + 1) for k, each in drawn.items()), Fraction(0)) / reach


def covered(found: Cuts, reach: Fraction, swap: Fraction) -> bool:
    """Whether some row is cut at least as often, and displaces at least as likely where it is."""
    for free, *shares in found.weights:
        cut = sum(map(Fraction, shares))
        mean = sum((Fraction(share) * Fraction(knot) for share, knot in zip(shares, found.swaps, strict=True)))
        if cut >= reach and mean >= swap * cut and Fraction(free) + cut >= 1 - Fraction(1, 10**15):
            return True
    return False


@st.composite
def draws(draw: st.DrawFn) -> tuple[int, int, int]:
    largest = draw(st.integers(3, 90))
    cap = draw(st.integers(1, largest - 1))
    return largest, draw(st.integers(1, cap)), cap


@settings(max_examples=60)
@given(sizes=draws())
def test_every_size_up_to_the_largest_is_covered_by_a_row(sizes: tuple[int, int, int]) -> None:
    largest, batch, cap = sizes
    found = cuts(largest, batch / largest, cap)
    chance = Fraction(batch / largest)
    assert all(covered(found, *exactly(size, chance, cap)) for size in range(cap + 1, largest + 1))


def test_a_size_beyond_the_largest_is_not_covered() -> None:
    found = cuts(40, 5 / 40, 6)
    assert covered(found, *exactly(40, Fraction(5 / 40), 6))
    assert not covered(found, *exactly(41, Fraction(5 / 40), 6))


def test_rows_made_for_the_largest_size_alone_would_not_cover_a_smaller_one() -> None:
    found = cuts(40, 5 / 40, 6)
    alone = Cuts(swaps=found.swaps, weights=found.weights[:2])
    assert covered(alone, *exactly(40, Fraction(5 / 40), 6))
    assert not covered(alone, *exactly(39, Fraction(5 / 40), 6))


@given(sizes=draws())
def test_a_smaller_data_set_is_cut_less_often_and_displaces_more_likely_where_it_is(
    sizes: tuple[int, int, int],
) -> None:
    largest, batch, cap = sizes
    by_size = [exactly(size, Fraction(batch, largest), cap) for size in range(cap + 1, largest + 1)]
    assert by_size == sorted(by_size)
    swaps = [swap for _, swap in by_size]
    assert swaps == sorted(swaps, reverse=True)
    assert swaps[0] == Fraction(batch, largest) * cap / (cap + 1)


@given(sizes=draws(), smaller=st.integers(1, 90))
def test_a_smaller_batch_is_cut_less_often_and_displaces_less_likely(sizes: tuple[int, int, int], smaller: int) -> None:
    largest, batch, cap = sizes
    fewer = min(smaller, batch)
    for size in {cap + 1, (cap + 1 + largest) // 2, largest}:
        less, more = (exactly(size, Fraction(each, largest), cap) for each in (fewer, batch))
        assert less[0] <= more[0]
        assert less[1] <= more[1]


@pytest.mark.parametrize(("largest", "batch", "cap"), [(300, 17, 21), (300, 60, 60), (41, 1, 1), (260, 3, 90)])
def test_both_chances_are_rounded_up_and_by_little(largest: int, batch: int, cap: int) -> None:
    sizes = np.array([cap + 1, (cap + largest) // 2, largest])
    chance = batch / largest
    for size, reach, swap in zip(sizes, reached(sizes, chance, cap), swapped(sizes, chance, cap), strict=True):
        truth = exactly(int(size), Fraction(chance), cap)
        assert truth[0] <= Fraction(reach) <= truth[0] * (1 + Fraction(1, 10**7))
        assert truth[1] <= Fraction(swap) <= truth[1] * (1 + Fraction(1, 10**7))


def test_chances_too_small_for_a_double_are_not_said_to_be_none() -> None:
    sizes = np.array([2_000_000])
    assert reached(sizes, 1e-6, 1_000_000)[0] > 0
    assert swapped(sizes, 1e-6, 1_000_000)[0] == pytest.approx(1e-6, rel=1e-5)
    found = cuts(2_000_000, 1e-6, 1_000_000)
    assert all(0 <= weight <= 1 for row in found.weights for weight in row)


def test_below_the_cap_nobody_is_displaced() -> None:
    assert cuts(30, 0.1, 30) == Cuts(swaps=(), weights=((1.0,),))


def test_where_a_cut_is_too_rare_for_doubles_the_largest_swap_is_taken() -> None:
    """A quotient of what underflows would be nought or anything, and the bound too small."""
    size, batch, cap = 8264, 493, 1479
    sizes = np.array([cap + 1, 2000, size])
    most = batch / size * cap / (cap + 1)
    assert swapped(sizes, batch / size, cap) == pytest.approx(most, rel=1e-8)
    assert min(cuts(size, batch / size, cap).swaps) == pytest.approx(most, rel=1e-8)
    assert (
        swapped(np.array([size]), batch / size, 520)[0] < 0.999 * batch / size
    )  # the control: here doubles resolve it


# ---------------------------------------- large data sets, in forty digits
def beyond(draws: int, least: int, chance: float) -> mpf:
    """P(Binomial(draws, chance) ≥ least), term by term from the first until nothing is left."""
    odds = mpf(chance) / (1 - mpf(chance))
    term = mp.binomial(draws, least) * mpf(chance) ** least * mp.exp((draws - least) * mp.log1p(-mpf(chance)))
    total = term
    for k in range(least, draws):
        term *= odds * (draws - k) / (k + 1)
        total += term
        if term < total * mpf("1e-25"):
            break
    return total


def truth_of(size: int, chance: float, cap: int) -> tuple[mpf, mpf]:
    """τ and q̄, as `exactly` has them."""
    reach = beyond(size - 1, cap, chance)
    return reach, mpf(cap) / size * beyond(size, cap + 1, chance) / reach


LARGE = list(itertools.product((10**5, 10**6, 10**7), (1e-4, 0.01, 0.5), (0.0, 2.0, 8.0, 35.0)))
"""Records, the share that is expected, and how many deviations the cap lies above: a chance of 10⁻²⁶⁸ is the last."""


@pytest.mark.one_in(7)
@pytest.mark.parametrize(("largest", "share", "above"), LARGE)
def test_both_chances_are_rounded_up_and_by_little_in_large_data_sets(largest: int, share: float, above: float) -> None:
    batch = round(largest * share)
    cap = math.ceil(batch + above * math.sqrt(batch * (1 - share)))
    sizes = np.array([largest, largest * 99 // 100, cap + 1])
    with mp.workdps(40):
        for size, reach, swap in zip(sizes, reached(sizes, share, cap), swapped(sizes, share, cap), strict=True):
            truth = truth_of(int(size), share, cap)
            assert truth[0] <= mpf(float(reach)) <= truth[0] * (1 + mpf("1e-8")) + mpf("1.1e-300")
            # Where doubles do not resolve the tail, the most that can be stands for it.
            most = mpf(share) * cap / (cap + 1) if reach < 1e-299 else truth[1]
            assert truth[1] <= mpf(float(swap)) <= most * (1 + mpf("1e-8"))


def test_the_room_for_rounding_is_a_hundred_times_what_is_lost_and_grows_with_the_cap() -> None:
    size, cap = 10**7, 5_055_340
    with mp.workdps(40):
        lost = abs(float(mpf(float(betainc(cap, size - cap, 0.5))) / beyond(size - 1, cap, 0.5)) - 1)
    assert 1e-12 < lost < 1e-11  # the control: forty digits do see what doubles lose
    # At 10¹⁰ of 10¹¹ records 6.4·10⁻¹⁰ was lost.
    large = np.array([10**11])
    assert reached(large, 0.1, 10**10)[0] / betainc(10**10, 9 * 10**10, 0.1) - 1 == pytest.approx(1e-8, rel=1e-3)


def test_runs_of_sizes_cover_the_largest_count_that_there_is() -> None:
    with np.errstate(all="raise"):
        offsets = _offsets(LARGEST_COUNT - 10)
    assert offsets[0] == 0
    assert np.all(np.diff(offsets) > 0)
    assert LARGEST_COUNT / 1.25 < offsets[-1] <= LARGEST_COUNT - 10
    for row in cuts(LARGEST_COUNT, 8 / LARGEST_COUNT, 9).weights:
        assert all(0 <= share <= 1 for share in row), row
