"""The Fourier transform that composes losses, against plain convolution, which has no cancellation."""

from typing import Any

import numpy as np
import pytest

from lrdp.accounting.pairs import GaussianMixturePair
from lrdp.accounting.privacy_loss import LossDistribution, compose, connect_the_dots
from lrdp.errors import InvalidInput

TAIL = 1e-25


def one_step(probability, deviation, width):
    pair = GaussianMixturePair(weights=(probability,), deviation=deviation)
    low, high = pair.loss_range(TAIL)
    return connect_the_dots(pair.bins(width, int(np.floor(low / width)), int(np.ceil(high / width))))


def convolved(part, steps):
    """Repeated squaring with direct sums of non-negative numbers: every tail is good to many digits."""
    power: Any = part.atoms
    result: Any = None
    for bit in bin(steps)[:1:-1]:
        if bit == "1":
            result = power if result is None else np.convolve(result, power)
        power = np.convolve(power, power)
    return LossDistribution(width=part.width, lowest=steps * part.lowest, atoms=result, infinity=0.0)


@pytest.mark.parametrize(
    ("probability", "deviation", "width", "steps"),
    [(0.0256, 5.0, 0.004, 129), (0.0256, 2.0, 0.01, 64), (0.5, 2.0, 0.1, 97), (0.004, 0.5, 0.1, 33)],
)
def test_the_rounding_of_the_transform_is_far_below_what_is_charged_for_it(probability, deviation, width, steps):
    part = one_step(probability, deviation, width)
    exact, ours = convolved(part, steps), compose([(part, steps)], TAIL)
    charged = 8 * 2.0**-52 * steps
    assert ours.infinity >= charged
    errors = [
        abs(ours.delta(epsilon) - ours.infinity - exact.delta(epsilon))
        for epsilon in np.linspace(0.0, exact.losses()[-1], 60)
    ]
    assert max(errors) < charged / 4
    assert max(errors) > 0.0  # the control: the two ways do differ, so there is something to charge for


def test_composing_different_parts_is_composing_them_one_after_the_other():
    width = 0.02
    parts = [(one_step(0.3, 1.7, width), 3), (one_step(0.01, 0.9, width), 2)]
    exact = np.array([1.0])
    for part, steps in parts:
        for _ in range(steps):
            exact = np.convolve(exact, part.atoms)
    ours = compose(parts, TAIL)
    offset = ours.lowest - sum(steps * part.lowest for part, steps in parts)
    assert ours.atoms[: len(exact) - offset] == pytest.approx(exact[offset : offset + len(ours.atoms)], abs=1e-15)


def test_what_lies_outside_the_window_is_charged_and_not_lost():
    part = one_step(0.2, 1.1, 0.01)
    steps, tail = 50, 1e-6
    narrow, exact = compose([(part, steps)], tail), convolved(part, steps)
    assert len(narrow.atoms) < len(exact.atoms)
    assert narrow.infinity >= tail
    for epsilon in np.linspace(0.0, 12.0, 40):
        assert narrow.delta(epsilon) >= exact.delta(epsilon)


def test_a_distribution_too_wide_for_memory_is_refused():
    atoms = np.full(1 << 20, 2.0**-20)
    flat = LossDistribution(width=1.0, lowest=-(1 << 19), atoms=atoms, infinity=0.0)
    with pytest.raises(InvalidInput, match="use the rdp accountant"):
        compose([(flat, 10**6)], 1e-9)
