"""Gaussian noise that no float betrays: 52-bit uniforms, Box–Muller in float64, snapped to a grid before the cast.

In float32, a quarter of the outputs at σ = 1 can arise only with some record or only without it (docs/pitfalls.md).
Here sum and noise meet in float64, and what is released is a multiple of 2^-20 of the noise's own scale.

There are three ways to the same law: *plain* by torch's functions, *compiled* in one pass over memory where numba is
installed, and on a *device* other than the CPU by a cipher that runs there. A tensor's place decides which.
"""

from lrdp.training.noise.gaussian import Noise, make_ready
from lrdp.training.noise.grid import Grid

__all__ = ["Grid", "Noise", "make_ready"]
