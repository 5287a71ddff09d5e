"""The contestants take the steps that they say they take."""

import mmap
import warnings
from contextlib import closing

import numpy as np
import pytest

from lrdp.errors import InvalidInput
from lrdp.experiments.memory.contestants import ENGINES, ContestantMethod, Setting, contestant, poisson_sizes
from lrdp.experiments.memory.measuring import live_peaks, process_peaks, recorded
from lrdp.experiments.memory.records import Pictures

SETTING = Setting(model="small cnn", records=80, batch_size=12, seed=5)
RECORDS = Pictures(80, (1, 28, 28), 5)
PLAIN = ContestantMethod(engine="plain", sampling="fixed")
OPACUS = ContestantMethod(engine="opacus", sampling="poisson")
PIECES = ContestantMethod(engine="opacus", sampling="poisson", micro_batch=5)
FIXED = ContestantMethod(engine="ours", sampling="fixed")
TRUNCATED = ContestantMethod(engine="ours", sampling="truncated", cap=29)
MICRO = ContestantMethod(engine="ours", sampling="fixed", micro_batch=4)


def peaks(method, sizes):
    with warnings.catch_warnings(action="ignore"), contestant(method, SETTING, RECORDS) as steps:
        taken, told = recorded(lambda done: steps(sizes, done))
    return taken, live_peaks(told)


@pytest.mark.parametrize("method", [PLAIN, OPACUS, PIECES])
def test_who_takes_sizes_takes_those_that_were_asked_for(method):
    assert peaks(method, [13, 4, 21])[0] == [13, 4, 21]


def test_truncated_batches_vary_and_their_bytes_do_not():
    sizes, found = peaks(TRUNCATED, [12] * 8)
    assert len(set(sizes)) > 2
    assert max(sizes) <= 29
    assert max(found) == min(found)


def test_fixed_batches_have_constant_bytes_and_micro_batches_fewer():
    sizes, whole = peaks(FIXED, [12] * 3)
    assert sizes == [12] * 3
    assert max(whole) == min(whole)
    assert max(peaks(MICRO, [12] * 3)[1]) < min(whole)


def test_opacus_grows_with_the_batch_which_is_the_control():
    _, found = peaks(OPACUS, [12, 24])
    assert found[1] > 1.5 * found[0]
    _, pieces = peaks(PIECES, [10, 25])
    assert pieces[1] < 1.2 * pieces[0]


def test_a_batch_without_a_cap_is_refused_by_our_engine():
    with (
        pytest.raises(InvalidInput, match="got 'poisson': without a cap there is no number of rows"),
        contestant(ContestantMethod(engine="ours", sampling="poisson"), SETTING, RECORDS),
    ):
        pass


def test_the_process_is_seen_to_grow_and_to_shrink():
    """A block of 64 MB that lives in the second step only."""

    def run(done):
        for number in range(3):
            with closing(mmap.mmap(-1, 64 * 10**6 if number == 1 else 8)) as block:  # whatever malloc does
                np.frombuffer(block, np.uint8).fill(1)
            done(number)

    (_, first), (_, second), (_, third) = process_peaks(run)
    assert second - first > 50e6
    assert second - third > 50e6


def test_poisson_sizes_have_the_law_of_poisson_sampling():
    """Mean and variance of Binomial(30000, 128/30000), within five standard errors; another seed differs."""
    setting = Setting(model="vgg11", records=30_000, batch_size=128, seed=1)
    found = np.array(poisson_sizes(setting, 20_000, 0))
    rate = 128 / 30_000
    assert abs(found.mean() - 128) < 5 * np.sqrt(128 / 20_000)
    assert abs(found.var() / (128 * (1 - rate)) - 1) < 5 * np.sqrt(2 / 20_000)
    assert found.tolist() == poisson_sizes(setting, 20_000, 0) != poisson_sizes(setting, 20_000, 1)


def test_every_engine_is_tried_here():
    assert set(ENGINES) == {method.engine for method in (PLAIN, OPACUS, FIXED)}
