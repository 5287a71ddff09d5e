"""Sampling: which records a step reads (traps 1, 8, 9)."""

from fractions import Fraction
from itertools import combinations, pairwise
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lrdp.accounting import FixedSizeGaussian, Gaussian, PoissonGaussian, TruncatedPoissonGaussian
from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.keystream import Keystream
from lrdp.training.sampling import EMPTY, bernoulli_subset, placed, rows_of, sampler_for, uniform_subset

# Statistical tests use fixed keys: a failure is everyone's failure, and the controls show that they can fail.
KEY = bytes(range(32))


def fixed(records=211, batch=37, accounted=211):
    return sampler_for(FixedSizeGaussian(dataset_size=accounted, batch_size=batch, noise_multiplier=1.0), records)


def poisson(records=211, batch=37, cap=48, accounted=211):
    mechanism = TruncatedPoissonGaussian(dataset_size=accounted, batch_size=batch, cap=cap, noise_multiplier=1.0)
    return sampler_for(mechanism, records)


@given(st.integers(1, 60), st.data())
def test_a_subset_has_distinct_members_in_range(population, data):
    size = data.draw(st.integers(0, population))
    drawn = uniform_subset(population, size, Keystream.from_system())
    assert len(set(drawn.tolist())) == size
    assert all(0 <= number < population for number in drawn)


def test_every_subset_is_equally_likely():
    stream = Keystream(KEY)
    counts: dict[frozenset[int], int] = {}
    for _ in range(12_000):
        subset = frozenset(uniform_subset(6, 3, stream).tolist())
        counts[subset] = counts.get(subset, 0) + 1
    assert len(counts) == 20
    assert stats.chisquare(list(counts.values())).pvalue > 1e-4


def drawn(sampler, stream):
    slots = sampler.draw(stream).slots
    return slots[slots != EMPTY]


def overlaps(draw, pairs=400):
    batches = [set(draw().tolist()) for _ in range(pairs + 1)]
    return [len(first & second) for first, second in pairwise(batches)]


def overlap_is_hypergeometric(found, records=211, batch=37):
    law = stats.hypergeom(records, batch, batch)
    return (
        abs(np.mean(found) - law.mean()) < 4.5 * law.std() / len(found) ** 0.5
        and 0.8 < np.var(found) / law.var() < 1.25
    )


def test_consecutive_batches_overlap_as_independent_draws_do():
    sampler, stream = fixed(), Keystream(KEY)
    assert overlap_is_hypergeometric(overlaps(lambda: drawn(sampler, stream)))


def test_control_shuffled_epochs_do_not():
    def epochs():
        random = np.random.default_rng(5)
        while True:
            order = random.permutation(211)
            yield from (order[start : start + 37] for start in range(0, 185, 37))

    batches = epochs()
    assert not overlap_is_hypergeometric(overlaps(lambda: next(batches)))


def pair_frequencies(sampler, steps=4000):
    stream, together = Keystream(KEY), np.zeros((11, 11))
    for _ in range(steps):
        hit = np.zeros(11)
        hit[drawn(sampler, stream)] = 1.0
        together += np.outer(hit, hit)
    return together / steps


def test_inclusion_and_pair_frequencies_of_both_samplers():
    found = pair_frequencies(fixed(11, 4, 11))
    assert np.abs(np.diag(found) - 4 / 11).max() < 0.035
    assert np.abs(found[~np.eye(11, dtype=bool)] - 4 * 3 / 110).max() < 0.035
    found = pair_frequencies(poisson(11, 4, 11, 11))
    assert np.abs(np.diag(found) - 4 / 11).max() < 0.035
    assert np.abs(found[~np.eye(11, dtype=bool)] - (4 / 11) ** 2).max() < 0.035


