"""What is refused before the receipt is redeemed and before anything is drawn (traps 8, 9, 14, 15, 18, 19, 28)."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from lrdp.accounting import Gaussian, PoissonGaussian
from lrdp.errors import InvalidInput, LrdpError, Unsupported
from lrdp.training import (
    Adam,
    Constant,
    PublicConstants,
    Sgd,
    TensorRecords,
    check_gradients,
    private_update,
)
from training.cases import RECORDS, fixed, model, poisson, receipt, records, task


def refused(error, match, mechanism=None, **changes):
    """Refused with the receipt still good and nothing drawn."""
    paid = receipt(mechanism)
    with pytest.raises(error, match=match):
        private_update(paid, task(**changes))
    assert not paid.redeemed


def mean_loss(model, batch):
    return functional.cross_entropy(model(batch[0]), batch[1])


def averaged_and_spread(model, batch):
    return mean_loss(model, batch).expand(len(batch[0]))


class Mixing(nn.Module):
    def __init__(self, only_in_training=False):
        super().__init__()
        self.inner, self.only = model(), only_in_training

    def forward(self, inputs):
        mixed = self.training or not self.only
        return self.inner(inputs - inputs.mean(0) if mixed else inputs)


class BehindItsBack(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(5, 3)

    def forward(self, inputs):
        return functional.linear(inputs, self.line.weight, self.line.bias)


class WrongDimension(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions, self.head = nn.Embedding(6, 5), nn.Linear(5, 3)

    def forward(self, inputs):
        return self.head(inputs[:, None, :] + self.positions(torch.arange(6))).mean(1)


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = model()
        self.register_buffer("seen", torch.zeros(5))

    def forward(self, inputs):
        with torch.no_grad():
            self.seen += inputs.sum(0)
        return self.inner(inputs)


def test_a_loss_that_averages_is_refused():
    refused(InvalidInput, "one value per example", loss=mean_loss)
    refused(Unsupported, "other examples of its batch", loss=averaged_and_spread)


def test_models_that_mix_examples_are_refused():
    refused(Unsupported, "replace_batch_norm", model=nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)))
    refused(Unsupported, "other examples of its batch", model=Mixing())
    refused(Unsupported, "other examples of its batch", model=Mixing(only_in_training=True))
    refused(Unsupported, "adds up gradients over devices", model=nn.DataParallel(model()))


def test_models_that_remember_what_they_see_are_refused():
    refused(Unsupported, "buffer seen", model=Remembering())


@pytest.mark.parametrize("make", [BehindItsBack, WrongDimension])
def test_what_the_rules_cannot_see_through_runs_example_by_example(make):
    assert check_gradients(fixed(), task(model=make())).alone


def test_control_the_same_model_without_its_fault_is_accepted():
    class Honest(Mixing):
        def forward(self, inputs):
            return self.inner(inputs - inputs.mean(1, keepdim=True))

    private_update(receipt(), task(model=Honest()))


def test_a_model_that_is_not_finite_is_refused_even_where_it_is_not_used():
    class Spare(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.unused = model(), nn.Parameter(torch.tensor([1.0, math.nan]), requires_grad=False)

        def forward(self, inputs):
            return self.inner(inputs)

    refused(InvalidInput, "unused is not", model=Spare())


def test_data_that_cannot_be_trained_on_is_refused():
    refused(InvalidInput, "at least one record", dataset=TensorRecords(torch.zeros(0, 5), torch.zeros(0)))
    refused(InvalidInput, "at least dataset_size", dataset=records(60))
    refused(InvalidInput, "map-style", dataset=torch.utils.data.DataLoader(records()))
    bad = TensorRecords(records()._columns[0], torch.full((RECORDS,), 3))
    refused(InvalidInput, "from 0 to 2", dataset=bad)
    refused(InvalidInput, "from 0 to 2", mechanism=poisson(), dataset=bad)


def test_mechanisms_without_constant_memory_are_refused():
    refused(Unsupported, "no bound", PoissonGaussian(dataset_size=61, batch_size=5, noise_multiplier=1.0))
    refused(Unsupported, "no public bound", Gaussian(noise_multiplier=1.0))


def test_weights_in_half_precision_and_frozen_models_are_refused():
    refused(Unsupported, "float32 or float64", model=model().bfloat16())
    refused(Unsupported, "no trainable", model=model().requires_grad_(False))


@given(st.sampled_from([0.0, -1.0, math.nan, math.inf, -math.inf, 1e-300, 1e300]))
def test_a_clip_norm_outside_its_limits_is_refused(value):
    with pytest.raises(InvalidInput, match="clip_norm"):
        PublicConstants(clip_norm=value, optimiser=Sgd(lr=1.0))


@given(st.sampled_from([-0.1, 1.0, math.nan, math.inf]))
def test_optimisers_outside_their_limits_are_refused(value):
    with pytest.raises(LrdpError):
        Sgd(lr=1.0, momentum=value)
    with pytest.raises(LrdpError):
        Adam(lr=1.0, betas=(0.9, value))
    with pytest.raises(LrdpError):
        Adam(lr=value if value != 1.0 else -1.0)
    with pytest.raises(LrdpError):
        Constant(rate=value if value != 1.0 else -1.0)
