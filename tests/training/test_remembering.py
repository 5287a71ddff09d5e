"""What a pass leaves behind: weights, buffers and anything else that a later pass could make something of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import Unsupported
from lrdp.training import TensorRecords, check_gradients
from training.cases import RECORDS, fixed, model, task


class Passing(nn.Module):
    """A model that does something with its inputs first."""

    first: Callable[[Any], Any]

    def __init__(self):
        super().__init__()
        self.inner = model()

    def forward(self, inputs):
        return self.inner(self.first(inputs))


class Centred(Passing):
    """Centred by the mean of the first batch of each shape, as a table is made for each shape."""

    shape, mean = None, None

    def first(self, inputs):
        if self.shape != inputs.shape:
            self.shape, self.mean = inputs.shape, inputs.detach().mean(0)
        return inputs - self.mean


class Scaled(Passing):
    """By the largest value so far, which no made-up record exceeds."""

    most = torch.tensor(1e3)

    def first(self, inputs):
        self.most = torch.maximum(self.most.to(inputs), inputs.detach().abs().max())
        return inputs * (1e3 / self.most)


class Drawing(Passing):
    """From random numbers of its own, which go on from pass to pass."""

    def __init__(self):
        super().__init__()
        self.source = torch.Generator().manual_seed(1)

    def __deepcopy__(self, memo):
        return type(self)()

    def first(self, inputs):
        return inputs * torch.rand((), generator=self.source)


@pytest.mark.parametrize("make", [Centred, Scaled, Drawing], ids=lambda make: make.__name__)
def test_a_model_that_keeps_something_of_earlier_records_is_refused(make):
    with pytest.raises(Unsupported, match=r"a different loss in a later pass: .* start from the same state"):
        check_gradients(fixed(), task(model=make()))


def test_what_is_kept_on_the_way_back_is_found_in_gradients():
    class Momentum(torch.autograd.Function):
        last = 0.0

        @staticmethod
        def forward(_, inputs):
            return inputs.clone()

        @staticmethod
        def backward(_, gradient):
            Momentum.last = 0.9 * Momentum.last + float(gradient.sum())
            return gradient + Momentum.last

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.line, self.head = nn.Linear(5, 4), nn.Linear(4, 3)

        def forward(self, inputs):
            return self.head(Momentum.apply(self.line(inputs)))

    with pytest.raises(Unsupported, match="a different gradient in a later pass"):
        check_gradients(fixed(), task(model=Model()))


def test_a_parameter_that_a_pass_changes_is_named_though_it_is_frozen():
    class Counting(Passing):
        def __init__(self):
            super().__init__()
            self.count = nn.Parameter(torch.zeros(5), requires_grad=False)

        def first(self, inputs):
            with torch.no_grad():
                self.count.add_((inputs > 0.5).sum(0))
            return inputs

    with pytest.raises(Unsupported, match="the parameter count is changed by a pass itself"):
        check_gradients(fixed(), task(model=Counting()))


class Words(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.words, self.head = nn.Embedding(9, 4), nn.Linear(4, 3)
        self.options = options

    def forward(self, tokens):
        return self.head(functional.embedding(tokens, self.words.weight, **self.options).mean(1))


def tokens():
    return TensorRecords(torch.randint(0, 9, (RECORDS, 5)), torch.randint(0, 3, (RECORDS,)))


def test_an_embedding_that_shortens_the_rows_it_sees_is_refused_by_its_layer_or_by_what_it_does():
    """Which tokens were there would be read off the weights, without noise."""
    layer = nn.Sequential(nn.Embedding(9, 4, max_norm=50.0), nn.Flatten(), nn.Linear(20, 3))
    with pytest.raises(Unsupported, match=r"0 \(Embedding\) shortens the rows .* use max_norm=None"):
        check_gradients(fixed(), task(model=layer, dataset=tokens()))
    with pytest.raises(Unsupported, match=r"the parameter words.weight is changed by a pass itself"):
        check_gradients(fixed(), task(model=Words(max_norm=0.5), dataset=tokens()))


def by_hook(parameter, act):
    parameter.register_hook(act)


def after_accumulating(parameter, act):
    parameter.register_post_accumulate_grad_hook(lambda given: act(given.grad) and None)


@pytest.mark.parametrize("register", [by_hook, after_accumulating], ids=["a hook", "an optimiser's step"])
def test_a_hook_on_a_parameters_gradient_is_refused_with_its_layer(register):
    given = model()
    register(given[3].weight, lambda gradient: gradient * 2.0)
    with pytest.raises(Unsupported, match=r"3 \(Linear\) has a hook on the gradient of weight.*remove it"):
        check_gradients(fixed(), task(model=given))


def test_inputs_that_are_overwritten_are_said_to_be():
    class Doubling(Passing):
        def first(self, inputs):
            return inputs.mul_(2.0)

    with pytest.raises(Unsupported, match=r"overwrites the records .*inputs\.clone\(\)"):
        check_gradients(fixed(), task(model=Doubling()))


def test_a_table_that_is_made_in_the_first_pass_is_no_memory():
    class Table(Passing):
        def first(self, inputs):
            if not hasattr(self, "table"):
                self.register_buffer("table", torch.arange(5.0).to(inputs), persistent=False)
            return inputs + self.table

    assert not check_gradients(fixed(), task(model=Table())).alone
