"""Models that look at values unless a compiler traces them, and such as ask for float32 whatever their own type is."""

from __future__ import annotations

import random

import numpy as np
import torch
from torch import nn

from lrdp.training import check_gradients
from lrdp.training.chance import same_chance
from lrdp.training.layers import Batched
from lrdp.training.unlooking import unlooking
from lrdp.training.widening import Widening
from training.cases import fixed, model, task
from training.test_gate import assert_trains_exactly


class Saving(nn.Module):
    """Leaves a mask out that hides nothing, as models of ``transformers`` do."""

    def __init__(self, *, compilable):
        super().__init__()
        self.inner, self.compilable = model(), compilable

    def forward(self, inputs):
        mask = inputs > -1.0
        traced = self.compilable and torch.compiler.is_compiling()
        return self.inner(inputs if not traced and bool(mask.all()) else inputs * mask)


def test_a_model_that_does_not_look_while_it_is_traced_runs_together():
    assert_trains_exactly(task(model=Saving(compilable=True)), alone=False)


def test_a_model_that_looks_all_the_same_runs_alone():
    """The request is no promise: the gate looks itself."""
    assert_trains_exactly(task(model=Saving(compilable=False)), alone=True)


def test_nothing_is_traced_outside_of_private_passes():
    with unlooking():
        assert torch.compiler.is_compiling()
    assert not torch.compiler.is_compiling()


class Upcasting(nn.Module):
    """Normalises in float32, whatever its own type is."""

    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, inputs):
        wide = inputs.to(torch.float32)
        return self.inner((wide * wide.pow(2).mean(-1, keepdim=True).add(1e-6).rsqrt()).to(inputs.dtype))


def test_a_model_that_asks_for_float32_inside_runs_together():
    assert not check_gradients(fixed(), task(model=Upcasting())).alone


def test_every_way_to_ask_for_float32_is_widened():
    third = torch.tensor(1.0, dtype=torch.float64) / 3.0
    with Widening():
        narrow = (
            third.float(),
            third.to(torch.float32),
            third.to(dtype=torch.float32),
            third.type(torch.float32),
            torch.softmax(third[None], 0, dtype=torch.float32),
            torch.zeros(1, dtype=torch.float32),
        )
    assert {tensor.dtype for tensor in narrow} == {torch.float64}
    assert all(bool(tensor == third) for tensor in narrow[:4])
    assert third.float().dtype == torch.float32


def test_the_random_numbers_of_numpy_and_python_begin_alike_and_go_on_as_they_were():
    device = torch.device("cpu")
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist()  # noqa: NPY002
    drawn = []
    for _ in range(2):
        with same_chance(device):
            drawn.append((random.random(), np.random.rand(), float(torch.rand(()))))  # noqa: NPY002
    assert drawn[0] == drawn[1]
    assert before == (random.getstate(), np.random.get_state(legacy=False)["state"]["key"].tolist())  # noqa: NPY002


def test_arguments_of_another_form_are_another_place_and_unknown_after_learning():
    rows, found = torch.zeros(3, 2), Batched()
    assert found.among("cell", (rows, None), 3) == (True, False)
    assert found.among("cell", (rows, rows), 3) == (True, True)
    assert found.among("cell", (rows, None), 3) == (True, False)
    found.settle()
    assert found.among("cell", (rows, rows), 3) == (True, True)
    assert found.among("cell", (rows, rows, rows), 3) == (False, False, False)
    assert found.among("elsewhere", (rows,), 3) == (False,)
