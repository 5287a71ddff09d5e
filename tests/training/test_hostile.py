"""Models that tie examples together where it is hard to see: none of them may run together.

What feels the other examples is refused, or runs example by example if it mixes nothing then. Each is also trained, if
it is accepted, and compared with separate backward passes on records that make it show its true nature.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from lrdp.errors import LrdpError
from lrdp.training import TensorRecords, check_gradients
from training.cases import fixed, model, task
from training.truth import clipped, gradients_one_by_one

REFUSED, ALONE, TOGETHER = "refused", "alone", "together"
HOSTILE: dict[str, Any] = {}


def hostile(deserved):
    """Registers a way to change a model's input, with what it deserves."""
    return lambda change: HOSTILE.setdefault(change.__name__, (change, deserved))[0]


class Changed(nn.Module):
    """``change(self, inputs)`` before an honest model."""

    def __init__(self, change):
        super().__init__()
        self.inner, self.change, self.kept = model(), change, None
        self.register_buffer("shelf", torch.zeros(5))

    def forward(self, inputs):
        return self.inner(self.change(self, inputs))


# ------------------------------------------------------------------------------------------------------- plainly mixing
@hostile(REFUSED)
def mixes_in_train_mode_only(self, inputs):
    return inputs - inputs.mean(0) if self.training else inputs


@hostile(REFUSED)
def mixes_a_thousandth(_, inputs):
    return inputs + 1e-3 * inputs.sum(0)


@hostile(REFUSED)
def mixes_a_ten_millionth(_, inputs):
    return inputs + 1e-7 * inputs.sum(0)


@hostile(REFUSED)
def sorts_the_batch(_, inputs):
    return inputs.sort(0).values


@hostile(REFUSED)
def keeps_the_best_of_the_batch(_, inputs):
    chosen = inputs.sum(1).topk(2).indices
    return inputs * torch.zeros(len(inputs), 1, dtype=inputs.dtype).index_fill(0, chosen, 1.0)


@hostile(ALONE)
def has_room_for_two_at_each_expert(_, inputs):
    """A router with capacity: who comes too late is passed over."""
    expert = (inputs[:, :1] > 0.5).to(inputs.dtype)
    return inputs * (expert.cumsum(0) * expert <= 1)


@hostile(REFUSED)
def takes_the_row_before(_, inputs):
    return inputs + inputs.roll(1, 0)


class SumsBackwards(torch.autograd.Function):
    """Honest forwards; backwards every row gets the sum of all."""

    @staticmethod
    def forward(ctx, inputs):
        return inputs.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + gradient.sum(0)


# ------------------------------------------------------------------------------------------ only now and then, or later
@hostile(ALONE)
def mixes_a_share_that_rounding_swallows(_, inputs):
    return inputs + 1e-30 * inputs.sum(0)


@hostile(ALONE)
def mixes_beyond_a_threshold(_, inputs):
    return torch.where(inputs.abs().amax() > 50.0, inputs - inputs.mean(0), inputs)


@hostile(ALONE)
def mixes_if_the_batch_is_large(_, inputs):
    return inputs - inputs.mean(0) if len(inputs) > 4 else inputs


@hostile(ALONE)
def branches_by_tolist(_, inputs):
    return inputs - inputs.mean(0) if max(inputs[:, 0].tolist()) > 50.0 else inputs


@hostile(ALONE)
def branches_by_numpy(_, inputs):
    return inputs - inputs.mean(0) if np.asarray(inputs.detach()).max() > 50.0 else inputs


@hostile(ALONE)
def branches_by_the_largest(_, inputs):
    return inputs - inputs.mean(0) if inputs.max() > 50.0 else inputs


@hostile(ALONE)
def selects_by_a_mask(_, inputs):
    kept = inputs.sum(1) > -50.0
    out = inputs.clone()
    out[kept] = inputs[kept] * 2.0
    return out


@hostile(ALONE)
def mixes_by_pythons_chance(_, inputs):
    return inputs.roll(1, 0) if random.random() < 1e-6 else inputs


@hostile(ALONE)
def mixes_by_numpys_chance(_, inputs):
    return inputs.roll(1, 0) if np.random.rand() < 1e-6 else inputs  # noqa: NPY002


