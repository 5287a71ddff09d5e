"""What the tests of the accountant are given: bare pairs as mechanisms, and hypothesis' values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hypothesis import strategies as st

from lrdp.accounting import (
    Adjacency,
    FixedSizeGaussian,
    FixedSizeWithReplacementGaussian,
    Gaussian,
    Mechanism,
    PoissonGaussian,
    SampledGaussian,
    TruncatedPoissonGaussian,
)
from lrdp.accounting.pairs import DominatingPair

ADD_REMOVE, REPLACE_ONE = Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE

# What no number of this package may be: each is refused with itself in the message.
NEVER_POSITIVE = [float("nan"), float("inf"), float("-inf"), 0.0, -0.0, -1.3]
NEVER_A_PROBABILITY = [*NEVER_POSITIVE, 1.0, 5.0]
NEVER_A_COUNT = [float("nan"), float("inf"), 0, -3, 2.5, 7.0, "11", None]


@dataclass(frozen=True, kw_only=True)
class Bare(Mechanism):
    """A mechanism that is nothing but its pair, for every adjacency."""

    name: ClassVar[str] = "bare"
    noise_multiplier: float = 1.0
    pair: DominatingPair

    def dominating_pair(self, adjacency: Adjacency) -> DominatingPair:
        return self.pair


def fixed_size(noise_multiplier: float, *, n: int = 5000, batch: int = 128) -> FixedSizeGaussian:
    """The paper's CIFAR-10 client unless told otherwise."""
    return FixedSizeGaussian(dataset_size=n, batch_size=batch, noise_multiplier=noise_multiplier)


def sampled(noise_multiplier: float, *, n: int = 5000, batch: int = 96, cap: int = 128) -> list[SampledGaussian]:
    """One mechanism of every sampled kind."""
    common: dict[str, Any] = {"dataset_size": n, "batch_size": batch, "noise_multiplier": noise_multiplier}
    return [
        FixedSizeGaussian(**common),
        FixedSizeWithReplacementGaussian(**common),
        PoissonGaussian(**common),
        TruncatedPoissonGaussian(**common, cap=cap),
    ]


deltas = st.floats(min_value=1e-9, max_value=0.2)


@st.composite
def mechanisms(draw: st.DrawFn, *, adjacency: Adjacency = ADD_REMOVE, renyi: bool = True) -> Mechanism:
    """Any mechanism that has a bound under ``adjacency``, and a Rényi bound if ``renyi``."""
    noise = draw(st.floats(min_value=0.7 if renyi else 1.5, max_value=30.0))
    n = draw(st.integers(min_value=2, max_value=60_000))
    batch = draw(st.integers(min_value=1, max_value=max(1, n * 3 // 5)))
    common: dict[str, Any] = {"dataset_size": n, "batch_size": batch, "noise_multiplier": noise}
    choices: list[Mechanism] = [Gaussian(noise_multiplier=noise), FixedSizeGaussian(**common)]
    if adjacency is ADD_REMOVE:
        cap = draw(st.integers(min_value=batch, max_value=3 * batch))
        choices += [PoissonGaussian(**common), TruncatedPoissonGaussian(**common, cap=cap)]
        choices += [] if renyi else [FixedSizeWithReplacementGaussian(**common)]
    return draw(st.sampled_from(choices))


def histories(*, adjacency: Adjacency = ADD_REMOVE, renyi: bool = True, most: int = 4) -> st.SearchStrategy[dict]:
    """One to ``most`` different mechanisms with their steps; few of them where loss distributions must resolve ε."""
    steps = st.integers(min_value=1, max_value=3000 if renyi else 60)
    return st.dictionaries(mechanisms(adjacency=adjacency, renyi=renyi), steps, min_size=1, max_size=most)