def test_truncated_poisson_sizes_follow_the_cut_binomial():
    sampler, stream = poisson(records=180, batch=37, cap=37, accounted=211), Keystream(KEY)
    sizes = np.array([len(drawn(sampler, stream)) for _ in range(4000)])
    expected = stats.binom(180, 37 / 211)  # the public probability, not the batch over the true number of records
    for size in (26, 30, 34):
        assert abs((sizes <= size).mean() - expected.cdf(size)) < 0.03
    assert sizes.max() == 37
    assert abs((sizes == 37).mean() - expected.sf(36)) < 0.03
    assert abs((sizes <= 30).mean() - stats.binom(180, 37 / 180).cdf(30)) > 0.1  # control


def kept_subsets(records, probability, cap):
    """How likely each subset of the records is to be what is kept, every draw and every way to cut it listed."""
    chance, law = Fraction(probability), dict.fromkeys(subsets(range(records), cap), Fraction(0))
    for draw in subsets(range(records), records):
        kept = min(len(draw), cap)
        share = chance ** len(draw) * (1 - chance) ** (records - len(draw)) / comb(len(draw), kept)
        for left in combinations(sorted(draw), kept):
            law[frozenset(left)] += share
    return law


def subsets(of, most):
    return [frozenset(each) for size in range(most + 1) for each in combinations(of, size)]


def cut_uniformly(records, probability, cap):
    """The sampler itself, where it is accounted for two records more than there are."""
    accounted = records + 2
    batch = round(probability * accounted)
    sampler = poisson(records=records, batch=batch, cap=cap, accounted=accounted)
    return lambda stream: frozenset(drawn(sampler, stream).tolist())


def cut_in_order(records, probability, cap):
    """What a sampler that keeps the first records would do."""
    return lambda stream: frozenset(np.sort(bernoulli_subset(records, probability, stream))[:cap].tolist())


CUT = {"records": 7, "probability": 3 / 9, "cap": 3}
"""More than three of seven are drawn in 17% of the steps."""
STEPS = 12_000


def outcomes(draw):
    stream, found = Keystream(KEY), dict.fromkeys(subsets(range(7), 3), 0)
    for _ in range(STEPS):
        found[draw(stream)] += 1
    return found


def fits(found, groups):
    """Whether outcomes, put in groups, come as often as the law says: 1 in 10,000 sound samplers would fail."""
    law = kept_subsets(**CUT)
    names = sorted({groups(one) for one in law}, key=str)
    expected = [STEPS * float(sum(chance for one, chance in law.items() if groups(one) == name)) for name in names]
    seen = [sum(count for one, count in found.items() if groups(one) == name) for name in names]
    return stats.chisquare(seen, expected).pvalue > 1e-4


def test_what_a_cap_that_cuts_leaves_follows_the_law_subset_by_subset():
    found = outcomes(cut_uniformly(**CUT))
    assert sum(len(one) == 3 for one in found) == 35
    assert fits(found, lambda one: one)
    assert fits(found, len)


def test_inclusion_and_pair_frequencies_where_the_cap_cuts():
    law, found = kept_subsets(**CUT), outcomes(cut_uniformly(**CUT))
    for size in (1, 2):
        (likely,) = {sum(chance for one, chance in law.items() if one >= group) for group in exactly(size)}
        assert likely < Fraction(CUT["probability"]) ** size * Fraction(96, 100)  # without the cap it would be more
        for group in exactly(size):
            assert off(found, group, likely) < 4.5


def exactly(size):
    return [frozenset(each) for each in combinations(range(7), size)]


def off(found, group, likely):
    """How many deviations the records of a group are kept together too often or too seldom."""
    together = sum(count for one, count in found.items() if one >= group)
    return abs(together - STEPS * likely) / float(STEPS * likely * (1 - likely)) ** 0.5


def test_control_a_cut_that_keeps_the_first_records_has_the_right_sizes_and_nothing_else():
    law, found = kept_subsets(**CUT), outcomes(cut_in_order(**CUT))
    assert fits(found, len)
    assert not fits(found, lambda one: one)
    for size in (1, 2):
        likely = sum(chance for one, chance in law.items() if one >= exactly(size)[0])
        assert max(off(found, group, likely) for group in exactly(size)) > 9