@hostile(ALONE)
def mixes_by_torchs_chance(_, inputs):
    return inputs.roll(1, 0) if torch.rand(()) < 1e-6 else inputs


# -------------------------------------------------------------------------------------------------- over several passes
@hostile(REFUSED)
def writes_into_a_buffer(self, inputs):
    self.shelf = 0.9 * self.shelf.to(inputs.dtype) + 0.1 * inputs.detach().mean(0)
    return inputs - self.shelf


@hostile(REFUSED)
def carries_state_over_passes(self, inputs):
    before = torch.zeros(5, dtype=inputs.dtype) if self.kept is None else self.kept.to(inputs.dtype)
    self.kept = inputs.detach().mean(0)
    return inputs + before


@hostile(ALONE)
def caches_by_shape(self, inputs):
    """What was computed for the first batch of a size is used for all later ones; of one row, that is a public one."""
    self.kept = self.kept or {}
    return inputs + self.kept.setdefault((inputs.shape, inputs.dtype), inputs.detach().clone())


# --------------------------------------------------------------------------------- strange, and every example by itself
@hostile(TOGETHER)
def changes_a_copy_in_place(_, inputs):
    out = inputs.clone()
    out[:, 1:3].mul_(2.0)
    return out.add_(1.0)


@hostile(TOGETHER)
def views_and_turns(_, inputs):
    return inputs.t().flip(0).t()


@hostile(TOGETHER)
def folds_examples_and_unfolds_them(_, inputs):
    return (inputs.reshape(-1) * 2.0).view(len(inputs), -1)


def records():
    chance = torch.Generator().manual_seed(29)
    inputs = torch.randn(61, 5, generator=chance)
    inputs[::3] *= 60.0  # beyond every threshold above
    return TensorRecords(inputs, torch.randint(0, 3, (61,), generator=chance))


def given(change):
    return task(model=Changed(change), dataset=records())


def verdict(which):
    try:
        checked = check_gradients(fixed(), which)
    except LrdpError:
        return REFUSED
    return ALONE if checked.alone else TOGETHER


def tried(*deserved):
    return [name for name, (_, deserves) in HOSTILE.items() if deserves in deserved]


@pytest.mark.parametrize("name", tried(REFUSED, ALONE, TOGETHER))
def test_what_ties_examples_together_never_runs_together(name):
    change, deserved = HOSTILE[name]
    found = verdict(given(change))
    assert found == deserved


@pytest.mark.parametrize("name", tried(ALONE, TOGETHER))
def test_what_is_accepted_trains_exactly_on_records_that_show_its_nature(name):
    from training.test_gate import CLIP, trained_sum

    which = given(HOSTILE[name][0])
    slots = list(range(9))
    found, _ = trained_sum(which, slots)
    batch = which.dataset.columns_at(torch.arange(9).numpy())
    truth = clipped(gradients_one_by_one(which.model, which.loss, batch, 9), CLIP).sum(0)
    assert float((found - truth).norm()) <= 0.012 * CLIP * 9


def test_what_mixes_on_the_way_back_only_is_not_run_together():
    assert verdict(given(lambda _, inputs: inputs)) == TOGETHER  # control
    honest = model()

    class Backwards(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.rest = honest[0], honest[1:]

        def forward(self, inputs):
            return self.rest(SumsBackwards.apply(self.first(inputs)))

    assert verdict(task(model=Backwards(), dataset=records())) != TOGETHER


def test_a_loss_that_mixes_is_refused():
    def centred(net, batch):
        each = functional.cross_entropy(net(batch[0]), batch[1], reduction="none")
        return each - 0.5 * each.mean()

    assert verdict(task(loss=centred, dataset=records())) == REFUSED


def test_an_input_that_is_changed_in_place_is_nobody_elses():
    """The gate compares passes over the same records: one that spoils them must not pass by spoiling both."""
    assert verdict(given(lambda _, inputs: inputs.mul_(0.5))) in (REFUSED, ALONE, TOGETHER)
    assert verdict(given(lambda _, inputs: inputs.copy_(inputs - inputs.mean(0)))) == REFUSED
