"""Every way to make noise has one law, to the last tail and the last bit that counts (traps 24, 26, 27, 40)."""

import math

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lrdp.errors import InvalidInput
from lrdp.training.keystream import Keystream
from lrdp.training.noise import Grid, Noise, chacha
from lrdp.training.noise.accelerator import Accelerated, Pieces, kernel
from lrdp.training.noise.gaussian import check_cipher
from lrdp.training.noise.plain import here, there

KEY = bytes(range(32))
CPU = torch.device("cpu")
FARTHEST = 2**52 - 1  # the word whose uniform is 2^-52
EVERY_WAY = ("plain", "compiled", "device")


def way(name, deviation, stream, chunk=1 << 12):
    """The device's way runs on the CPU here, as it would elsewhere."""
    grid = Grid(deviation)
    if name == "compiled":
        pytest.importorskip("numba")
        compiled = kernel()
        assert compiled is not None
        return Accelerated(grid, stream, compiled, Pieces(chunk=chunk))
    return here(grid, stream, chunk) if name == "plain" else there(grid, stream, CPU, chunk)


def noised(name, total, deviation, stream, chunk=1 << 12):
    way(name, deviation, stream, chunk).add_to(total)
    return total


def standard(name, count, stream, chunk=1 << 12):
    return noised(name, torch.zeros(count, dtype=torch.float64), 1.0, stream, chunk).numpy()


class Constant:
    """A stream of one word."""

    def __init__(self, word):
        self.word = word

    def fill(self, words):
        words[:] = self.word


def box_and_muller(words, deviation, part):
    """Written anew in numpy, from words on."""
    radius, angle = np.split((2**52 - words % 2**52).astype(np.float64) / 2**52, 2)
    radius, angle = np.sqrt(-2.0 * np.log(radius)), 2.0 * np.pi * angle
    normals = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: len(part)]
    step = Grid(deviation).step
    return np.round((part + deviation * normals) / step) * step


@pytest.mark.parametrize("name", EVERY_WAY)
def test_normals_are_normal(name):
    values = standard(name, 200_001, Keystream(KEY))
    assert stats.kstest(values, "norm").pvalue > 1e-3
    assert abs(values.mean()) < 0.01
    assert abs(values.var() - 1.0) < 0.015
    assert abs(stats.skew(values)) < 0.025
    assert abs(stats.kurtosis(values)) < 0.05
    assert np.abs(values).max() > 4.2
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("name", EVERY_WAY)
def test_the_two_values_of_a_pair_are_independent_and_so_are_their_sizes(name):
    pairs = np.concatenate(
        [standard(name, 4096, Keystream(bytes([turn] * 32))).reshape(2, -1) for turn in range(40)], 1
    )
    first, second = pairs
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.015
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < 0.015
    octants = np.floor(np.arctan2(second, first) / (np.pi / 4)).astype(int)
    assert stats.chisquare(np.bincount(octants + 4, minlength=8)).pvalue > 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY_WAY)
