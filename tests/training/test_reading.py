"""Reading ahead changes when records are read, and nothing else."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from lrdp.errors import InvalidInput
from lrdp.training import Execution, check_records, memory_plan
from lrdp.training.local_steps import prepared
from lrdp.training.reading import in_turn, one_ahead
from lrdp.training.sampling import Draw
from training.cases import fixed, keys, model, poisson, records, run, task

AHEAD = "lrdp-reading"


class Watched:
    """Records one by one, with a note of what was read and by whom."""

    def __init__(self):
        self.inner, self.read = records(), []

    def __len__(self):
        return len(self.inner)

    def __getitem__(self, number):
        self.read.append((number, threading.current_thread().name))
        return self.inner[number]


class Odd(Watched):
    """Every third record cannot be read, or has a form of its own."""

    def __getitem__(self, number):
        inputs, label = super().__getitem__(number)
        if number % 6 == 1:
            raise OSError("the disk is gone")
        return (inputs[:4], label) if number % 6 == 4 else (inputs, label)


class Chancy(Watched):
    """Takes torch's random numbers, in every way that augmentations do."""

    def __getitem__(self, number):
        (
            torch.rand(3),
            torch.randint(5, (2,)),
            torch.randperm(4),
            torch.empty(2).uniform_(0, 1),
            torch.randn(1).normal_(),
        )
        return super().__getitem__(number)


def updated(given, ahead, mechanism=None, rows=None):
    torch.manual_seed(31)
    execution = Execution(read_ahead=ahead, micro_batch=rows)
    return run(mechanism or fixed(), task(**{"execution": execution} | given), steps=3)


def same(one, other):
    return all(torch.equal(one[name], other[name]) for name in one)


def checked(dataset):
    """Records that are odd are left out of a slot when they are drawn."""
    found = check_records(dataset, task().loss)
    object.__setattr__(found, "left_out", {})
    return found


@pytest.mark.one_in(3)
@pytest.mark.parametrize("rows", [None, 5])
@pytest.mark.parametrize("mechanism", [fixed(), poisson()], ids=["fixed", "poisson"])
@pytest.mark.parametrize("kind", [Watched, Odd])
def test_reading_ahead_makes_the_same_update_bit_for_bit(kind, mechanism, rows):
    plain, ahead = checked(kind()), checked(kind())
    one, other = (updated({"dataset": d}, d is ahead, mechanism, rows) for d in (plain, ahead))
    assert same(one, other)
    order = [[number for number, _ in found.dataset.read] for found in (plain, ahead)]
    assert order[0] == order[1], "the same records in the same order, and none besides"
    assert any(name.startswith(AHEAD) for _, name in ahead.dataset.read)
    assert not any(name.startswith(AHEAD) for _, name in plain.dataset.read)


def test_draws_are_made_by_the_thread_that_trains_and_as_many_as_steps():
    drawn = []
    with prepared(fixed(), task(execution=Execution(read_ahead=True))) as ready:
        sampler: Any = ready.sampler
        draw = sampler.draw
        sampler.draw = lambda stream: drawn.append(threading.current_thread()) or draw(stream)
        ready.run(4, keys())
    assert drawn == [threading.main_thread()] * 4


def test_a_draw_of_another_size_ends_the_update_before_steps_could_mix():
    for read_ahead in (False, True):
        with prepared(fixed(), task(execution=Execution(read_ahead=read_ahead, micro_batch=4))) as ready:
            sampler: Any = ready.sampler
            sampler.draw = lambda stream: Draw(np.arange(8))
            with pytest.raises(InvalidInput, match="13 slots, got 8"):
                ready.run(2, keys())


def test_no_more_than_one_batch_is_read_ahead():
    read, handed_out = [], []
    with one_ahead(lambda part: read.append(part) or part, iter(range(9))) as batches:
        for part in batches:
            handed_out.append(part)
            assert max(read) <= part + 1
    assert handed_out == read == list(range(9))


def test_an_error_arrives_where_it_would_without():
    def failing(part):
        if part == 2:
            raise MemoryError(part)
        return part

    for reading in (in_turn, one_ahead):
        found: list[Any] = []
        with pytest.raises(MemoryError), reading(failing, range(5)) as batches:
            found.extend(batches)
        with reading(failing, range(2)) as batches:
            assert list(batches) == [0, 1]


@pytest.mark.parametrize("step", [1, 3])
def test_no_thread_is_left_behind_whatever_ends_the_update(step):
    def observe(done):
        if done.step == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(fixed(), task(execution=Execution(read_ahead=True, observe=observe)), steps=3)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(AHEAD)]


def noisy():
    return nn.Sequential(nn.Dropout(0.5), model())


def test_a_data_set_that_takes_random_numbers_does_not_disturb_the_models():
    calm, chancy = checked(Watched()), checked(Chancy())
    given = {"model": noisy()}
    expected = updated(given | {"dataset": calm}, ahead=True)
    assert same(expected, updated(given | {"dataset": chancy}, ahead=True))
    assert not same(expected, updated(given | {"dataset": chancy}, ahead=False)), "control: in turn it takes them"


def test_the_threads_random_numbers_are_other_ones_in_every_update():
    def drawn(_):
        return torch.rand(2), torch.rand(2, generator=torch.Generator().manual_seed(1))

    found: list[Any] = []
    for _ in range(2):
        torch.manual_seed(3)
        with one_ahead(drawn, [0]) as batches:
            found += batches
    assert not torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1]), "whoever brings a generator keeps it"


def test_what_is_read_ahead_is_in_the_memory_plan():
    plain, ahead = (memory_plan(fixed(), task(execution=Execution(read_ahead=ahead))) for ahead in (False, True))
    record = 5 * 4 + 8
    assert ahead.peak_bytes - plain.peak_bytes >= 2 * 13 * record


def test_what_is_not_yes_or_no_is_refused():
    with pytest.raises(InvalidInput, match="read_ahead must be True or False"):
        Execution(read_ahead="no")  # type: ignore[arg-type]
