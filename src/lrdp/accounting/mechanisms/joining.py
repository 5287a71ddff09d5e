"""One step for many: what costs at least as much as each of several kinds."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from lrdp import limits
from lrdp.accounting.mechanisms.base import Mechanism
from lrdp.accounting.mechanisms.fixed_size import FixedSizeGaussian
from lrdp.accounting.mechanisms.gaussian import Gaussian
from lrdp.errors import InvalidInput


def costliest_of(steps: Iterable[Mechanism]) -> Mechanism:
    """A step that costs at least as much as each of these, at every order and to every test.

    Guarantees: its pair dominates each of theirs, and so any mixture of them, under every adjacency that both have a
    pair for; the one whose ε is largest need not. A fixed-size step with the largest probability and the least noise
    does: a record that enters always moves the sum by two clip norms. Where some step reads the whole data set it is
    the plain Gaussian with half the noise.

    >>> from lrdp.accounting import TruncatedPoissonGaussian
    >>> quiet = FixedSizeGaussian(dataset_size=5000, batch_size=64, noise_multiplier=4.0)
    >>> drawn = TruncatedPoissonGaussian(dataset_size=5000, batch_size=96, cap=128, noise_multiplier=2.0)
    >>> costliest_of([quiet, drawn])
    FixedSizeGaussian(noise_multiplier=2.0, dataset_size=5000, batch_size=96)

    Raises:
        Unsupported: where no such step is proved for one of them.
    """
    kinds = {limits.derived_from("step", step, Mechanism) for step in steps}
    if not kinds:
        raise InvalidInput("steps must hold at least one step, got none: there is nothing to cost more than.")
    if len(kinds) == 1:
        return kinds.pop()
    moves = [step.displacement() for step in kinds]
    likeliest = max(moves, key=lambda move: Fraction(move.batch_size, move.dataset_size))
    noise = min(move.noise_multiplier for move in moves)
    if likeliest.batch_size == likeliest.dataset_size:
        return Gaussian(noise_multiplier=noise / 2)
    return FixedSizeGaussian(
        dataset_size=likeliest.dataset_size, batch_size=likeliest.batch_size, noise_multiplier=noise
    )
