"""Privacy-loss distributions: discretised from above, composed in one Fourier transform, read at any ε or δ.

A pair's loss L = log(P/Q) is cut into bins of one width. Each bin's two masses are put on its two edges so that both
are kept ("connect the dots", arXiv 2207.04380v1, Algorithm 1), which dominates the pair. Working with the masses of
bins instead of second differences of the profile keeps every atom's *relative* error near 1e-12.

Formal guarantees: whatever is cut off — the loss above the grid, the tail outside the transform's window, the
transform's own rounding — is added to δ as if it were wholly lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import fft

from lrdp.accounting.renyi import FloatArray
from lrdp.errors import Unsupported

LARGEST_EPSILON = 700.0  # exp() of more overflows; losses above it count as wholly lost

_MOST_ATOMS = 1 << 24  # a transform of this size takes about 1 GB
_CHERNOFF_SCALES = np.geomspace(0.1, 60.0, 18)  # tilts tried, in units of one over a typical loss
_BLOCKS_PER_SPREAD = 8  # how coarsely one step's loss is seen when the window is chosen
_ROUNDING = 8 * 2.0**-52  # error of the transform per composed step, absolute in probability


@dataclass(frozen=True)
class LossBins:
    """P's and Q's masses in the bins [i·width, (i+1)·width) of the loss log(P/Q), for i from ``lowest``."""

    width: float
    lowest: int
    upper: FloatArray  # P's mass of each bin
    lower: FloatArray  # Q's mass of each bin
    upper_above: float  # P's mass above the last bin
    lower_below: float  # Q's mass below the first bin

    def mirrored(self) -> LossBins:
        """The bins of log(Q/P): the same pair, read in the other direction."""
        return LossBins(
            width=self.width,
            lowest=-(self.lowest + len(self.upper)),
            upper=self.lower[::-1],
            lower=self.upper[::-1],
            upper_above=self.lower_below,
            lower_below=self.upper_above,
        )


@dataclass(frozen=True)
class LossDistribution:
    """Atoms of probability at (lowest + i)·width, and ``infinity``, the probability counted as wholly lost."""

    width: float
    lowest: int
    atoms: FloatArray
    infinity: float

    def losses(self) -> FloatArray:
        """The loss of each atom."""
        return np.arange(self.lowest, self.lowest + len(self.atoms), dtype=np.float64) * self.width

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence at ``epsilon``: E[(1 - exp(ε - L))₊]."""
        losses = self.losses()
        above = losses > epsilon
        return float(min(1.0, self.infinity + np.dot(-np.expm1(epsilon - losses[above]), self.atoms[above])))

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """The same at many places at once, to an absolute error of about 1e-13."""
        losses = self.losses()
        kept = losses <= LARGEST_EPSILON
        lost = self.infinity + float(self.atoms[~kept].sum())
        first = np.searchsorted(losses[kept], epsilons, side="right")
        upper = np.append(np.cumsum(self.atoms[kept][::-1])[::-1], 0.0)[first]
        # Scaled from the least ε asked for, below which no atom counts: e^-loss alone would overflow.
        least = float(epsilons.min())
        shrunk = np.where(losses[kept] > least, np.exp(np.minimum(least - losses[kept], 0.0)), 0.0)
        lower = np.append(np.cumsum((self.atoms[kept] * shrunk)[::-1])[::-1], 0.0)[first]
        grown = np.exp(np.minimum(epsilons - least, LARGEST_EPSILON))  # too small far out, and δ then too large
        return np.asarray(np.clip(lost + upper - grown * lower, 0.0, 1.0))

    def epsilon(self, delta: float) -> float:
        """The smallest ε ≥ 0 whose hockey-stick divergence is at most ``delta``; +∞ if there is none up to 700."""
        losses = self.losses()
        start, end = np.searchsorted(losses, [0.0, LARGEST_EPSILON], side="right")
        infinity = self.infinity + float(self.atoms[end:].sum())
        if not infinity < delta:
            return np.inf
        losses, atoms = losses[start:end], self.atoms[start:end]
        # Masses of P and Q at or above each atom; between two atoms δ(ε) = infinity + P - e^ε Q.
        upper = np.append(np.cumsum(atoms[::-1])[::-1], 0.0)
        lower = np.append(np.cumsum((atoms * np.exp(-losses))[::-1])[::-1], 0.0)
        at_atoms = infinity + upper[1:] - np.exp(losses) * lower[1:]
        if infinity + upper[0] - lower[0] <= delta:
            return 0.0
        first = int(np.argmax(at_atoms <= delta))  # the last atom always satisfies it: infinity < delta
        exact = np.log((infinity + upper[first] - delta) / lower[first])
        return float(min(max(exact, 0.0), losses[first]))


