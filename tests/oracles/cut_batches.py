"""Truncated Poisson on data sets too large to list: counted in exact fractions, composed from below, and its moments.

Nothing here knows of a record that is displaced, or of sizes held together: a batch is a size by chance, and a uniform
subset of that size. Mixtures are those of `brute_force`, to which the counting is held where every batch can be listed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from fractions import Fraction
from typing import NamedTuple

import numpy

from .brute_force import Mixture, Values

ENDS = 9.0
PIECES = 800
CLIPPED, GROUPS = 20.0, 2000
STEPS_PER_WIDTH = 16


# --- the law of a batch's sum ----------------------------------------------------------------------------------------


def sizes_of_cut_batches(records: int, probability: float, cap: int) -> list[Fraction]:
    """The chances that 0, 1, …, `cap` records are kept."""
    chance, most = Fraction(probability), min(records, cap)
    sizes = [math.comb(records, k) * chance**k * (1 - chance) ** (records - k) for k in range(most)]
    return [*sizes, 1 - sum(sizes, Fraction(0))]


def counted_batches(groups: dict[float, int], probability: float, cap: int, deviation: float) -> Mixture:
    """The sum of a cut Poisson batch from so many records of each gradient: of one size, all batches are as likely."""
    ways: dict[tuple[int, float], int] = {(0, 0.0): 1}
    for gradient, count in groups.items():
        longer: dict[tuple[int, float], int] = defaultdict(int)
        for (taken, total), found in ways.items():
            for more in range(min(count, cap - taken) + 1):
                longer[taken + more, total + more * gradient] += found * math.comb(count, more)
        ways = longer
    records = sum(groups.values())
    sizes = sizes_of_cut_batches(records, probability, cap)
    chances: dict[float, Fraction] = defaultdict(Fraction)
    for (taken, total), found in ways.items():
        chances[total] += sizes[taken] * Fraction(found, math.comb(records, taken))
    means = tuple(sorted(mean for mean, chance in chances.items() if float(chance) > 0))
    return Mixture(means=means, weights=tuple(float(chances[mean]) for mean in means), deviation=deviation)


# --- several steps, from below ---------------------------------------------------------------------------------------


class Masses(NamedTuple):
    """What two distributions have in each of several pieces of one space."""

    first: Values
    second: Values


def in_pieces(first: Mixture, second: Mixture) -> Masses:
    """An attacker who sees in which piece of the line a step's output lies, and no more, can tell no more apart."""
    means, reach = first.means + second.means, ENDS * first.deviation
    inner = numpy.linspace(min(means) - reach, max(means) + reach, PIECES - 1)
    edges = numpy.concatenate(([-numpy.inf], inner, [numpy.inf]))
    return Masses(first.mass(edges[:-1], edges[1:]), second.mass(edges[:-1], edges[1:]))


def taken_together(one: Masses, other: Masses) -> Masses:
    """Both seen, and put in groups of like loss: who sees the group alone can tell no more apart."""
    losses = numpy.add.outer(_losses(one), _losses(other)).ravel()
    place = numpy.clip((losses + CLIPPED) * (GROUPS / (2 * CLIPPED)), 0, GROUPS - 1).astype(numpy.int64)
    both = (numpy.bincount(place, numpy.outer(*pair).ravel()) for pair in zip(one, other, strict=True))
    return Masses(*(each.astype(numpy.float64) for each in both))


def hockey_sticks_from_below(masses: Masses, epsilons: tuple[float, ...]) -> Values:
    """At most the hockey-stick divergence of whatever was put in pieces, at each epsilon."""
    surplus = masses.first - numpy.exp(numpy.array(epsilons))[:, None] * masses.second
    return numpy.asarray(numpy.maximum(surplus, 0.0).sum(axis=1))


def _losses(masses: Masses) -> Values:
    """log first/second; 0 where a piece holds nothing of either."""
    held = (masses.first > 0) & (masses.second > 0)
    ratio = numpy.divide(masses.first, masses.second, out=numpy.ones_like(masses.first), where=held)
    return numpy.asarray(numpy.log(ratio))


# --- Renyi divergences -----------------------------------------------------------------------------------------------


def renyi_divergence(first: Mixture, second: Mixture, order: float) -> float:
    """D_order(first || second), to 1e-13 / (order - 1) or 1e-10 of itself, whichever is more.

    The trapezoid rule on the whole line: the integrand first^order second^(1-order) is analytic up to where `second`
    vanishes, some pi deviation^2 / (distance of two means) off the axis, so its error falls exponentially.
    """
    means, deviation = first.means + second.means, first.deviation
    beyond = order * (max(means) - min(means)) + 13 * deviation
    step = deviation * min(deviation, 1.0) / STEPS_PER_WIDTH
    place = numpy.arange(min(means) - beyond, max(means) + beyond, step)
    terms = order * first.log_density(place) + (1 - order) * second.log_density(place)
    top = terms.max()
    total = top + math.log(numpy.exp(terms - top).sum() * step / (deviation * math.sqrt(2 * math.pi)))
    return float(total / (order - 1))
