"""The compiled kernel: its functions against mpmath, and what happens where numba is absent, broken or wrong."""

import logging
import subprocess
import sys
import textwrap
import threading

import mpmath
import numpy as np
import pytest
import torch

from lrdp.errors import InvalidInput, Unsupported
from lrdp.training.keystream import Keystream
from lrdp.training.noise import Grid, accelerator, make_ready
from lrdp.training.noise import compiled as source
from lrdp.training.noise.accelerator import Accelerated, Pieces

CPU = torch.device("cpu")
EIGHTH = np.pi / 4
KEY = bytes(range(32))


def units_apart(function, truth, points):
    """The largest error in units of the last place of the true value, over ``points``; 60 digits are the truth."""
    found, worst = function(points), 0.0
    with mpmath.workdps(60):
        for point, value in zip(points, found, strict=True):
            exact = truth(mpmath.mpf(float(point)))
            worst = max(worst, float(abs(mpmath.mpf(float(value)) - exact) / np.spacing(abs(float(exact)))))
    return worst


def uniforms(count):
    """Of every size that a word can have, and the ends; all are multiples of 2^-52."""
    random = np.random.default_rng(1)
    words = random.integers(1, 2**52, count) >> random.integers(0, 52, count)
    ends = [1, 2, 3, 2**52 - 1, 2**52 - 2, 2**51, 2**51 - 1, 2**51 + 1]
    around_root_half = int(2**52 * 0.5**0.5) + np.arange(-3, 4)
    near_one = 2**52 - (random.integers(1, 2**52, count) >> random.integers(0, 52, count))
    return np.concatenate([np.maximum(words, 1), ends, around_root_half, np.maximum(near_one, 1)]) / 2.0**52


def angles(count):
    random = np.random.default_rng(2)
    small = EIGHTH * 2.0 ** -random.uniform(0, 50, count)
    return np.concatenate([random.uniform(-EIGHTH, EIGHTH, count), small, -small, [EIGHTH, -EIGHTH, 2.0**-50]])


FUNCTIONS = [
    (source.logarithm, mpmath.log, uniforms),
    (source.sine, mpmath.sin, angles),
    (source.cosine, mpmath.cos, angles),
]


@pytest.mark.parametrize(("function", "truth", "points"), FUNCTIONS, ids=["logarithm", "sine", "cosine"])
def test_each_polynomial_is_right_to_two_units_in_the_last_place(function, truth, points):
    assert units_apart(function, truth, points(1500)) < 2.0


@pytest.mark.slow
@pytest.mark.parametrize(("function", "truth", "points"), FUNCTIONS, ids=["logarithm", "sine", "cosine"])
def test_each_polynomial_is_right_at_many_more_points(function, truth, points):
    assert units_apart(function, truth, points(60_000)) < 2.0


def test_control_a_shorter_polynomial_is_told_apart():
    assert units_apart(lambda x: source.sine(x) - x**13 * 1.5e-10, mpmath.sin, angles(300)) > 2.0


def test_the_logarithm_of_one_is_nought():
    assert source.logarithm(np.array([1.0]))[0] == 0.0


def test_where_numba_is_installed_it_is_used():
    assert accelerator.kernel() is not None


def compiled():
    kernel = accelerator.kernel()
    assert kernel is not None
    return kernel


def test_what_was_compiled_takes_both_types_of_weights_and_compiles_nothing_later():
    words, kernel = np.zeros(4, dtype=np.uint64), compiled()
    for dtype in (np.float32, np.float64):
        kernel(words, np.zeros(4, dtype=dtype), -2.0, 1.0)
    with pytest.raises(TypeError, match="No matching definition"):
        kernel(words, np.zeros(4, dtype=np.float16), -2.0, 1.0)


def wrong_scale(words, values, stretch, step):
    compiled()(words, values, stretch * 1.0001, step)


def wrong_end(words, values, stretch, step):
    last = values[-1].copy()
    compiled()(words, values, stretch, step)
    values[-1] = last


def not_a_number(words, values, stretch, step):
    values[3] = np.nan


@pytest.mark.parametrize("wrong", [wrong_scale, wrong_end, not_a_number])
def test_a_kernel_that_was_compiled_wrongly_is_refused(wrong):
    accelerator.check(compiled())
    with pytest.raises(Unsupported, match="steps from the plain way"):
        accelerator.check(wrong)


def test_where_no_compiled_code_can_be_kept_it_is_compiled_for_the_process(monkeypatch, caplog):
    def compiled(*, cache):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return accelerator.kernel()

    monkeypatch.setattr(source, "compiled", compiled)
    assert accelerator.kernel.__wrapped__() is accelerator.kernel()
    assert not caplog.records


