"""Mechanisms: what one private step does, as immutable values, one file each.

Sampler, noise and accountant read the same value, so they cannot disagree. ``noise_multiplier`` is σ: the standard
deviation of the noise on the *sum* of clipped gradients, over the clip norm. Each mechanism knows the pair that
dominates it under each adjacency, or refuses with the reason; its numbers, as the ledger writes them; and which steps a
policy that states it admits. A new one is a file and a line of ``MECHANISMS``. Proofs: docs/accounting.md.

>>> MECHANISMS["gaussian"](noise_multiplier=2.0)
Gaussian(noise_multiplier=2.0)
"""

from typing import Final

from lrdp.accounting.mechanisms.base import CLIP_HEADROOM, Adjacency, Bound, Displacement, Mechanism, Side
from lrdp.accounting.mechanisms.fixed_size import FixedSizeGaussian
from lrdp.accounting.mechanisms.full_batch import FullBatchGaussian
from lrdp.accounting.mechanisms.gaussian import Gaussian
from lrdp.accounting.mechanisms.joining import costliest_of
from lrdp.accounting.mechanisms.poisson import PoissonGaussian
from lrdp.accounting.mechanisms.sampled import SampledGaussian
from lrdp.accounting.mechanisms.sized import PublicSizes, SizedGaussian
from lrdp.accounting.mechanisms.truncated_poisson import TruncatedPoissonGaussian
from lrdp.accounting.mechanisms.with_replacement import FixedSizeWithReplacementGaussian

MECHANISMS: Final[dict[str, type[Mechanism]]] = {
    kind.name: kind
    for kind in (
        FixedSizeGaussian,
        FixedSizeWithReplacementGaussian,
        TruncatedPoissonGaussian,
        PoissonGaussian,
        FullBatchGaussian,
        Gaussian,
    )
}
"""Every mechanism that a ledger can hold, by its name, in the order in which people are shown them."""

__all__ = [
    "CLIP_HEADROOM",
    "MECHANISMS",
    "Adjacency",
    "Bound",
    "Displacement",
    "FixedSizeGaussian",
    "FixedSizeWithReplacementGaussian",
    "FullBatchGaussian",
    "Gaussian",
    "Mechanism",
    "PoissonGaussian",
    "PublicSizes",
    "SampledGaussian",
    "Side",
    "SizedGaussian",
    "TruncatedPoissonGaussian",
    "costliest_of",
]