def test_tails_are_as_heavy_as_they_must_be(name):
    count, stream = 40_000_000, Keystream(KEY)
    found = np.zeros(3, dtype=int)
    for _ in range(40):
        sizes = np.abs(standard(name, count // 40, stream, 1 << 18))
        found += [(sizes > limit).sum() for limit in (4.0, 4.5, 5.0)]
    expected = 2.0 * count * stats.norm.sf([4.0, 4.5, 5.0])
    assert (np.abs(found - expected) < 4.5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_the_tail_is_not_cut_and_the_ends_are_finite(name):
    """Words of 52 ones are as far as it goes, words of 52 zeros the middle; the other twelve bits mean nothing."""
    farthest = math.sqrt(-2.0 * math.log(2.0**-52))
    for above in (0, 2**52, 2**64 - 2**52):
        first, second = standard(name, 2, Constant(np.uint64(FARTHEST + above)))
        assert abs(first - farthest) < 2.0**-20 < 2.0**-19 < 8.48 < first
        assert abs(second) < 2.0**-20
        assert not standard(name, 2, Constant(np.uint64(above))).any()
    assert np.abs(standard(name, 2, Constant(np.uint64(2**52 - 2**28)))).max() < 5.8  # control: torch's float32 source


@pytest.mark.parametrize("quarter", range(9))
@pytest.mark.parametrize("beside", [-3, -1, 0, 1, 2])
@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_every_eighth_of_a_turn_joins_the_next(name, quarter, beside):
    angle = min(max(quarter * 2**49 + beside, 0), FARTHEST)

    class Pair:
        def fill(self, words):
            words[:] = [2**51, angle]

    uniform = (2**52 - angle) / 2**52
    radius = math.sqrt(-2.0 * math.log(0.5))
    expected = radius * math.cos(2 * math.pi * uniform), radius * math.sin(2 * math.pi * uniform)
    np.testing.assert_allclose(standard(name, 2, Pair()), expected, rtol=0, atol=2.0**-20)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["plain", "compiled"])
def test_noise_is_box_and_mullers_of_the_raw_words(name, dtype):
    """8 values at a time, so that chunks and an odd end are met."""
    total = torch.linspace(-2.0, 2.0, 19, dtype=dtype)
    source, parts = Keystream(KEY), np.split(total.double().numpy(), [8, 16])
    expected = [box_and_muller(source.words(len(part) + len(part) % 2), 0.37, part) for part in parts]
    noised(name, total, 0.37, Keystream(KEY), chunk=8)
    np.testing.assert_allclose(total.numpy(), np.concatenate(expected), rtol=0, atol=2.0**-22)


def test_noise_on_a_device_is_box_and_mullers_of_chacha20():
    """A key for every chunk; drawn from the keystream, expanded by a cipher library."""
    total = torch.linspace(-2.0, 2.0, 19, dtype=torch.float64)
    source, expected = Keystream(KEY), []
    for part in np.split(total.numpy().copy(), [8, 16]):
        cipher = Cipher(ChaCha20(source.words(4).tobytes(), bytes(16)), None).encryptor()
        words = np.frombuffer(cipher.update(bytes(8 * (len(part) + len(part) % 2))), dtype=np.uint64)
        expected.append(box_and_muller(words, 0.37, part))
    noised("device", total, 0.37, Keystream(KEY), chunk=8)
    np.testing.assert_allclose(total.numpy(), np.concatenate(expected), rtol=0, atol=2.0**-22)


@pytest.mark.parametrize("deviation", [1e-6, 0.37, 1.0, 777.7])
def test_compiled_and_plain_noise_differ_at_most_where_a_value_lies_between_two_steps(deviation):
    plain, fast = (noised(name, torch.zeros(1 << 16), deviation, Keystream(KEY)) for name in ("plain", "compiled"))
    apart = (plain - fast).abs() / Grid(deviation).step
    assert int((apart > 0).sum()) <= 2
    assert float(apart.max()) <= 4.0  # one step, or the float32 next to it


@pytest.mark.parametrize("wrong", [0.95, 1.05])
@pytest.mark.parametrize("name", EVERY_WAY)
def test_noise_has_the_deviation_asked_for_and_no_other(name, wrong):
    total = noised(name, torch.zeros(100_000), 0.37, Keystream(KEY)).numpy()
    assert stats.kstest(total / 0.37, "norm").pvalue > 1e-3
    assert stats.kstest(total / 0.37 / wrong, "norm").pvalue < 1e-4


@pytest.mark.parametrize("name", EVERY_WAY)
@given(deviation=st.floats(1e-6, 1e6))
def test_released_values_lie_on_the_grid(name, deviation):
    total = torch.linspace(-3.0, 3.0, 33, dtype=torch.float64) * deviation
    noised(name, total, deviation, Keystream.from_system(), chunk=64)
    step = Grid(deviation).step
    assert torch.equal(total, (total / step).round() * step)
    assert deviation / 2 <= step * 2**20 <= deviation
    assert math.frexp(step)[0] == 0.5


@pytest.mark.parametrize("name", EVERY_WAY)
def test_no_output_certifies_that_a_record_was_absent(name):
    """Trap 27: which outputs of a sum of 0 could never come from a sum of 1?"""
    here = torch.from_numpy(standard(name, 200_000, Keystream(KEY)))
    step = Grid(1.0).step
    assert torch.equal(((1.0 + (here - 1.0)) / step).round() * step, here)
    assert step / np.spacing(float(here.abs().max()) + 1.0) > 2**18  # many float64 noises lead to each output


def test_control_float32_noise_certifies_a_records_absence_all_the_time():
    naive = torch.randn(200_000, generator=torch.Generator().manual_seed(3))
    assert float(((1.0 + (naive - 1.0)) != naive).float().mean()) > 0.2


@pytest.mark.parametrize("name", EVERY_WAY)
def test_a_sum_that_is_no_number_stays_so_and_touches_no_other(name):
    total = torch.tensor([math.nan, 1.0, math.inf, -math.inf, 2.0**90])
    noised(name, total, 1.0, Keystream(KEY))
    assert total[0].isnan()
    assert abs(float(total[1])) < 9.5
    assert total[2:].tolist() == [math.inf, -math.inf, 2.0**90]


def test_every_element_gets_noise_whatever_the_tensors_form():
    for shape in [(), (1,), (2, 3, 5), (0,), (70_001,)]:
        total = torch.zeros(shape)
        Noise(1.0, Keystream(KEY)).add_to(total)
        assert total.count_nonzero() == total.numel()


def test_the_keystream_on_a_device_is_chacha20():
    """The first two vectors of RFC 8439, appendix A.1: key and nonce of zeros, blocks 0 and 1."""
    words = torch.empty(16, dtype=torch.int64)
    chacha.fill(words, bytes(32))
    assert words.numpy().tobytes().hex() == (
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f"
    )


@given(st.binary(min_size=32, max_size=32), st.integers(0, 5000))
def test_for_every_key_and_length_it_is_a_cipher_librarys(key, count):
    words = torch.empty(count, dtype=torch.int64)
    chacha.fill(words, key)
    cipher = Cipher(ChaCha20(key, bytes(16)), None).encryptor()
    assert words.numpy().tobytes() == cipher.update(bytes(8 * count))


def test_a_key_of_another_length_is_refused():
    with pytest.raises(InvalidInput, match="nothing was drawn"):
        chacha.fill(torch.empty(8, dtype=torch.int64), bytes(16))


def test_a_device_that_computes_the_cipher_wrongly_is_refused(monkeypatch):
    check_cipher(CPU)
    monkeypatch.setattr(chacha, "_DOUBLE_ROUNDS", 9)
    with pytest.raises(Exception, match="Nothing was charged"):
        check_cipher(CPU)


def test_on_another_device_only_keys_leave_the_host():
    """A device without any content: whoever asked for a value back would fail."""

    class Keys(Keystream):
        given = 0

        def fill(self, words):
            Keys.given += words.nbytes
            super().fill(words)

    total = torch.empty(3 << 20, device="meta")
    Noise(1.0, Keys(KEY)).add_to(total)
    assert Keys.given == 3 * 32
