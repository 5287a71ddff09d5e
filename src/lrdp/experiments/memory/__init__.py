"""Figure 1: bytes per step of our engine, Opacus and plain SGD, and what a GPU's allocator makes of them."""

from lrdp.experiments.memory.whole import study

__all__ = ["study"]
