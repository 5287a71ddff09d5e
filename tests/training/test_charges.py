"""What is drawn is what was charged, and a gradient is used once (traps 5 and 16)."""

import copy

import numpy as np
import pytest
import torch

from ledger.worlds import STEP, World, request
from lrdp.training import private_update, unaccounted_private_update
from lrdp.training.local_steps import prepared
from lrdp.training.sampling import Draw
from training.cases import fixed, keys, model, noise_only, records, run, silent, task, vector

ROUNDS, LOCAL_STEPS = 3, 5


def of_the_policy():
    """Updates of noise alone, with the clip norm of the ledger's policy."""
    return noise_only(dataset=silent(5000), constants={"clip_norm": 1.0})


def noises_in(update):
    """How many independent noises of the charged deviation add up to ``update``: the variances tell.

    120,000 values, so the estimate is within 2% of the truth; no code of the noise or of the loop is asked.
    """
    released = vector(update.delta) / -0.5 * STEP.batch_size / STEP.noise_multiplier
    return float(released.square().mean())


def assert_every_noise_was_charged(ledger, updates):
    """Within half a step: one noise more or less is told apart."""
    charged = sum(ledger.books.charges.history.values())
    assert sum(map(noises_in, updates)) == pytest.approx(charged, abs=0.5)


@pytest.fixture
def world(tmp_path):
    return World(folder=tmp_path)


def test_as_many_noises_are_drawn_as_steps_were_charged(world):
    with world.create() as ledger:
        paid = [ledger.charge(request(number, steps=LOCAL_STEPS)) for number in range(ROUNDS)]
        updates = [private_update(receipt, of_the_policy()) for receipt in paid]
        assert sum(ledger.books.charges.history.values()) == ROUNDS * LOCAL_STEPS
        assert_every_noise_was_charged(ledger, updates)


def test_control_charging_rounds_instead_of_local_steps_is_found_out(world):
    with world.create() as ledger:
        for number in range(ROUNDS):
            ledger.charge(request(number, steps=1))
        updates = [unaccounted_private_update(STEP, LOCAL_STEPS, of_the_policy()) for _ in range(ROUNDS)]
        with pytest.raises(AssertionError):
            assert_every_noise_was_charged(ledger, updates)


def with_stale_gradients(given):
    """The same model with a gradient left over from someone else's backward pass."""
    stale = copy.deepcopy(given)
    for parameter in stale.parameters():
        parameter.grad = torch.full_like(parameter, 3.7)
    return stale


def assert_no_gradient_is_used_twice(sum_of_gradients):
    """Neither a gradient from outside nor one of an earlier call is in the sum, which ``sum_of_gradients`` returns."""
    fresh, stale = model(), with_stale_gradients(model())
    first = sum_of_gradients(fresh)
    torch.testing.assert_close(sum_of_gradients(stale), first, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(sum_of_gradients(fresh), first, rtol=1e-6, atol=1e-7)


def ours(given):
    with prepared(fixed(), task(model=given)) as ready:
        totals = ready.clipped_sum(Draw(np.arange(13, dtype=np.int64)))
        return torch.cat([totals[parameter].flatten() for parameter in given.parameters()])


def without_zero_grad(given):
    """The textbook loop that forgets to forget: ``.grad`` adds up from call to call."""
    inputs, labels = (column[:13] for column in records()._columns)
    torch.nn.functional.cross_entropy(given(inputs), labels, reduction="sum").backward()
    return torch.cat([parameter.grad.flatten().clone() for parameter in given.parameters()])


def test_no_gradient_is_used_twice():
    assert_no_gradient_is_used_twice(ours)


def test_control_a_loop_without_zero_grad_is_found_out():
    with pytest.raises(AssertionError):
        assert_no_gradient_is_used_twice(without_zero_grad)


def test_stale_gradients_have_no_effect_on_an_update_and_none_are_left():
    given = model()
    clean = vector(run(fixed(), task(model=given), 2, keys()))
    assert all(parameter.grad is None for parameter in given.parameters())
    assert vector(run(fixed(), task(model=with_stale_gradients(given)), 2, keys())).equal(clean)
