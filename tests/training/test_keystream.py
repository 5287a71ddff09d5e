"""The keystream: bytes that nobody can predict, repeat, copy or inherit (traps 24, 25, 26, 50)."""

import copy
import hashlib
import os
import pickle

import numpy as np
import pytest
import torch

from lrdp.training.keystream import Keystream
from lrdp.training.noise import Noise

KEY = bytes(range(32))


def standard_normals(count, stream):
    values = torch.zeros(count, dtype=torch.float64)
    Noise(1.0, stream).add_to(values)
    return values


def test_the_keystream_is_aes_256_in_counter_mode():
    assert Keystream(bytes(32)).words(2).tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_no_seed_reaches_the_noise_and_no_draw_comes_twice():
    seen = set()
    for _ in range(50):
        torch.manual_seed(4111)
        np.random.seed(4111)  # noqa: NPY002 - the point is that it has no effect
        seen.add(hashlib.sha256(standard_normals(64, Keystream.from_system()).numpy().tobytes()).digest())
    stream = Keystream.from_system()
    seen |= {hashlib.sha256(standard_normals(64, stream).numpy().tobytes()).digest() for _ in range(50)}
    assert len(seen) == 100


def test_control_torchs_own_noise_repeats_with_its_seed():
    draws = []
    for _ in range(2):
        torch.manual_seed(4111)
        draws.append(torch.randn(64))
    assert torch.equal(*draws)


def drawn_in_a_fork(draw):
    """What ``draw`` gives in a child of this process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, draw())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader, "rb") as found:
        return found.read()


forks = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@forks
@pytest.mark.parametrize("draws_before", [0, 3])
def test_children_and_grandchildren_draw_other_words_than_their_parent(draws_before, monkeypatch):
    """Even if the operating system gives all of them the same number."""
    monkeypatch.setattr(os, "getpid", lambda: 4111)
    stream = Keystream(KEY)
    stream.words(draws_before)

    def draw():
        return stream.words(2).tobytes()

    def both():
        return draw() + drawn_in_a_fork(draw)

    found = [drawn_in_a_fork(draw), drawn_in_a_fork(both), drawn_in_a_fork(lambda: drawn_in_a_fork(draw)), both()]
    words = [part[start : start + 16] for part in found for start in range(0, len(part), 16)]
    assert len(set(words)) == len(words) == 6
    control = Keystream(KEY)
    control.words(draws_before)
    assert words[4] == control.words(2).tobytes()  # who forked goes on where it was


@forks
def test_a_stream_that_a_child_made_is_not_its_childs():
    def draw():
        stream = Keystream(KEY)
        inner = drawn_in_a_fork(lambda: stream.words(2).tobytes())
        return stream.words(2).tobytes() + inner

    own, inner = (drawn_in_a_fork(draw)[start : start + 16] for start in (0, 16))
    assert own == Keystream(KEY).words(2).tobytes()
    assert inner != own


@forks
def test_keys_that_are_given_out_in_a_child_are_its_own():
    stream = Keystream(KEY)
    assert drawn_in_a_fork(stream.key) != stream.key() != stream.key()


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_keystream_is_never_copied_or_stored(duplicate):
    with pytest.raises(TypeError, match="never copied"):
        duplicate(Keystream.from_system())
