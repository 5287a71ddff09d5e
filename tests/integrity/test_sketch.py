"""The fingerprint is exact, linear and as sound as 2/p says; with a challenge known beforehand it is worth nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from integrity.parties import federation, play_out, stage
from lrdp.errors import InvalidInput
from lrdp.integrity import checks, schemes
from lrdp.integrity.field import MERSENNE_127, Field
from lrdp.integrity.sketch import COLUMNS, challenge
from lrdp.integrity.verdicts import Verdict
from oracles import integrity_reference as reference
from oracles.lattice import vanishing

TOY = Field(251)
EXTREMES = [-(2**31), 2**31 - 1, -1, 0, 1, 2**16, -(2**16), 2**15, 65535]


@settings(max_examples=40)
@given(size=st.integers(1, 2 * COLUMNS + 3), seed=st.binary(min_size=32, max_size=32))
def test_tags_agree_with_python_integers(size, seed):
    rng = np.random.default_rng(list(seed))
    values = rng.integers(-(2**31), 2**31, size).astype("<i4")
    values[: len(EXTREMES)] = EXTREMES[:size]
    assert challenge(seed, size).tag(values) == reference.sketch(seed, values.tolist())


@settings(max_examples=20)
@given(size=st.integers(1, 1500), seed=st.binary(min_size=32, max_size=32))
def test_tags_of_wide_sums_agree_with_python_integers(size, seed):
    rng = np.random.default_rng(list(seed))
    values = rng.integers(-(2**47), 2**47, size).astype("<i8")
    values[0] = -(2**47)
    assert challenge(seed, size).tag(values) == reference.sketch(seed, values.tolist())


@pytest.mark.parametrize("value", EXTREMES)
def test_a_matrix_of_extremes_stays_exact(value):
    """All coordinates alike make the largest float64 sums that can arise."""
    values = np.full(3 * COLUMNS + 1, value, "<i4")
    assert challenge(b"extreme" * 5, values.size).tag(values) == reference.sketch(b"extreme" * 5, values.tolist())


@pytest.mark.parametrize("bits", range(1, 32))
def test_every_width_of_updates_stays_exact(bits):
    values = np.full(COLUMNS + 1, 2**bits - 1, "<i4")
    values[::3] = -(2**bits)
    assert challenge(b"width" * 7, values.size).tag(values) == reference.sketch(b"width" * 7, values.tolist())


@pytest.mark.parametrize("bits", [0, 1, 23, 24, 25, 31, 40, 47, 48])
def test_every_width_of_sums_stays_exact(bits):
    values = np.full(COLUMNS + 1, 2**bits, "<i8")
    values[::3] = -(2**bits)
    assert challenge(b"width" * 7, values.size).tag(values) == reference.sketch(b"width" * 7, values.tolist())


def test_tags_are_linear_over_int32_and_int64():
    rng = np.random.default_rng(3)
    drawn = challenge(b"linear" * 6, 5000)
    updates = [rng.integers(-(2**23), 2**23, 5000).astype("<i4") for _ in range(300)]
    total = np.sum(updates, axis=0, dtype="<i8")
    assert sum(map(drawn.tag, updates)) % MERSENNE_127.prime == drawn.tag(total)


def test_a_vector_of_another_length_is_refused():
    with pytest.raises(InvalidInput, match="for 5 coordinates"):
        challenge(bytes(32), 5).tag(np.zeros(6, "<i4"))


def test_elements_are_uniform_below_the_prime():
    drawn = TOY.expand(b"label", b"seed", 251 * 200)
    counts = np.bincount(drawn, minlength=251)
    assert len(counts) == 251
    statistic = float(((counts - 200) ** 2 / 200).sum())
    assert abs(statistic - 250) < 6 * math.sqrt(500)


def test_labels_and_seeds_give_unrelated_elements():
    streams = [tuple(MERSENNE_127.expand(*key, 4)) for key in ((b"a", b"b"), (b"a", b"c"), (b"ab", b""), (b"", b"ab"))]
    assert len(set(streams)) == 4
    assert MERSENNE_127.expand(b"a", b"b", 2) == list(streams[0][:2])


# -------------------------------------------------------------------------------------------- soundness, on toy numbers
def too_many(accepted: int, trials: int, rate: float) -> bool:
    """Whether so many acceptances refute ``rate`` at one in a million (one-sided, exact binomial)."""
    tail = sum(
        math.exp(
            math.lgamma(trials + 1)
            - math.lgamma(k + 1)
            - math.lgamma(trials - k + 1)
            + k * math.log(rate)
            + (trials - k) * math.log1p(-rate)
        )
        for k in range(accepted, min(trials, accepted + 400) + 1)
    )
    return tail < 1e-6


FORGERIES = {
    "one coordinate": lambda rng, e: e.__setitem__(0, 1 + rng.integers(250)),
    "balanced": lambda rng, e: e.__setitem__([1, 2], [1000, -1000]),
    "1, -2, 1": lambda rng, e: e.__setitem__([5, 6, 7], [1, -2, 1]),
    "in two rows": lambda rng, e: e.__setitem__([0, COLUMNS], [1, -1]),
    "everywhere": lambda rng, e: e.__setitem__(slice(None), rng.integers(-100, 100, e.size)),
}


def _accepted(trials: int) -> dict[str, int]:
    """How often each forgery meets a challenge that does not see it; the forgery is chosen before the challenge."""
    rng = np.random.default_rng(251)
    accepted = dict.fromkeys(FORGERIES, 0)
    for _ in range(trials):
        drawn = challenge(rng.bytes(32), 2 * COLUMNS, TOY)
        for name, forge in FORGERIES.items():
            added = np.zeros(2 * COLUMNS, "<i4")
            forge(rng, added)
            accepted[name] += drawn.tag(added) == 0
    return accepted


def test_over_a_toy_prime_forgeries_pass_at_most_twice_in_p():
    accepted = _accepted(trials=800)
    assert not any(too_many(count, 800, 2 / TOY.prime) for count in accepted.values())
    assert all(accepted.values())  # a test that never sees one would see nothing


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_over_a_toy_prime_many_forgeries_pass_at_most_twice_in_p():
    accepted = _accepted(trials=40_000)
    assert not any(too_many(count, 40_000, 2 / TOY.prime) for count in accepted.values())
    assert any(too_many(count, 40_000, 0.5 / TOY.prime) for count in accepted.values())  # so many trials see a factor


def test_the_statistic_notices_twice_the_rate():
    assert too_many(accepted=round(3000 * 6 / 251), trials=3000, rate=2 / 251)
    assert too_many(accepted=round(1200 * 8 / 251), trials=1200, rate=2 / 251)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr(schemes, "MERSENNE_127", TOY)
    monkeypatch.setattr(checks, "MERSENNE_127", TOY)


def test_the_whole_protocol_over_a_toy_prime_accepts_forgeries_at_most_twice_in_p(toy):
    scene = stage(federation(3, size=3))
    accepted, trials = 0, 300
    for trial in range(trials):
        forged = scene.publish.aggregate.copy()
        forged[trial % 3] += 1 + trial // 3
        accepted += play_out(scene, scene.resign(forged)).worst is Verdict.VERIFIED
    assert not too_many(accepted, trials, 2 / TOY.prime)


def test_over_a_toy_prime_a_server_that_tries_offline_is_believed(toy):
    """The reason for 127 bits: the challenge is public as soon as the transcript is, so a server may search."""
    scene = stage(federation(3, size=3))
    for index in range(1, 5000):
        publish = scene.resign(scene.publish.aggregate + np.int32(index))
        added = np.full(3, index, "<i4")
        if index % TOY.prime and schemes.transcript_challenge(publish.header, 3).tag(added) == 0:
            break
    else:
        pytest.fail("no forgery found in 5000 tries at 1/251 each")
    assert play_out(scene, publish).worst is Verdict.VERIFIED


def test_with_a_challenge_known_beforehand_a_forgery_is_believed(monkeypatch):
    """The control: a lattice finds small changes that the real prime does not see, if the challenge is predictable."""
    known = challenge(b"known beforehand", 12)
    monkeypatch.setattr(schemes, "transcript_challenge", lambda header, size: known)
    scene = stage(federation(3, size=12))
    change = vanishing([known.alphas[0] * beta % MERSENNE_127.prime for beta in known.betas[:8]], MERSENNE_127.prime)
    assert any(change)
    assert max(map(abs, change)) < scene.point.most
    aggregate = scene.publish.aggregate.copy()
    aggregate[:8] += np.array(change, "<i4")
    assert play_out(scene, scene.resign(aggregate)).worst is Verdict.VERIFIED


def test_the_same_forgery_is_caught_by_the_transcripts_challenge():
    known = challenge(b"known beforehand", 12)
    scene = stage(federation(3, size=12))
    change = vanishing([known.alphas[0] * beta % MERSENNE_127.prime for beta in known.betas[:8]], MERSENNE_127.prime)
    aggregate = scene.publish.aggregate.copy()
    aggregate[:8] += np.array(change, "<i4")
    assert play_out(scene, scene.resign(aggregate)).worst is Verdict.SUM_MISMATCH


def test_masked_tags_of_equal_updates_look_unrelated_and_cancel():
    scene = stage(federation(4, size=6), updates=dict.fromkeys(("c000", "c001", "c002", "c003"), np.ones(6, "<i4")))
    played = play_out(scene)
    values = [tag.value for tag in played.tags]
    bare = schemes.transcript_challenge(scene.publish.header, 6).tag(np.ones(6, "<i4"))
    assert len(set(values)) == 4
    assert bare not in values
    assert sum(values) % MERSENNE_127.prime == 4 * bare % MERSENNE_127.prime