def connect_the_dots(bins: LossBins) -> LossDistribution:
    """The dominating distribution of log(P/Q) on the bins' edges.

    A bin with masses p, r under P, Q becomes atoms a, b at its edges ε, ε+width with a + b = p and
    a·e^-ε + b·e^-(ε+width) = r. What P holds below the grid is rounded up to the lowest edge.
    """
    edges = (bins.lowest + np.arange(len(bins.upper))) * bins.width
    at_upper_edge = (bins.upper - bins.lower * np.exp(edges)) / -np.expm1(-bins.width)
    at_upper_edge = np.clip(at_upper_edge, 0.0, bins.upper)
    atoms = np.zeros(len(bins.upper) + 1)
    atoms[:-1] += bins.upper - at_upper_edge
    atoms[1:] += at_upper_edge
    atoms[0] += max(0.0, 1.0 - float(bins.upper.sum()) - bins.upper_above)
    return LossDistribution(width=bins.width, lowest=bins.lowest, atoms=atoms, infinity=bins.upper_above)


def compose(parts: Sequence[tuple[LossDistribution, int]], tail: float) -> LossDistribution:
    """The distribution of the sum of independent losses, each part taken as often as its count says.

    All parts share one width. Outside a window the sum has probability at most ``tail``, which is charged to δ.
    """
    lowest = sum(count * part.lowest for part, count in parts)
    first, last = _window(parts, tail)
    length = max(last - first + 1, *(len(part.atoms) for part, _ in parts))
    if length > _MOST_ATOMS:
        raise Unsupported(
            f"the privacy-loss distribution needs {length} atoms, above the limit of {_MOST_ATOMS}: the losses of "
            f"these parameters are spread too widely, so use the rdp accountant."
        )
    length = fft.next_fast_len(length, real=True)
    spectrum = np.ones(length // 2 + 1, dtype=np.complex128)
    kept = 0.0  # log of the probability that no part is wholly lost
    for part, count in parts:
        spectrum *= fft.rfft(part.atoms, length) ** count
        kept += count * np.log1p(-part.infinity)
    atoms = np.roll(fft.irfft(spectrum, length), lowest - first)
    steps = sum(count for _, count in parts)
    infinity = -np.expm1(kept) + tail + _ROUNDING * steps
    return LossDistribution(
        width=parts[0][0].width, lowest=first, atoms=np.maximum(atoms, 0.0), infinity=float(infinity)
    )


def _window(parts: Sequence[tuple[LossDistribution, int]], tail: float) -> tuple[int, int]:
    """Indices outside which the sum lies with probability at most ``tail``, by Chernoff's bound at several tilts."""
    lowest = sum(count * part.lowest for part, count in parts)
    highest = sum(count * (part.lowest + len(part.atoms) - 1) for part, count in parts)
    variance = sum(count * _variance(part) for part, count in parts)
    if variance == 0.0:
        return lowest, highest
    width = parts[0][0].width
    block = max(1, int(np.sqrt(variance / sum(count for _, count in parts)) / (_BLOCKS_PER_SPREAD * width)))
    coarse = [(_coarsened(part, block), count) for part, count in parts]
    # The sum's own scale suits many small losses, the largest single loss suits rare large ones.
    largest = width * max(max(abs(part.lowest), abs(part.lowest + len(part.atoms))) for part, _ in parts)
    tilts = np.concatenate([_CHERNOFF_SCALES / np.sqrt(variance), _CHERNOFF_SCALES / largest])
    need = np.log(2 / tail)
    above = (_cumulants(coarse, tilts) + need) / tilts / width
    below = -(_cumulants(coarse, -tilts) + need) / tilts / width
    return max(lowest, int(np.floor(below.max()))), min(highest, int(np.ceil(above.min())))


def _variance(part: LossDistribution) -> float:
    losses = part.losses()
    mean = (part.atoms * losses).sum()
    return float((part.atoms * (losses - mean) ** 2).sum())


def _coarsened(part: LossDistribution, block: int) -> tuple[FloatArray, FloatArray]:
    """Losses and atoms with each ``block`` of atoms moved to the block's two ends, its mean kept.

    That can only raise the moments E[exp(tilt·L)], so a Chernoff bound from it holds for the finer distribution.
    """
    index = np.arange(len(part.atoms))
    share = (index % block) / block
    ends = len(part.atoms) // block + 2
    lower = np.bincount(index // block, part.atoms * (1 - share), ends)
    upper = np.bincount(index // block + 1, part.atoms * share, ends)
    losses = (part.lowest + block * np.arange(ends, dtype=np.float64)) * part.width
    atoms = np.asarray(lower + upper, dtype=np.float64)
    return losses[atoms > 0], atoms[atoms > 0]  # an empty atom would set the scale that the others underflow at


def _cumulants(parts: Sequence[tuple[tuple[FloatArray, FloatArray], int]], tilts: FloatArray) -> FloatArray:
    """log E[exp(tilt · sum)] for each tilt."""
    total = np.zeros_like(tilts)
    for (losses, atoms), count in parts:
        exponents = tilts[:, None] * losses
        peak = exponents.max(axis=1, keepdims=True)
        total += count * (peak[:, 0] + np.log(np.exp(exponents - peak) @ atoms))
    return total
