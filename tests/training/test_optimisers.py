"""Moments that go on over updates: post-processing of noised gradients."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from lrdp.errors import InvalidInput
from lrdp.training import Adam, AdamW, Moments, Sgd, check_gradients, unaccounted_private_update
from training.cases import fixed, keys, noise_only, run, task, vector

OPTIMISERS = [
    Sgd(lr=0.1, momentum=0.9),
    Adam(lr=0.1),
    AdamW(lr=0.1, weight_decay=0.02),
]


def known(given):
    """The same task, checked once: what optimiser it has does not change its gradients."""
    checked = check_gradients(fixed(), given)
    return replace(given, checked=checked)


@pytest.mark.parametrize("ours", OPTIMISERS, ids=str)
def test_two_updates_that_go_on_are_one_of_twice_the_steps(ours):
    """The control starts at zero again, and comes out elsewhere."""
    whole = vector(run(fixed(), task(constants={"optimiser": ours}), 4))
    ends = []
    for over_rounds in (True, False):
        given, randomness = known(task(constants={"optimiser": replace(ours, over_rounds=over_rounds)})), keys()
        moved = torch.zeros_like(whole)
        for first_step in (0, 2):
            given = replace(given, constants=replace(given.constants, first_step=first_step))
            update = unaccounted_private_update(fixed(), 2, given, randomness)
            moved += vector(update.delta)
            with torch.no_grad():
                for name, parameter in given.model.named_parameters():
                    parameter.add_(update.delta[name])
            assert (update.moments is not None) is over_rounds
            given = replace(given, moments=update.moments)
        ends.append(moved)
    torch.testing.assert_close(ends[0], whole, rtol=1e-4, atol=1e-6)
    assert float((ends[1] - whole).norm()) > 0.05 * float(whole.norm())


def test_moments_that_are_brought_along_come_back_as_they_were():
    given = known(task(constants={"optimiser": Adam(lr=0.1, over_rounds=True)}))
    first = unaccounted_private_update(fixed(), 1, given).moments
    assert first is not None
    assert first.taken == 1
    before = [one.clone() for each in first.kept for one in each]
    second = unaccounted_private_update(fixed(), 3, replace(given, moments=first)).moments
    assert second is not None
    assert second.taken == 4
    assert all(map(torch.equal, before, (one for each in first.kept for one in each)))


def test_moments_of_another_model_or_optimiser_are_refused_before_anything_is_drawn():
    given = task(constants={"optimiser": Adam(lr=0.1, over_rounds=True)})
    momentum = task(constants={"optimiser": Sgd(lr=0.1, momentum=0.9, over_rounds=True)})
    other = unaccounted_private_update(fixed(), 1, momentum).moments
    for odd in (other, Moments(1, ()), Moments(1, ((torch.zeros(2), torch.zeros(2)),) * 6)):
        with pytest.raises(InvalidInput, match="same parameters and optimiser"):
            unaccounted_private_update(fixed(), 1, replace(given, moments=odd))


def test_moments_that_ran_away_are_not_handed_on():
    wild = {"optimiser": Adam(lr=1e8, over_rounds=True), "clip_norm": 1e9, "normaliser": 1e-3}
    ran = unaccounted_private_update(fixed(noise=1e9), 2, task(constants=wild))
    assert ran.moments is None
    assert vector(ran.delta).isfinite().all()


def test_one_step_of_adam_from_zero_is_the_sign_of_noise_and_later_ones_are_not():
    """What keeping moments mends: from zero, every element moves by the whole rate, whatever its size."""
    given = known(noise_only(constants={"optimiser": Adam(lr=0.1, eps=0.0, over_rounds=True)}))
    update = unaccounted_private_update(fixed(), 1, given, keys(noise=1))
    moved = vector(update.delta).abs()
    torch.testing.assert_close(moved, torch.full_like(moved, 0.1), rtol=1e-4, atol=0)
    for number in range(6):
        update = unaccounted_private_update(fixed(), 1, replace(given, moments=update.moments), keys(noise=2 + number))
    assert float(vector(update.delta).abs().mean()) < 0.07


@pytest.mark.parametrize("odd", [{"eps": -1.0}, {"betas": (0.9, float("nan"))}, {"over_rounds": 1}])
def test_odd_settings_are_refused(odd):
    with pytest.raises(InvalidInput):
        Adam(lr=0.1, **odd)


def test_a_parameter_without_moments_has_none():
    given = task(constants={"optimiser": Sgd(lr=0.1, over_rounds=True)})
    update = unaccounted_private_update(fixed(), 2, given)
    assert update.moments == Moments(2, ((),) * len(list(nn.Module.parameters(given.model))))
    unaccounted_private_update(fixed(), 2, replace(given, moments=update.moments))
