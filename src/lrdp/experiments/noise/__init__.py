"""How much noise each way of sampling and accounting asks for, and what a cap costs in noise and saves in rows."""

from lrdp.experiments.noise.whole import study

__all__ = ["study"]