def test_a_numba_that_fails_is_said_once_and_the_plain_way_remains(monkeypatch, caplog):
    def compiled(*, cache):
        raise OSError("libLLVM\nis not here")

    monkeypatch.setattr(source, "compiled", compiled)
    with caplog.at_level(logging.WARNING, "lrdp.training"):
        assert accelerator.kernel.__wrapped__() is None
    (said,) = [record.getMessage() for record in caplog.records]
    assert "plain way" in said
    assert said.endswith("libLLVM is not here")


def run(script, *path):
    """A process of its own, in which the folders of ``path`` are looked at first."""
    given = f"import sys; sys.path[:0] = {[str(folder) for folder in path]!r}\n"
    done = subprocess.run(
        [sys.executable, "-c", given + textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), done.stderr.splitlines()


NOISE = """
    import logging, sys, torch
    logging.basicConfig()
    import lrdp.training
    from lrdp.training.keystream import Keystream
    from lrdp.training.noise import Noise, accelerator, make_ready
    before = "numba" in sys.modules
    make_ready(torch.device("cpu"))
    total = torch.zeros(1001)
    for _ in range(3):
        Noise(1.0, Keystream.from_system()).add_to(total)
    print(before, accelerator.kernel() is None, int(total.count_nonzero()), "numba" in sys.modules)
"""


def test_training_imports_numba_only_for_noise():
    found, said = run(NOISE)
    assert found == ["False", "False", "1001", "True"]
    assert not said


@pytest.mark.parametrize(
    "content",
    [
        "raise ImportError('Numba needs NumPy 1.26 or less')",
        pytest.param("import numpy; numpy.no_such_name", marks=pytest.mark.slow),
        pytest.param("", marks=pytest.mark.slow),
    ],
    ids=["it refuses this numpy", "it is too old for this numpy", "it is something else"],
)
def test_a_broken_numba_costs_one_line(tmp_path, content):
    (tmp_path / "numba.py").write_text(content)
    found, said = run(NOISE, tmp_path)
    assert found[:3] == ["False", "True", "1001"]
    assert len(said) == 1
    assert "Noise is made the plain way" in said[0]


def test_without_numba_nothing_is_said(monkeypatch, caplog):
    monkeypatch.delitem(sys.modules, source.__name__)
    monkeypatch.setitem(sys.modules, "numba", None)  # what python takes for: there is none
    assert accelerator.kernel.__wrapped__() is None
    assert not caplog.records


def test_getting_ready_twice_costs_nothing():
    make_ready(CPU)
    before = accelerator.kernel.cache_info().misses
    make_ready(CPU)
    assert accelerator.kernel.cache_info().misses == before


PARTED = Pieces(chunk=8, section=24)


def accelerated(kernel, total, pieces=PARTED):
    Accelerated(Grid(0.37), Keystream(KEY), kernel, pieces).add_to(total)
    return total


@pytest.fixture
def threads():
    """Gives torch as many threads as a test asks for, and back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def test_noise_does_not_depend_on_the_number_of_threads(threads):
    threads(1)
    alone = accelerated(accelerator.kernel(), torch.zeros(24 * 40 + 11))
    for count in (2, 3):
        threads(count)
        assert torch.equal(accelerated(accelerator.kernel(), torch.zeros(24 * 40 + 11)), alone)


def test_each_section_has_words_of_a_key_of_its_own_and_no_word_comes_twice(threads):
    threads(3)
    seen = []

    def kernel(words, values, stretch, step):
        seen.append(words.tobytes())
        values += 1.0

    assert torch.equal(accelerated(kernel, torch.zeros(61)), torch.ones(61))
    keys, expected = Keystream(KEY), []
    for length in (24, 24, 13):
        stream = Keystream(keys.words(4).tobytes())
        expected += [stream.words(min(8, length - start + length % 2)).tobytes() for start in range(0, length, 8)]
    assert sorted(seen) == sorted(expected)
    assert len(set(seen)) == len(seen) == 8


@pytest.mark.parametrize("place", [0, 3, 7])
def test_an_error_in_any_thread_is_an_error_of_the_whole(threads, place):
    threads(2)
    calls = iter(range(8))

    def kernel(words, values, stretch, step):
        if next(calls) == place:
            raise MemoryError("no room for words")

    with pytest.raises(MemoryError, match="no room for words"):
        accelerated(kernel, torch.zeros(61))


def test_no_thread_outlives_the_noise(threads):
    threads(2)
    before = threading.active_count()
    accelerated(accelerator.kernel(), torch.zeros(24 * 40))
    assert threading.active_count() == before


def test_chunks_of_an_odd_number_are_refused():
    """The last pair would read a word that is not there."""
    with pytest.raises(InvalidInput, match="in pairs"):
        Pieces(chunk=7)