def slot_frequencies(draw, steps=6000):
    """How often each of five records stands in each of seven slots."""
    found = np.zeros((5, 7))
    for _ in range(steps):
        slots = draw()
        for record in range(5):
            found[record] += slots == record
    return found / steps


def test_every_record_is_equally_likely_in_every_slot():
    """So that two data sets can be drawn from with all slots but one alike, whichever record they differ in."""
    stream, everyone = Keystream(KEY), np.arange(5, dtype=np.int64)
    assert np.abs(slot_frequencies(lambda: placed(everyone, 7, stream)) - 1 / 7).max() < 0.025
    most = fixed(records=5, batch=4, accounted=5)  # drawn by leaving out, which finds them in order
    frequencies = slot_frequencies(lambda: np.append(most.draw(stream).slots, [EMPTY] * 3))
    assert np.abs(frequencies[:, :4] - 4 / 5 / 4).max() < 0.025
    in_order = slot_frequencies(lambda: np.append(np.sort(most.draw(stream).slots), [EMPTY] * 3))
    assert np.abs(in_order[:, :4] - 4 / 5 / 4).max() > 0.2  # control


def test_every_step_holds_the_same_number_of_rows():
    stream = Keystream(KEY)
    assert {len(fixed().draw(stream).slots) for _ in range(20)} == {37}
    assert {len(poisson().draw(stream).slots) for _ in range(20)} == {48}


def test_with_the_same_stream_two_caps_differ_where_one_of_them_cuts():
    streams = Keystream(KEY), Keystream(KEY)
    pairs = [(drawn(poisson(cap=41), streams[0]), drawn(poisson(cap=90), streams[1])) for _ in range(200)]
    cut = [low for low, high in pairs if len(high) > 41]
    assert 20 < len(cut) < 100  # and the steps after a cut agree again
    assert all(set(low) <= set(high) and (len(low) == 41 or set(low) == set(high)) for low, high in pairs)


@given(st.integers(0, 40), st.integers(2, 40), st.data())
def test_a_data_set_that_does_not_fit_what_was_accounted_is_refused(records, accounted, data):
    batch = data.draw(st.integers(1, accounted - 1))
    step = {"dataset_size": accounted, "batch_size": batch, "noise_multiplier": 1.0}
    if records < accounted:
        with pytest.raises(InvalidInput, match="at least"):
            sampler_for(FixedSizeGaussian(**step), records)
    else:
        assert len(drawn(sampler_for(FixedSizeGaussian(**step), records), Keystream(KEY))) == batch
    if not 1 <= records <= accounted:
        with pytest.raises(InvalidInput, match="1 to dataset_size"):
            sampler_for(TruncatedPoissonGaussian(cap=batch, **step), records)


def test_other_samplers_are_refused():
    with pytest.raises(Unsupported, match="constant memory"):
        sampler_for(PoissonGaussian(dataset_size=9, batch_size=2, noise_multiplier=1.0), 9)
    with pytest.raises(Unsupported, match="constant memory"):
        sampler_for(Gaussian(noise_multiplier=1.0), 9)
    with pytest.raises(Unsupported, match="no bound"):
        rows_of(PoissonGaussian(dataset_size=9, batch_size=2, noise_multiplier=1.0))


class Counting(Keystream):
    """Counts the words that are asked of it."""

    def __init__(self, key):
        super().__init__(key)
        self.asked = 0

    def fill(self, words):
        self.asked += len(words)
        super().fill(words)


def test_a_draw_asks_for_randomness_by_the_batch_and_not_by_the_data_set():
    """Work, not time: the benchmark has the milliseconds. A shuffle would ask for ten million words."""
    stream = Counting(KEY)
    assert len(uniform_subset(10_000_000, 1024, stream)) == 1024
    assert stream.asked < 2 * 1024
    stream = Counting(KEY)
    assert 800 < len(bernoulli_subset(10_000_000, 1e-4, stream)) < 1200
    assert stream.asked < 2 * 1000
